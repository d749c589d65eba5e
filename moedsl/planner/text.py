"""Print all of a plan, section by section, and several plans as one table; `page.py` prints what fits on a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve

from moedsl.facts.axes import ATTENTION, AXES, EXPERTS, SIZES, pairs, show
from moedsl.facts.common import COMMON
from moedsl.facts.fine_tuning import OF_MLP
from moedsl.facts.releases import as_number
from moedsl.facts.symbols import VLM_WORDS
from moedsl.planner.checkpoints import Checkpoints
from moedsl.planner.estimate import Freeze, Interval, VisionNote
from moedsl.planner.experiment import summary, unstated
from moedsl.planner.ladder import Folding, Gain, Ladder, NextPhase, Opened
from moedsl.planner.layout import Layout, SamplesPlan
from moedsl.planner.memory import MEMORY, Stage, bounds_text
from moedsl.planner.other_layouts import Alternative, ShippedRecipe
from moedsl.planner.plan import Need, Plan
from moedsl.planner.racks import Racks
from moedsl.planner.walls import BoughtBack, MemoryWall, Mfu, Note, Try, Walls
from moedsl.rules.stdlib import RuleId
from moedsl.support.json_form import ABSENT, Absent
from moedsl.support.text import counted, duration, short, size, table, tokens, wrapped


def plan_text(p: Plan) -> str:
    """Print all of one plan: the layout, then its memory, its speed, and the reasons."""
    parts = [head(p), *(text(p) for text in SECTIONS.values())]
    return "\n\n".join(part for part in parts if part) + "\n"


def head(p: Plan) -> str:
    """Name the run, its model, its GPUs and what it is for."""
    task = "" if p.task == "pretrain" else f", {p.task}"
    what = f"{p.model} on {p.gpus} {p.hardware}, {tokens(p.batch.seq)} tokens"
    return f"{p.name}: {what}, {p.phase} first{task}"


def _experiment(p: Plan) -> str:
    """Print the values to keep equal between runs, and those that make this run a benchmark."""
    e = p.experiment
    lines = [f"Experiment {e.fingerprint}: keep these equal between runs that you compare", wrapped(summary(e))]
    lines += [wrapped(f"from defaults and rules, not from the run file: {unstated(e)}")] if unstated(e) else []
    lines += [wrapped(f"BENCHMARK ONLY, {b.name} {show(b.value)}: {b.because}") for b in e.benchmark]
    return "\n".join(lines)


def meshes(m: Layout) -> dict[str, str]:
    """Write both meshes, and the layers of each stage if they do not divide evenly."""
    shapes = (a.name for a in AXES if a.role == "shape" and a.section == "layout" and a.is_on(getattr(m, a.name)))
    attention = ", ".join([_product(m, ATTENTION), *(f"{n} {getattr(m, n)}" for n in shapes)])
    layers = {"layers": m.pipeline_layout} if m.pipeline_layout else {}
    return {"attention": attention, "experts": _product(m, EXPERTS), **layers}


def _meshes(p: Plan) -> str:
    return "Meshes\n" + "\n".join(f"  {name:<9}  {mesh}" for name, mesh in meshes(p.layout).items())


def _product(m: Layout, names: Sequence[str]) -> str:
    return " x ".join(f"{n} {getattr(m, n)}" for n in names)


def batch(p: Plan) -> str:
    """Write what a step trains on."""
    b = p.batch
    step = f"{counted(b.global_batch, 'sequence')} ({b.global_batch * b.seq / 2**20:.3g} Mi tokens) a step"
    micro = f"{counted(b.num_microbatches, 'microbatch')} of {b.micro_batch}"
    return f"{step}: {micro} on {'each of ' * (p.layout.dp > 1)}{counted(p.layout.dp, 'replica')}"


def racks(r: Racks) -> str:
    """Write which groups stay in a rack, in one line."""
    inside = "every expert group is in one" if r.expert_groups_inside == r.expert_groups else (
        f"{r.expert_groups - r.expert_groups_inside} of {r.expert_groups} expert groups cross racks"
    )  # fmt: skip
    crossing = [f"{a.axis} is on {a.racks}" for a in r.axes if a.racks > 1]
    crosses = f"; a group of {', '.join(crossing)}" if crossing else ""
    return f"{r.racks} of {counted(r.nodes_per_rack, 'node')} each: {inside}{crosses}"


def _racks(p: Plan) -> str:
    r = p.racks
    if r is None:
        return ""
    rails = f"; {counted(r.rails, 'rail')} of each node" if r.rails else ""
    rows = [("axis", "ranks", "racks", *(["rails"] if r.rails else []))]
    rows += [(a.axis, str(a.size), str(a.racks), *([str(a.rails)] if r.rails else [])) for a in r.axes]
    used = f"the job takes {r.nodes_used} of {counted(r.nodes_per_rack, 'node')} in each{rails}"
    return "\n".join(["Racks", wrapped(racks(r)), wrapped(used), *table(rows, "l")])


def _batch(p: Plan) -> str:
    lines = [f"Batch\n  {batch(p)}"]
    lines += [wrapped(p.batch.against_4k.text)] if p.batch.against_4k else []
    return "\n".join(lines)


def _short_twin(p: Plan) -> str:
    """Print the differences of a long run from the same run at 4K tokens."""
    if p.against_4k is None:
        return ""
    changed = p.against_4k.changes
    lines = table([(c.name, f"{show(c.here)}, at 4k {show(c.at_4k)}") for c in changed], "l")
    return "Differs from the plan at 4k\n" + "\n".join(lines)


def policy(p: Plan) -> list[str]:
    """List the policies with their values; quiet ones only if they are on."""
    q = p.policy
    policies = sorted((a for a in AXES if a.section == "policy"), key=lambda a: (a.quiet, a.place, a.role != "moved"))
    words = [a for a in policies if not a.quiet or (a.kind != "flag" and a.is_on(getattr(q, a.name)))]
    flags = [n for n in VLM_WORDS if getattr(q, n)] + [
        a.name for a in policies if a.quiet and a.kind == "flag" and getattr(q, a.name)
    ]
    return [*(f"{a.name} {show(getattr(q, a.name))}" for a in words), *flags]


def _policy(p: Plan) -> str:
    return f"Policy\n  {', '.join(policy(p))}"


def _samples(p: Plan) -> str:
    lines = samples(p)
    return "\n".join(["Samples", *map(wrapped, lines)]) if lines else ""


def samples(p: Plan) -> list[str]:
    """Say how samples of a text are read; none for a run that reads none."""
    s, e, seq = p.samples, p.estimate, p.batch.seq
    if s is None:
        return []
    padded = f", each padded to a multiple of {s.multiple} tokens" if s.multiple > 1 else ""
    packed = f"packed: as many in a sequence of {seq:,} tokens as fit{padded}"
    lines = [packed if s.pack else f"one in a sequence, padded to {seq:,} tokens"]
    if s.per_sequence is None:
        return [*lines, f"their lengths are not stated, so the speed counts padding: {_measures(p, s)}"]
    held = f"{s.per_sequence:.1f} in a sequence, {s.per_sequence * p.batch.global_batch:,.0f} in a step"
    share = f"{e.useful_share:.0%} of the tokens are theirs, {e.useful_tokens_per_s_per_gpu:,.0f} tokens/s/GPU"
    cut = sum(n > seq for n in s.lengths) / len(s.lengths)
    lost = [f"{cut:.0%} of them are longer than a sequence, and Bridge cuts their ends"] if cut else []
    return [*lines, f"{held}; {share}", *lost]


def _measures(p: Plan, s: SamplesPlan) -> str:
    """What measures the lengths of the samples."""
    if s.source == "hf":  # bridge data/builders/gpt_sft.py:325
        return (
            "Bridge makes a `training.jsonl` of the data set when training starts, and its log names the path; "
            "`moedsl data stats` measures that file"
        )
    return f"`moedsl data stats {p.policy.data.rstrip('/')}/training.jsonl` measures them"


_OF_EXPERTS = {
    "shared": "one adapter for all experts of a layer",
    "each": "one adapter for each expert",
    "outer": "one adapter for each expert, whose side at the hidden state all share",
    "none": "none on routed experts",
}


def _adapter(p: Plan) -> str:
    a = p.adapter
    if a is None:
        return ""
    rank = f"{a.method} of rank {a.rank}, alpha {a.alpha}" + (f", dropout {a.dropout:g}" if a.dropout else "")
    rest = [", ".join(a.targets), *([_OF_EXPERTS[a.experts]] if not {*a.targets}.isdisjoint(OF_MLP) else [])]
    rest += ["experts have the rank over the experts of a token"] if a.normalized else []
    trained = (
        f"{a.params / 1e6:,.1f}M parameters are trained, {100 * a.share:.2g}% of the model; all weights are frozen"
    )
    return "\n".join(["Adapter", wrapped(f"{rank}: {'; '.join(rest)}"), wrapped(trained)])


def _memory(p: Plan) -> str:
    m = p.estimate.memory
    share = 100 * m.peak_gib / m.visible_gib
    # Print a table with a line for each run of equal stages
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for first, last, s in _runs(m.stages):
        name = str(first) if first == last else f"{first}-{last}"
        sizes = (f"{getattr(s, k + '_gib'):.1f}" for k in (*MEMORY, "total"))
        rows.append((name, f"{s.params / 1e9:.2f}B", *sizes))
    lines = [
        f"Memory  {m.peak_gib:.1f} of {m.visible_gib:.1f} GiB ({share:.0f}%) on the most loaded rank",
        bounds_text(m),
        "\n".join(table(rows)),
    ]
    return "\n".join(lines)


_COLUMNS = ("stage", "parameters", *MEMORY, "total GiB")


def _runs(stages: Sequence[Stage]) -> Iterable[tuple[int, int, Stage]]:
    groups: list[tuple[int, int, Stage]] = []
    for s in stages:
        if groups and evolve(groups[-1][2], stage=s.stage) == s:
            groups[-1] = (groups[-1][0], s.stage, groups[-1][2])
        else:
            groups.append((s.stage, s.stage, s))
    return groups


def _time(p: Plan) -> str:
    e = p.estimate
    rates = f"{e.tokens_per_s_per_gpu:,.0f} tokens/s/GPU, {e.model_tflops_per_gpu:.0f} model TFLOPS/GPU"
    head = f"Speed  {e.step_time_s:.2f} s a step, {rates}"
    parts = sorted(((v, k) for k, v in e.breakdown.items() if v > 0), reverse=True)
    lines = [f"  {k.replace('_', ' '):<24}{v:8.3f} s {100 * v / e.step_time_s:5.1f}%" for v, k in parts]
    known = [wrapped(_interval(e.interval))] if e.interval else []
    return "\n".join([head, *known, *lines])


def _interval(i: Interval) -> str:
    wider = f", wider because there is {' and '.join(i.unlike)}" if i.unlike else ""
    leans = ", ".join(f"{n.constant} ({n.moves:.0%})" for n in i.leans_on)
    leaning = f"; leans on {leans}" if leans else ""
    return f"{i.lower_s:.2f} to {i.upper_s:.2f} s in nine of ten runs{wider}{leaning}"


def goodput(c: Checkpoints, steps: int = 0) -> str:
    """Write the share of time that trains, in one line; a run of fewer `steps` than an interval saves at its end."""
    every = f"every {counted(c.interval_steps, 'step', ',d')}"
    if not c.saved:
        return f"nothing is saved; {c.goodput.trains:.1%} with {size(c.size_gb)} {every}"
    every = "once, at the end" if 0 < steps <= c.interval_steps else every
    validates = f"validation takes {c.goodput.validates:.1%}, " if c.goodput.validates else ""
    fails = f"failures every {duration(c.failure_every_s)}"
    return f"{c.goodput.trains:.1%}: {validates}{size(c.size_gb)} saved {every}, {fails}"


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
    e, (share, counts) = p.estimate, _counted(p.checkpoints) if p.checkpoints else (1.0, "")
    needs = n / share
    known = f" ({duration(needs * i.lower_s)} to {duration(needs * i.upper_s)})" if (i := e.interval) else ""
    whose = "" if p.train_steps else ", Bridge's default"
    held = p.samples and p.samples.per_sequence
    read = f"; {held * p.batch.global_batch * n:,.0f} samples" if held else ""
    return f"{counted(n, 'step', ',d')}{whose}: {duration(needs * e.step_time_s)}{known} {counts}".rstrip() + read


def _counted(c: Checkpoints) -> tuple[float, str]:
    """The share of a length that trains, and what the rest of it is."""
    g = c.goodput
    jobs = ", without the starts and ends of the jobs of its chain" if c.chain else ""
    if c.saved:
        return g.trains, f"with {'validation, ' if g.validates else ''}saves and failures{jobs}"
    share, validates = (g.trains / (g.trains + g.validates), "with validation, ") if g.validates else (1.0, "")
    return share, f"{validates}without a failure: nothing is saved"


def shares(c: Checkpoints) -> str:
    """Write what a month is spent on."""
    g = c.goodput
    validates = f"{g.validates:.1%} validates, " if g.validates else ""
    lost = f"{g.saves:.1%} waits for saves, {g.repeats:.1%} repeats lost steps, {g.returns:.1%} returns from failures"
    return f"of a month, {g.trains:.1%} trains, {validates}{lost}"


def _local(c: Checkpoints) -> list[str]:
    n = c.local
    if n is None:
        return []
    every = f"every {counted(n.interval_steps, 'step', ',d')} {size(n.node_gb)} of each node in {n.folder}"
    return [f"{every}: training waits {duration(n.blocked_s)}, and {n.share:.0%} of failures return there"]


def _load(c: Checkpoints) -> str:
    """Write the time of a load; with saves on the nodes, most returns do not load from the shared file system."""
    if c.local is None:
        return f", {duration(c.load_s)} of that to load"
    return f" on average; a load from the shared file system takes {duration(c.load_s)}"


def _checkpoints(p: Plan) -> str:
    c = p.checkpoints
    if c is None:
        return ""
    waits = f"training waits {duration(c.blocked_s)}, and it can be returned to after {duration(c.write_s)}"
    how = "in the background" if c.async_save else "while training waits"
    disk = "all stay" if c.kept is None else f"{c.kept} stay and one is written: {size(c.kept_gb or 0.0)}"
    lines = [
        f"one is {size(c.size_gb)}, {c.bytes_per_parameter:.1f} bytes a parameter, written {how}: {waits}",
        f"every {counted(c.interval_steps, 'step', ',d')}, {duration(c.interval_s)}: {c.because}; {disk}",
        *_local(c),
        f"a failure every {duration(c.failure_every_s)} on {p.gpus} GPUs, {duration(c.return_s)} to return{_load(c)}",
        shares(c),
    ]
    lines += [] if c.saved else ["the recipe saves none: mock data needs no checkpoints, and a run may set none"]
    return "\n".join(["Checkpoints", *map(wrapped, lines)])


def _parts(p: Plan) -> str:

    return parts_text(p)


def _walls(p: Plan) -> str:

    return walls_text(p)


def _shipped(p: Plan) -> str:
    if p.shipped is None:
        return ""

    return shipped_text(p, p.shipped)


def _ladder(p: Plan) -> str:

    return ladder_text(p)


def _needs(p: Plan) -> str:
    """Print the container that the run needs: the least version of each product, with its reason."""
    least: dict[str, Need] = {}
    for n in p.needs:
        if n.product not in least or as_number(n.at_least) > as_number(least[n.product].at_least):
            least[n.product] = n
    lines = [wrapped(f"{n.product} {n.at_least} or later: {n.because} ({n.rule})") for n in least.values()]
    return "Container\n" + "\n".join(lines) if lines else ""


def _covers(p: Plan) -> str:
    e = p.estimate
    return f"What the estimates cover\n{wrapped(e.memory.covers)}\n{wrapped(e.covers.step_time)}"


def _steps(p: Plan) -> str:
    if not p.steps:
        return ""
    lines = [
        f"  {s.gpus} GPUs: {s.step_time_s:.2f} s a step, {s.speedup:.2f}x as fast{_with(s.changes)}" for s in p.steps
    ]
    return "More GPUs, same batch\n" + "\n".join(lines)


def _with(changes: Mapping[str, Any]) -> str:
    return f", with {pairs(changes)}" if changes else ""


def _decisions(p: Plan) -> str:
    settings = (d for d in p.decisions if d.name not in p.env)
    rows = [(d.name, show(d.value), d.origin + " (advice)" * bool(d.advice), d.told) for d in settings]
    return "Decisions\n" + "\n".join(table(rows, "l"))


def _environment(p: Plan) -> str:
    rows = [(d.name, show(d.value), d.because or "") for d in p.decisions if d.name in p.env]
    return "Environment\n" + "\n".join(table(rows, "l")) if rows else ""


def _advice(p: Plan) -> str:
    """Print the advice that is not followed with the cost of following it, then the rest in one paragraph."""
    lines = [f"  not followed  {a.rule}: {a.because}; following it: {a.cost}" for a in p.advice if not a.followed]
    lines += [f"  allowed       {a.rule}: {a.because or 'no reason given'}" for a in p.allowed]
    followed = [short(a.rule) for a in p.advice if a.followed]
    lines += [wrapped(f"followed or not applicable: {', '.join(followed)}")] if followed else []
    return "Advice\n" + "\n".join(lines) if lines else ""


def _measured(p: Plan) -> str:
    lines = [wrapped(f"{m.result}: {m.because} ({'; '.join(m.cite)})") for m in p.measured]
    return "Measured on a similar run\n" + "\n".join(lines) if lines else ""


def _alternatives(p: Plan) -> str:
    others = [*([p.rebalanced] if p.rebalanced else []), *p.alternatives]
    lines = [f"  {pairs(a.changes)}: {a.against_plan}{_against(a)}" for a in others]
    return "Next best\n" + "\n".join(lines) if lines else ""


def _against(alternative: Alternative) -> str:
    rules = [short(r) for r in alternative.against_advice]
    return f" (against {', '.join(rules)})" if rules else ""


SECTIONS: Mapping[str, Callable[[Plan], str]] = {
    "meshes": _meshes,
    "racks": _racks,
    "batch": _batch,
    "policy": _policy,
    "samples": _samples,
    "adapter": _adapter,
    "memory": _memory,
    "speed": _time,
    "decisions": _decisions,
    "environment": _environment,
    "experiment": _experiment,
    "checkpoints": _checkpoints,
    "walls": _walls,
    "parts": _parts,
    "ladder": _ladder,
    "more-gpus": _steps,
    "next-best": _alternatives,
    "nvidia": _shipped,
    "at-4k": _short_twin,
    "advice": _advice,
    "measured": _measured,
    "container": _needs,
    "covers": _covers,
}
"""The sections of a plan in their order; `--section` takes their names."""


KINDS = {
    "ep": "expert", "tp": "tensor", "cp": "context", "dp": "data", "pp": "pipeline",
    "matrix": "matrix products", "attention": "attention", "scan": "scan", "passes": "passes over memory",
    "vision": "vision tower", "optimizer": "optimizer",
}  # fmt: skip
"""The words for the parts of a step."""
SMALL = 0.005
"""Smaller shares are left out of a list."""


def walls_text(p: Plan) -> str:
    """Print the section `Walls` of a plan."""
    w = p.walls
    wires = w.communication
    lines = [
        f"  memory         {w.memory.share:6.1%} of capacity at the peak{_bought(w.memory)}",
        f"  communication  {wires.share:6.1%} of the step exposed{listed(wires.shares)}",
        f"  host           {w.host.share:6.1%} of the step waits for launches",
        f"  compute        {w.compute.share:6.1%} of the step{listed(w.compute.shares)}",
        f"  {_dominant(w)}",
        *_fixes(w),
        *(_note(n) for n in w.notes),
    ]
    return "Walls\n" + "\n".join([*lines, *_mfu(w.mfu)])


def _bought(m: MemoryWall) -> str:
    """Print what saves memory, and the share of the step that it costs."""
    each = [f"{_by(b)} saves {b.gib:.1f} GiB" for b in m.bought_back if b.gib >= 0.05]
    graphs = [f"CUDA graphs hold {m.graphs_gib:.1f} GiB"] if m.graphs_gib >= 0.05 else []
    paid = [f"this costs {m.paid:.1%} of the step"] if m.paid >= SMALL / 10 else []
    return "".join(f"; {text}" for text in [*each, *paid, *graphs])


def _by(b: BoughtBack) -> str:
    value = b.value
    if b.by == "sharding":
        return "FSDP" if value == "fsdp" else "the distributed optimizer"
    return f"{b.by} {'+'.join(value) if isinstance(value, list) else value}"


def listed(shares: Mapping[str, float], most: int | None = None) -> str:
    """Print the parts that matter, the largest first, at most so many."""
    parts = sorted(((s, k) for k, s in shares.items() if s >= SMALL), reverse=True)[:most]
    return "".join(f"{': ' if i == 0 else ', '}{KINDS[k]} {s:.1%}" for i, (s, k) in enumerate(parts))


def _dominant(w: Walls) -> str:
    lost = {"memory": w.memory.paid, "communication": w.communication.share, "host": w.host.share}.get(w.dominant)
    largest = f"largest loss: {w.dominant}, {lost:.1%} of the step" if lost is not None else "no large loss: compute"
    if w.usual is None:
        return largest
    if w.usual.says == w.dominant:
        return f"{largest}, as is usual on this hardware"
    return f"{largest}; usual on this hardware: {w.usual.says}"


def _fixes(w: Walls) -> Iterator[str]:
    """Print the wall's fixes, and the effect of those that help here."""
    table = w.fixes.get(w.dominant)
    if table is None:
        return
    yield wrapped((table.fix or "").replace("`", ""), "    ")
    helpful = [h for h in table.here if h.helps]
    yield from _effects(helpful)
    yield from _effects([h for h in table.here if _blocked(h)])
    if not helpful:
        yield "    none of these alone helps this layout"


