"""Print the sections of a plan: walls, ladder, shipped recipe, the parts of a VLM, and several plans as one table.

Walls have a line each, then the largest loss with the effect of its fixes on this layout. The ladder has what this
phase may change, what the next phase would try, and its predicted gain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from moedsl.facts.axes import SIZES, pairs, show
from moedsl.planner.model.estimate import MEMORY, Freeze, VisionNote
from moedsl.planner.model.plan import Plan
from moedsl.planner.model.sections import (
    BoughtBack,
    Folding,
    Gain,
    Ladder,
    MemoryWall,
    Mfu,
    NextPhase,
    Note,
    Opened,
    ShippedRecipe,
    Try,
    Walls,
)
from moedsl.rules.ids import RuleId
from moedsl.support.json_form import ABSENT, Absent
from moedsl.support.text import counted, table, tokens, wrapped

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
