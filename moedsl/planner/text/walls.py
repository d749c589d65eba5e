"""The Three Walls as text: a line for each, the dominant one last, with what its fixes would do to this layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from moedsl.planner.model.plan import Plan
from moedsl.planner.model.walls import BoughtBack, MemoryWall, Mfu, Note, Try, Walls
from moedsl.schema.axes import said
from moedsl.support.text import wrapped

_NAMES = {
    "ep": "expert", "tp": "tensor", "cp": "context", "dp": "data", "pp": "pipeline",
    "matrix": "matrix products", "attention": "attention", "scan": "scan", "passes": "passes over memory",
    "vision": "vision tower", "optimizer": "optimizer",
}  # fmt: skip
SMALL = 0.005
"""Shares below this are left out of a list."""


def walls_text(p: Plan) -> str:
    """The section `Walls` of a plan."""
    w = p.walls
    wires = w.communication
    lines = [
        f"  memory         {w.memory.share:6.1%} of capacity at the peak{_bought(w.memory)}",
        f"  communication  {wires.share:6.1%} of the step exposed{_listed(wires.shares)}",
        f"  host           {w.host.share:6.1%} of the step waits for launches",
        f"  compute        {w.compute.share:6.1%} of the step{_listed(w.compute.shares)}",
        f"  {_dominant(w)}",
        *_fixes(w),
        *(_note(n) for n in w.notes),
    ]
    return "Walls\n" + "\n".join([*lines, *_mfu(w.mfu)])


def _bought(m: MemoryWall) -> str:
    """What holds memory back, and for how much of the step."""
    each = [f"{_by(b)} buys back {b.gib:.1f} GiB" for b in m.bought_back if b.gib >= 0.05]
    graphs = [f"CUDA graphs hold {m.graphs_gib:.1f} GiB"] if m.graphs_gib >= 0.05 else []
    paid = [f"{m.paid:.1%} of the step is paid for it"] if m.paid >= SMALL / 10 else []
    return "".join(f"; {text}" for text in [*each, *paid, *graphs])


def _by(b: BoughtBack) -> str:
    value = b.value
    if b.by == "sharding":
        return "FSDP" if value == "fsdp" else "the distributed optimizer"
    return f"{b.by} {'+'.join(value) if isinstance(value, list) else value}"


def _listed(shares: Mapping[str, float]) -> str:
    """The parts that matter, the largest first."""
    parts = sorted(((s, k) for k, s in shares.items() if s >= SMALL), reverse=True)
    return "".join(f"{': ' if i == 0 else ', '}{_NAMES[k]} {s:.1%}" for i, (s, k) in enumerate(parts))


def _dominant(w: Walls) -> str:
    usual = w.usual
    if usual is None:
        beside = ""
    elif usual.says == w.dominant:
        beside = ", as is usual on this hardware"
    else:
        beside = f"; usual on this hardware: {usual.says}"
    return f"dominant: {w.dominant}{beside}"


def _fixes(w: Walls) -> Iterator[str]:
    """What the wall's fixes are, and those that help here with what they would do."""
    table = w.fixes.get(w.dominant)
    if table is None:
        return
    yield wrapped((table.fix or "").replace("`", ""), "    ")
    helpful = [h for h in table.here if h.helps]
    yield from _effects(helpful)
    yield from _effects([h for h in table.here if _blocked(h)])
    if not helpful:
        yield "    on this layout no single one of them helps"


def _blocked(h: Try) -> bool:
    """Whether a law keeps a policy away; that a size has no legal neighbour is no news."""
    return "refused" in h.against_plan and (isinstance(h.value, str | list | bool))


def _effects(here: Sequence[Try]) -> Iterator[str]:
    for h in here:
        experiment = " (changes the experiment)" if h.changes == "experiment" else ""
        yield f"    {h.axis}={said(h.value)}: {h.against_plan}{experiment}"


def _note(n: Note) -> str:
    return wrapped(f"{n.says}: {n.because}")


def _mfu(mfu: Mfu) -> Iterator[str]:
    if mfu.precision != "bf16":
        yield f"  MFU {mfu.share:.1%} of the {mfu.precision} peak, {mfu.of_bf16:.1%} of the bf16 peak"
