"""Print a plan: all of it, section by section, or one page, which a person reads before spending money on it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from moedsl.cost.estimate import NOT, TIGHT
from moedsl.facts.axes import BY_NAME, pairs, show
from moedsl.planner import checkpoints, container, estimate, experiment, ladder, training, walls
from moedsl.planner.decisions import Decision, OtherValue
from moedsl.planner.layout import adapter_text, meshes, policies, racks_summary, racks_text
from moedsl.planner.other_layouts import shipped_text
from moedsl.planner.plan import Plan
from moedsl.planner.simpler import WITHIN
from moedsl.planner.walls import SMALL, listed
from moedsl.rules.stdlib import RuleId
from moedsl.support.render import paint
from moedsl.support.text import CLOSE, bar, counted, duration, short, table, titled, tokens, visible, wrapped


def plan_text(p: Plan) -> str:
    """Print all of one plan: the layout, then its memory, its speed, and the reasons."""
    parts = [head(p), *(text(p) for text in SECTIONS.values())]
    return "\n\n".join(part for part in parts if part) + "\n"


def head(p: Plan) -> str:
    """Write the title: run, model, GPUs, sequence length, phase and task."""
    task = "" if p.task == "pretrain" else f", {p.task}"
    what = f"{p.model} on {p.gpus} {p.hardware}, {tokens(p.batch.seq)} tokens"
    return f"{p.name}: {what}, {p.phase} first{task}"


def batch_text(p: Plan) -> str:
    """Write a step's sequences, tokens, microbatches and replicas."""
    b, replicas = p.batch, p.layout.dp
    step = f"{counted(b.global_batch, 'sequence')} ({b.global_batch * b.seq / 2**20:.3g} Mi tokens) a step"
    micro = f"{counted(b.num_microbatches, 'microbatch')} of {b.micro_batch}"
    return f"{step}: {micro} on {'each of ' * (replicas > 1)}{counted(replicas, 'replica')}"


def samples(p: Plan) -> list[str]:
    """Write lines on how samples of text are read; empty if the run reads no samples."""
    s, e, seq = p.samples, p.estimate, p.batch.seq
    if s is None:
        return []
    padded = f", each padded to a multiple of {s.multiple} tokens" if s.multiple > 1 else ""
    packed = f"packed: as many in a sequence of {seq:,} tokens as fit{padded}"
    lines = [packed if s.pack else f"one in a sequence, padded to {seq:,} tokens"]
    if s.per_sequence is None:
        measured = f"`moedsl data stats {p.policy.data.rstrip('/')}/training.jsonl` measures them"
        if s.source == "hf":  # bridge data/builders/gpt_sft.py:325
            measured = (
                "Bridge makes a `training.jsonl` of the data set when training starts, and its log names the path; "
                "`moedsl data stats` measures that file"
            )
        return [*lines, f"their lengths are not stated, so the speed counts padding: {measured}"]
    held = f"{s.per_sequence:.1f} in a sequence, {s.per_sequence * p.batch.global_batch:,.0f} in a step"
    share = f"{e.useful_share:.0%} of the tokens are theirs, {e.useful_tokens_per_s_per_gpu:,.0f} tokens/s/GPU"
    cut = sum(n > seq for n in s.lengths) / len(s.lengths)
    lost = [f"{cut:.0%} of them are longer than a sequence, and Bridge cuts their ends"] if cut else []
    return [*lines, f"{held}; {share}", *lost]


RARE, LARGE = 0.05, 0.05
"""A chance to run out of memory below which a gain above this share of the step is worth a line at the top."""


def steps(p: Plan) -> int:
    """Return the steps that the run states, or the recipe's steps if it reads samples; else 0."""
    return p.train_steps or (p.training.steps if p.training and p.samples else None) or 0


def length(p: Plan) -> str:
    """Write how long the run takes, with all interruptions, and how many samples it reads; empty without steps."""
    if not (n := steps(p)):
        return ""
    e, trains, counts = p.estimate, 1.0, ""
    if c := p.checkpoints:
        g, validates = c.goodput, "validation, " if c.goodput.validates else ""
        jobs = ", without the starts and ends of the jobs of its chain" if c.chain else ""
        if c.saved:
            trains, counts = g.trains, f" with {validates}saves and failures{jobs}"
        else:
            trains = g.trains / (g.trains + g.validates) if g.validates else 1.0
            counts = f" {'with ' * bool(validates)}{validates}without a failure: nothing is saved"
    needs = n / trains
    known = f" ({duration(needs * i.lower_s)} to {duration(needs * i.upper_s)})" if (i := e.interval) else ""
    whose = "" if p.train_steps else ", Bridge's default"
    held = p.samples and p.samples.per_sequence
    read = f"; {held * p.batch.global_batch * n:,.0f} samples" if held else ""
    return f"{counted(n, 'step', ',d')}{whose}: {duration(needs * e.step_time_s)}{known}{counts}{read}"