def _blocked(h: Try) -> bool:
    """Whether a law refuses a policy. A refused size is not worth a line."""
    return "refused" in h.against_plan and (isinstance(h.value, str | list | bool))


def _effects(here: Sequence[Try]) -> Iterator[str]:
    for h in here:
        experiment = " (changes the experiment)" if h.changes == "experiment" else ""
        yield f"    {h.axis}={show(h.value)}: {h.against_plan}{experiment}"


def _note(n: Note) -> str:
    return wrapped(f"{n.says}: {n.because}")


def _mfu(mfu: Mfu) -> Iterator[str]:
    if mfu.precision != "bf16":
        yield f"  MFU {mfu.share:.1%} of the {mfu.precision} peak, {mfu.of_bf16:.1%} of the bf16 peak"


NAMES = {"throughput": "retune (throughput first)"}


def ladder_text(p: Plan) -> str:
    """Print the section `Ladder` of a plan; empty for a plan without one."""
    if p.ladder is None:
        return ""
    return "Ladder\n" + "\n".join(_ladder_lines(p.ladder))


def _ladder_lines(ladder: Ladder) -> Iterator[str]:
    what = ladder.ranks_by.because if ladder.open else "nothing to choose"
    yield wrapped(f"{_name(ladder.phase)}: {what}", "  ", "    ")
    if ladder.from_:
        yield f"  since {_name(ladder.from_.phase or '')}: {_gain(ladder.from_)}"
    for verb, opened in (("may change", ladder.open), ("holds", ladder.held)):
        # Group axes by the rule that opens or holds them
        out: dict[str, list[Opened]] = {}
        for entry in opened:
            out.setdefault(_because(entry), []).append(entry)
        for because, entries in out.items():
            axes = "; ".join(_entry(e) for e in entries)
            yield wrapped(f"{verb} {axes} ({because})", "    ", "      ")
    for step in ladder.next:
        yield from _step(step)
    yield from _folding(ladder.folding)
    for note in ladder.notes:
        yield wrapped(f"{note.says}: {note.because}", "  ", "    ")


