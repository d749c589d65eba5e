"""Print all of a plan, section by section; `page.py` prints what fits on a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from moedsl.facts.axes import pairs, show
from moedsl.facts.common import COMMON
from moedsl.planner import checkpoints, container, estimate, experiment, ladder, memory, racks, walls
from moedsl.planner.layout import adapter_text, batch_text, meshes, policies
from moedsl.planner.other_layouts import shipped_text
from moedsl.planner.plan import Plan
from moedsl.rules.stdlib import RuleId
from moedsl.support.text import counted, duration, short, table, titled, tokens, wrapped


def plan_text(p: Plan) -> str:
    """Print all of one plan: the layout, then its memory, its speed, and the reasons."""
    parts = [head(p), *(text(p) for text in SECTIONS.values())]
    return "\n\n".join(part for part in parts if part) + "\n"


def head(p: Plan) -> str:
    """Name the run, its model, its GPUs and what it is for."""
    task = "" if p.task == "pretrain" else f", {p.task}"
    what = f"{p.model} on {p.gpus} {p.hardware}, {tokens(p.batch.seq)} tokens"
    return f"{p.name}: {what}, {p.phase} first{task}"


def batch(p: Plan) -> str:
    """Write what a step trains on."""
    return batch_text(p.batch, p.layout.dp)


def samples(p: Plan) -> list[str]:
    """Say how samples of a text are read; none for a run that reads none."""
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


_OTHER_LENGTHS = ("train.train_samples", "train.num_epochs")


def steps(p: Plan) -> int:
    """The steps that the run states, or those of the recipe if it reads samples; 0 if it has neither."""
    if p.train_steps or p.samples is None or any(p.set.get(name) is not None for name in _OTHER_LENGTHS):
        return p.train_steps
    return COMMON[p.task].values["train.train_iters"]


def length(p: Plan) -> str:
    """Write how long the steps take, with all that stops training, and what they read; empty if it is not known."""
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


def _environment(p: Plan) -> str:
    rows = [(d.name, show(d.value), d.because or "") for d in p.decisions if d.name in p.env]
    return titled("Environment", table(rows, "l"))


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
    """Print the differences of a long run from the same run at 4K tokens."""
    if p.against_4k is None:
        return ""
    rows = [(c.name, f"{show(c.here)}, at 4k {show(c.at_4k)}") for c in p.against_4k.changes]
    return "\n".join(["Differs from the plan at 4k", *table(rows, "l")])


def _advice(p: Plan) -> str:
    """Print the advice that is not followed with the cost of following it, then the rest in one paragraph."""
    lines = [f"  not followed  {a.rule}: {a.because}; following it: {a.cost}" for a in p.advice if not a.followed]
    lines += [f"  allowed       {a.rule}: {a.because or 'no reason given'}" for a in p.allowed]
    followed = [short(a.rule) for a in p.advice if a.followed]
    lines += [wrapped(f"followed or not applicable: {', '.join(followed)}")] if followed else []
    return titled("Advice", lines)


SECTIONS: Mapping[str, Callable[[Plan], str]] = {
    "meshes": lambda p: titled("Meshes", (f"  {name:<9}  {mesh}" for name, mesh in meshes(p.layout).items())),
    "racks": lambda p: racks.text(p.racks) if p.racks else "",
    "batch": lambda p: titled("Batch", [f"  {batch(p)}", *(wrapped(t.text) for t in [p.batch.against_4k] if t)]),
    "policy": lambda p: f"Policy\n  {', '.join(policies(p.policy))}",
    "samples": lambda p: titled("Samples", map(wrapped, samples(p))),
    "adapter": lambda p: adapter_text(p.adapter) if p.adapter else "",
    "memory": lambda p: memory.text(p.estimate.memory),
    "speed": lambda p: estimate.text(p.estimate),
    "decisions": _decisions,
    "environment": _environment,
    "experiment": lambda p: experiment.text(p.experiment),
    "checkpoints": lambda p: checkpoints.text(p.checkpoints, p.gpus) if p.checkpoints else "",
    "walls": lambda p: walls.text(p.walls),
    "parts": lambda p: estimate.parts_text(p.estimate, [m.result for m in p.measured if m.rule == RuleId.MOCK_DATA]),
    "ladder": lambda p: ladder.text(p.ladder) if p.ladder else "",
    "more-gpus": _more_gpus,
    "next-best": _next_best,
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
"""The sections of a plan in their order, each empty where a plan has none; `--section` takes their names."""