def _decisions(p: Plan) -> str:
    settings = (d for d in p.decisions if d.name not in p.env)
    rows = [(d.name, show(d.value), d.origin + " (advice)" * bool(d.advice), d.told) for d in settings]
    return titled("Decisions", table(rows, "l"))


def _more_gpus(p: Plan) -> str:
    speeds = ((s, f"{s.step_time_s:.2f} s a step, {s.speedup:.2f}x as fast") for s in p.steps)
    lines = (f"  {s.gpus} GPUs: {speed}{', with ' * bool(s.changes)}{pairs(s.changes)}" for s, speed in speeds)
    return titled("More GPUs, same batch", lines)


def _next_best(p: Plan) -> str:
    lines = []
    for a in (*([p.rebalanced] if p.rebalanced else []), *p.alternatives):
        against = f" (against {', '.join(map(short, a.against_advice))})" if a.against_advice else ""
        lines.append(f"  {pairs(a.changes)}: {a.against_plan}{against}")
    return titled("Next best", lines)


def _at_4k(p: Plan) -> str:
    """Print how the plan of a long run differs from the plan of the same run at 4K tokens."""
    if p.against_4k is None:
        return ""
    rows = [(c.name, f"{show(c.here)}, at 4k {show(c.at_4k)}") for c in p.against_4k.changes]
    return "\n".join(["Differs from the plan at 4k", *table(rows, "l")])


def _advice(p: Plan) -> str:
    """Print each ignored piece of advice with the cost of following it, then the rest in one paragraph."""
    lines = [f"  not followed  {a.rule}: {a.because}; following it: {a.cost}" for a in p.advice if not a.followed]
    lines += [f"  allowed       {a.rule}: {a.because or 'no reason given'}" for a in p.allowed]
    followed = [a for a in p.advice if a.followed]
    lines += [f"  all other advice ({len(followed)}) is followed, or not about this run"] if followed else []
    return titled("Advice", lines)


SECTIONS: Mapping[str, Callable[[Plan], str]] = {
    "meshes": lambda p: titled("Meshes", (f"  {name:<9}  {mesh}" for name, mesh in meshes(p.layout).items())),
    "racks": lambda p: racks_text(p.racks) if p.racks else "",
    "batch": lambda p: titled("Batch", [f"  {batch_text(p)}", *(wrapped(t.text) for t in [p.batch.against_4k] if t)]),
    "policy": lambda p: f"Policy\n  {', '.join(policies(p.policy))}",
    "training": lambda p: titled("Training", [wrapped(training.text(p.training))] if p.training else []),
    "samples": lambda p: titled("Samples", map(wrapped, samples(p))),
    "adapter": lambda p: adapter_text(p.adapter) if p.adapter else "",
    "memory": lambda p: estimate.memory_text(p.estimate.memory),
    "speed": lambda p: estimate.text(p.estimate),
    "decisions": _decisions,
    "environment": lambda p: titled(
        "Environment", table([(d.name, show(d.value), d.because or "") for d in p.decisions if d.name in p.env], "l")
    ),
    "experiment": lambda p: experiment.text(p.experiment),
    "checkpoints": lambda p: checkpoints.text(p.checkpoints, p.gpus) if p.checkpoints else "",
    "walls": lambda p: walls.text(p.walls),
    "parts": lambda p: estimate.parts_text(p.estimate, [m.result for m in p.measured if m.rule == RuleId.MOCK_DATA]),
    "ladder": lambda p: ladder.text(p.ladder) if p.ladder else "",
    "more-gpus": _more_gpus,
    "next-best": _next_best,
    "simpler": lambda p: titled(
        "Simplest layout that is nearly as fast", [wrapped(p.simpler.text)] if p.simpler else []
    ),
    "nvidia": lambda p: shipped_text(p.shipped, p.gpus, p.hardware, p.estimate) if p.shipped else "",
    "at-4k": _at_4k,
    "advice": _advice,
    "measured": lambda p: titled(
        "Measured on a similar run", (wrapped(f"{m.result}: {m.because} ({'; '.join(m.cite)})") for m in p.measured)
    ),
    "container": lambda p: container.text(p.needs),
    "covers": lambda p: titled(
        "What the estimates cover", map(wrapped, (p.estimate.memory.covers, p.estimate.covers.step_time))
    ),
}
"""The sections of a plan in order, each empty if the plan lacks it; `--section` takes their names."""