def _name(phase: str) -> str:
    return NAMES.get(phase, phase)


def _entry(entry: Opened) -> str:
    """Print an axis, with its values if a rule lists them."""
    return f"{entry.axis} {_values(entry)}" if entry.advice else entry.axis


def _because(entry: Opened) -> str:
    return f"advice: {entry.because}" if entry.advice else entry.because or ""


def _values(entry: Opened) -> str:
    return ", ".join(map(show, entry.values))


def _step(step: NextPhase) -> Iterator[str]:
    """Print one later phase."""
    if not step.solved:
        yield f"  next {_name(step.phase)}: no layout fits"
        return
    if step.phase == "profile":
        yield "  next profile: this layout, unchanged, with the profiler on for a few steps"
        return
    opens = "; ".join(f"{o.axis} {_values(o)}" for o in step.opens) or "nothing new"
    yield wrapped(f"next {_name(step.phase)} may also try {opens}", "  ", "    ")
    yield f"    predicted: {_gain(step)}"


def _gain(step: Gain | NextPhase) -> str:
    changes = pairs(step.changes or {})
    with_ = f" with {changes}" if changes else ", nothing changed"
    speed = f"{step.step_time_s or 0:.2f} s a step, {step.speedup or 0:.2f}x as fast"
    return f"{speed}, {step.peak_gib or 0:.1f} GiB{with_}"


