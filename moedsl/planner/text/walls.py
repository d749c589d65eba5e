"""Print the Three Walls: a line for each, then the largest loss with the effect of its fixes on this layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from moedsl.facts.axes import show
from moedsl.planner.model.plan import Plan
from moedsl.planner.model.walls import BoughtBack, MemoryWall, Mfu, Note, Try, Walls
from moedsl.support.text import wrapped

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