LABEL = 14
"""Width of the labels on the left, in characters."""
BAR = 20
PARTS = 3
"""The most parts of a wall that are named."""
MOST_LINES = 30
"""The lines of a page, where its warnings leave room for no more than its layout, speed and prices."""
WIDE = 100
_MOST_NOTES = 2
_LESS = ((6, _MOST_NOTES), (4, 1), (4, 0), (2, 0))
"""The most decisions with a price, and the most notes, until a page is short enough."""
_BAR_FROM = 0.1
"""Shares of the step below this have no bar."""
_MOST_PINS = 3
_COLOURS = {"FITS": "help", "TIGHT": "warning", "DOES NOT FIT": "error", "Warning": "warning", "Note": "note"}
Command = tuple[str, str]
"""What to type, and what it does."""
Notes = Sequence[Mapping[str, Any]]
"""Warnings and notes in their JSON form."""


def page_text(p: Plan, notes: Notes, commands: Sequence[Command], width: int) -> str:
    """Print one plan with the diagnostics of its file, and the commands that come next."""

    def groups(decisions: int, shown: int, width: int) -> list[list[str]]:
        parts = (
            [wrapped(head(p), "", width=width), *_verdict(p, width)],
            _layout(p, width),
            _speed(p, width),
            [*_choices(p, decisions, width), *_others(p, width), *notes_text(notes, width, shown)],
            next_text(commands, width),
        )
        return [lines for part in parts if (lines := "\n".join(part).splitlines())]

    # As much as has room, with blank lines between the groups as far as there is room for them; as at 100 columns, so
    # that a narrower page says the same
    (decisions, shown), free, made = _LESS[0], 0, list[list[str]]()
    for decisions, shown in _LESS:
        made = groups(decisions, shown, max(width, WIDE))
        free = MOST_LINES - sum(map(len, made))
        if free >= len(made) - 1:
            break
    made = groups(decisions, shown, width)
    last = len(made)
    blank = ("\n" * (i <= free and i < last) for i in range(1, last + 1))
    return "".join("\n".join(lines) + "\n" + more for lines, more in zip(made, blank, strict=True))


def coloured(text: str) -> str:
    """Colour the labels of a page, and its verdict."""
    lines = visible(text).splitlines(keepends=True)
    for i, line in enumerate(lines):
        if label := re.match(rf"{'|'.join(_COLOURS)}|[A-Za-z]\w*(?=  | \[)", line):
            lines[i] = paint(label[0], _COLOURS.get(label[0], "head")) + line[label.end() :]
    return "".join(lines)


def _line(label: str, text: str, width: int) -> str:
    return _wrapped(text, label.ljust(LABEL), " " * LABEL, width)


def _wrapped(text: str, first: str, rest: str, width: int) -> str:
    """Wrap a paragraph, keeping each number on one line with its unit."""
    return wrapped(re.sub(r"(?<=\d) (?=[A-Za-z])", "\xa0", text), first, rest, width).replace("\xa0", " ")


def _verdict(p: Plan, width: int) -> Iterator[str]:
    """Say whether the layout fits, and what this conclusion rests on."""
    m, i = p.estimate.memory, p.estimate.interval
    parts = f"{m.upper_gib:.1f} in torch, {m.unused_gib:.1f} unused there, {m.outside.upper_gib:.1f} outside"
    worst = f"worst case {m.worst_gib:.1f} of {m.visible_gib:.1f} GiB: {parts}"
    worst += f"; out of memory in {odds(m.chance)}" * (m.verdict == TIGHT)
    yield _line(m.verdict, m.because if m.verdict == NOT else worst, width)
    yield from _faster(p, width, first=True)
    if m.certain and m.certain.layout:
        safe = m.certain.layout
        yield _line("", f"nearest layout that FITS: {pairs(safe.changes)}, {safe.against_plan}", width)
    rank = f" by {p.search.ranks_by.rule.rpartition('.')[2]}" if p.search.ranks_by else ""
    similar = len({m.rule for m in p.measured})
    known = f"estimates and {counted(similar, 'similar published run')}" if similar else "estimates"
    texts = [known, f"best{rank} of {counted(p.search.legal_layouts, 'legal layout', ',d')}"]
    texts += [f"its speed has a wide range because there is {' and '.join(i.unlike)}"] if i and i.unlike else []
    yield _line("rests on", "; ".join(texts), width)