def _folding(folding: Folding) -> Iterator[str]:
    shared = folding.shared_mesh
    if shared is ABSENT:
        return
    if shared is None:
        yield "  parallel folding: no layout with one mesh for attention and experts fits"
        return
    slower = (1 / shared.speedup - 1) * 100
    yield f"  parallel folding: one mesh for attention and experts would be {slower:+.1f}% step time"


def shipped_text(p: Plan, r: ShippedRecipe) -> str:
    """Print its name, its layout, both predictions, and the command that shows the differences."""
    return "\n".join([f"NVIDIA's recipe  {r.name}", *(wrapped(line, rest="    ") for line in _lines(p, r))])


def _lines(p: Plan, r: ShippedRecipe) -> Iterator[str]:
    yield f"layout: {pairs(r.layout)}"
    yield _compared(p, r)
    if r.written_for:
        yield f"written for {pairs(r.written_for)}"
    if r.others:
        yield f"{counted(len(r.others), 'other recipe')} for this model on {p.gpus} {p.hardware}: {', '.join(r.others)}"
    if r.changes:
        yield f"moedsl diff FILE --like {r.name}"


def _compared(p: Plan, r: ShippedRecipe) -> str:
    """Write the prediction of the recipe's layout and that of the plan."""
    if r.step_time_s is None or r.peak_gib is None:
        return f"refused in this run by {r.refused_by}: {r.because}"
    if not r.changes:
        return "this plan has its layout"
    e = p.estimate
    here = f"{e.step_time_s:.2f} s a step, {e.memory.peak_gib:.1f} GiB, {e.memory.verdict}"
    theirs = f"{r.step_time_s:.2f} s a step ({r.against_plan}), {r.peak_gib:.1f} GiB, {r.verdict}"
    return f"at this run's batch {theirs}; this plan {here}"


