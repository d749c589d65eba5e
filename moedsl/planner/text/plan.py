"""Print all of a plan, section by section; `text/page.py` prints what fits on a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from attrs import evolve

from moedsl.facts.adapter import OF_MLP
from moedsl.facts.axes import ATTENTION, AXES, EXPERTS, pairs, show
from moedsl.facts.common import COMMON
from moedsl.facts.symbols import VLM_WORDS
from moedsl.facts.versions import as_number
from moedsl.planner.experiment import summary, unstated
from moedsl.planner.memory_verdict import bounds_text
from moedsl.planner.model.decisions import Alternative
from moedsl.planner.model.estimate import MEMORY, Interval, Stage
from moedsl.planner.model.plan import Layout, Need, Plan, SamplesPlan
from moedsl.planner.model.sections import Checkpoints, Racks
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
    from moedsl.planner.text.sections import parts_text

    return parts_text(p)


def _walls(p: Plan) -> str:
    from moedsl.planner.text.sections import walls_text

    return walls_text(p)


def _shipped(p: Plan) -> str:
    if p.shipped is None:
        return ""
    from moedsl.planner.text.sections import shipped_text

    return shipped_text(p, p.shipped)


def _ladder(p: Plan) -> str:
    from moedsl.planner.text.sections import ladder_text

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