def _layout(p: Plan, width: int) -> Iterator[str]:
    for name, mesh in meshes(p.layout).items():
        yield _line(name.capitalize(), mesh, width)
    if p.racks:
        yield _line("Racks", racks_summary(p.racks), width)
    yield _line("Batch", batch_text(p), width)
    if p.samples:
        yield _line("Samples", "; ".join(samples(p)), width)
    yield _line("Policy", ", ".join(w for w in policies(p.policy) if not w.endswith((" none", " off"))), width)
    if p.training:
        yield _line("Training", training.text(p.training), width)
    if p.adapter:
        a = p.adapter
        trained = f"{a.params / 1e6:,.1f}M parameters are trained, {100 * a.share:.2g}% of the model"
        yield _line("Adapter", f"{a.method} of rank {a.rank}, alpha {a.alpha}: {trained}", width)


def _speed(p: Plan, width: int) -> Iterator[str]:
    """Print memory, speed and walls, with ranges and bars; then the goodput and how long the run takes.

    The memory bar shows the best estimate and the worst case, as shares of the GPU's memory."""
    e, m, w = p.estimate, p.estimate.memory, p.walls
    drawn = bar(m.peak_gib / m.visible_gib, BAR, m.worst_gib / m.visible_gib)
    known = f"{m.peak_gib:.1f} ({m.lower_gib:.1f} to {m.upper_gib:.1f}) of {m.visible_gib:.1f} GiB"
    yield _line("Memory", f"{drawn} {known}", width)
    known = f" ({e.interval.lower_s:.2f} to {e.interval.upper_s:.2f} in 9 of 10 runs)" if e.interval else ""
    rates = f"{e.tokens_per_s_per_gpu:,.0f} tokens/s/GPU, {e.model_tflops_per_gpu:.0f} TFLOPS/GPU"
    yield _line("Speed", f"{e.step_time_s:.2f} s a step{known}, {rates}", width)
    if e.parts:
        useful = f"{e.useful_tokens_per_s_per_gpu:,.0f} useful tokens/s/GPU: {e.useful_share:.1%} of a sequence"
        yield _line("", f"{useful} trains the decoder", width)
    shares = {
        "compute": w.compute.share, "communication": w.communication.share, "host": w.host.share,
        "recompute": e.breakdown["recompute"] / e.step_time_s,
    }  # fmt: skip
    drawn = {name: share for name, share in shares.items() if share >= _BAR_FROM or name == "compute"}
    rest = ", ".join(f"{name} {share:.1%}" for name, share in shares.items() if share >= SMALL and name not in drawn)
    of = {"compute": listed(w.compute.shares, PARTS - 1), "communication": listed(w.communication.shares, PARTS)}
    for name, share in drawn.items():
        others = f"; {rest}" if rest and name == [*drawn][-1] else ""
        yield _line(name, f"{bar(share, BAR)} {share:5.1%}{of.get(name, '')}{others}", width)
    if p.checkpoints and p.checkpoints.saved:
        yield _line("Goodput", checkpoints.summary(p.checkpoints, steps(p)), width)
    if lasts := length(p):
        yield _line("Length", lasts, width)


def _choices(p: Plan, most: int, width: int) -> Iterator[str]:
    """List chosen values that are not off, then pinned ones, each with the price of the best other value; values that
    are as good within the error of the estimate on one line."""
    decided = [d for d in p.decisions if d.name in BY_NAME and BY_NAME[d.name].is_on(d.value)]
    chosen = [d for d in decided if d.origin == "chosen"]
    close = [d for d in chosen if (best := _best(d)) and CLOSE in best.effect]
    priced = [d for d in chosen if d not in close]
    yield from _priced("Decisions", priced[:most], width)
    if len(priced) > most:
        yield wrapped(_named(priced[most:]), "  and ", "  ", width)
    if close:
        others = ", ".join(f"{d.name} {show(best.value)} for {show(d.value)}" for d in close if (best := _best(d)))
        yield _line("As good", f"within the error of the estimate: {others}", width)
    told = [d for d in p.decisions if d.origin == "pinned" and any(CLOSE not in a.effect for a in d.alternatives)]
    told = sorted(told, key=lambda d: d.alternatives[0].step_time or 0.0)[:_MOST_PINS]
    yield from _priced("Pinned", told, width)
    if pinned := [d for d in decided if d.origin == "pinned" and d not in told]:
        yield _line("" if told else "Pinned", _named(pinned), width)