def parts_text(p: Plan) -> str:
    """Print the section `Parts` of a VLM's plan; empty for a text model."""
    e = p.estimate
    if e.parts is None:
        return ""
    rate, share = e.useful_tokens_per_s_per_gpu, 100 * e.useful_share
    head = f"Parts  {rate:,.0f} useful tokens/s/GPU: {share:.1f}% of a sequence trains the decoder, the rest is image"
    # Print GiB on a rank of the first stage, and seconds a step
    rows: list[tuple[str, ...]] = [("part", "parameters", *MEMORY, "total GiB", "s a step", "share")]
    for part in e.parts:
        sizes = (f"{getattr(part, f'{k}_gib'):.2f}" for k in (*MEMORY, "total"))
        time = (f"{part.time_s:.3f}", f"{100 * part.share:.1f}%")
        rows.append((part.part, f"{part.params / 1e9:.2f}B", *sizes, *time))
    lines = [head, *_mock(p), *table(rows), *_vision_note(e.vision_note)]
    return "\n".join([*lines, *map(_frozen, e.freeze or ())])


def _mock(p: Plan) -> list[str]:
    """Print the rule on mock data, if it applies."""
    return [wrapped(f"data is mock: {m.result}") for m in p.measured if m.rule == RuleId.MOCK_DATA]