def _named(decisions: Sequence[Decision]) -> str:
    return ", ".join(f"{d.name} {show(d.value)}" for d in decisions)


def _best(d: Decision) -> OtherValue | None:
    """Return the fastest other value."""
    return min(d.alternatives, key=lambda a: float("inf") if a.step_time is None else a.step_time, default=None)


def _priced(label: str, decisions: Sequence[Decision], width: int) -> Iterator[str]:
    """Print each decision with the price of the best other value, of a pin that of what the run would choose."""
    for i, d in enumerate(decisions):
        price = "no other value is possible"
        if best := _best(d):
            price = f"{show(best.value)} is {best.effect}".replace(" std.", " ")
        yield _line("" if i else label, f"{d.name} {show(d.value)}: {price}", width)


def _others(p: Plan, width: int) -> Iterator[str]:
    """Show NVIDIA's own recipe, how to get its layout where that is faster, and a faster layout that may not fit."""
    r = p.shipped
    if r is not None:
        if r.step_time_s is None:
            text = f"refused by {short(r.refused_by or '')} (`--section nvidia`)"
        elif not r.changes:
            text = "this plan has its layout"
        else:
            text = r.verdict or ""
            if r.verdict == "FITS":
                text = f"{r.step_time_s:.2f} s a step ({r.against_plan}), FITS"
            if r.verdict != "FITS" or r.step_time_s >= p.estimate.step_time_s:
                text += " (`--section nvidia`)"
            else:
                text += "; `--like` takes it"
                text += "" if p.phase == "throughput" else "; `throughput first` looks for the fastest"
        yield _line("NVIDIA", f"{r.name}: {text}", width)
    if p.simpler and (p.simpler.changes or p.simpler.within != WITHIN):
        yield _line("Simpler", p.simpler.text, width)
    yield from _faster(p, width, first=False)


def _faster(p: Plan, width: int, first: bool) -> Iterator[str]:
    """Show a faster layout that may not fit: first on the page if its gain is large and its chance to run out small."""
    f = p.estimate.memory.faster
    if f is None:
        return
    saved = 1 - f.step_time_s / p.estimate.step_time_s
    if first == (f.chance < RARE and saved > LARGE):
        gain = f"{f.step_time_s:.2f} s a step with {pairs(f.changes)}"
        risk = f"may not fit: out of memory in {odds(f.chance)}"
        yield _line("Faster", f"{gain}; {risk}; `{f.statement}` chooses it", width)


def odds(chance: float) -> str:
    """Print a chance as one run of several."""
    if chance < 0.01:
        return "less than 1 run of 100"
    return f"about 1 run of {round(1 / chance)}" if chance <= 0.4 else f"about {round(10 * chance)} of 10 runs"


def notes_text(notes: Notes, width: int, most: int = _MOST_NOTES) -> Iterator[str]:
    """Print every warning and the first notes, each as one paragraph with its line in the file."""
    warnings, others = ([d for d in notes if d["severity"] == s] for s in ("warning", "note"))
    for d in [*warnings, *others[:most]]:
        line = next((f", line {label['line']}" for label in d["labels"] if "line" in label), "")
        yield _line(d["severity"].capitalize(), f"{d['message']} ({short(d['id'])}{line})", width)
    if left := [short(d["id"]).rpartition(".")[2] for d in others[most:]]:
        named = ", ".join(dict.fromkeys(left))
        text = f"{named}: `moedsl check` prints {'it' if len(left) == 1 else 'them'}"
        yield _line("" if most else "Notes", f"{'and ' * bool(most)}{text}", width)


def next_text(commands: Sequence[Command], width: int) -> Iterator[str]:
    """Print the commands that come next, with what they do as comments of the shell."""
    longest = max((len(c) for c, _ in commands), default=0)
    for i, (command, what) in enumerate(commands):
        line = f"{'' if i else 'Next':<{LABEL}}{command:<{longest}}  # {what}"
        yield line if len(line) <= width else line[: LABEL + len(command)]
        if len(line) > width and len(commands) == 1:
            yield f"{'':<{LABEL}}# {what}"