def _vision_note(note: VisionNote | Absent | None) -> list[str]:
    if note is None or note is ABSENT:
        return []
    text = f"{100 * note.share:.0f}% of the step is vision: {note.because}; {note.fix}"
    return [wrapped(text)]


def _frozen(f: Freeze) -> str:
    """Print the gain from freezing a part."""
    verb = "buys" if f.frozen else "would buy"
    return f"  {f.name} {verb}: {f.effect}"


def runs_text(plans: Sequence[Plan], width: int) -> str:
    """Print what all runs have in common, then a line for each with the rest, its speed, memory and verdict."""
    each = [_given(p) for p in plans]
    common = {k: v for k, v in each[0].items() if all(e[k] == v for e in each)}
    names = [k for k in each[0] if k not in common]
    rows = [(p.name, *(e[k] for k in names), *_figures(p)) for p, e in zip(plans, each, strict=True)]
    heads = ("run", *names, "s a step", "tokens/s/GPU", "GiB", "verdict")
    lines = table([heads, *rows], "l" + "r" * (len(heads) - 2) + "l")
    shared = ", ".join(f"{k}\xa0{v}" for k, v in common.items())  # a line ends between two of them
    shared = [wrapped(shared, f"{len(plans)} runs: ", "  ", width).replace("\xa0", " ")]
    return "\n".join([*shared, *lines]) + "\n"


def _given(p: Plan) -> dict[str, str]:
    """What runs of a file may have in common."""
    sizes = {n: str(getattr(p.layout, n)) for n in SIZES}
    return {"model": p.model, "hardware": p.hardware, "GPUs": str(p.gpus), "length": tokens(p.batch.seq), **sizes}


def _figures(p: Plan) -> tuple[str, ...]:
    e = p.estimate
    rate = f"{e.useful_tokens_per_s_per_gpu:,.0f}"
    return f"{e.step_time_s:.2f}", rate, f"{e.memory.peak_gib:.1f}", e.memory.verdict
