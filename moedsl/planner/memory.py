"""The bounds of a plan's memory: low, best and high case, memory outside torch, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from moedsl.cost import StageMemory
from moedsl.cost.estimate import Bounds, Spread
from moedsl.cost.memory import KINDS, OutsidePart
from moedsl.facts import axes
from moedsl.facts.units import GIB
from moedsl.solver.laws import Row
from moedsl.solver.solve import Chosen
from moedsl.support.json_form import JsonForm
from moedsl.support.text import wrapped

MEMORY = ("weights", "gradients", "optimizer", "activations", "buffers")
"""What memory holds, as `Stage` and `Part` have it in GiB."""


@frozen
class Stage(JsonForm):
    """One pipeline stage on its most loaded rank."""

    stage: int
    """Position in the pipeline, from 0."""
    layers: Mapping[str, int]
    """Number of layers by kind."""
    params: int
    """Parameters on a rank."""
    expert_params: int
    """Parameters of routed experts among these."""
    weights_gib: float
    gradients_gib: float
    optimizer_gib: float
    activations_gib: float
    buffers_gib: float
    total_gib: float


@frozen
class Range(JsonForm):
    """A term that is known only within bounds."""

    name: str
    lower_gib: float
    """Low case, GiB; of an uncertain term relative to its best estimate."""
    upper_gib: float
    """High case, GiB."""
    because: str


@frozen
class Outside(JsonForm):
    """Memory that torch does not allocate: CUDA, NCCL, DeepEP."""

    lower_gib: float
    upper_gib: float
    parts: tuple[Range, ...]


@frozen
class CertainLayout(JsonForm):
    """The best layout that FITS."""

    changes: Mapping[str, Any]
    """Axes that differ from the plan, with their values."""
    peak_gib: float
    step_time_s: float
    against_plan: str


@frozen
class Certain(JsonForm):
    """The best layout that FITS, for a plan that is TIGHT."""

    within: float | None
    """How much longer its step may be, as a share; null if every layout was tried."""
    layout: CertainLayout | None


@frozen
class Faster(JsonForm):
    """The faster layout that `risk oom` chooses."""

    changes: Mapping[str, Any]
    """Axes that differ from the plan, with their values."""
    peak_gib: float
    lower_gib: float
    """Low case of all memory on the GPU."""
    upper_gib: float
    """High case of all memory on the GPU: more than it has."""
    step_time_s: float
    against_plan: str
    statement: str
    """What the run file has to state."""


@frozen
class Memory(JsonForm):
    """The memory of the most loaded rank, GiB."""

    peak_gib: float
    """Best estimate of the peak."""
    capacity_gib: float
    """Memory of the GPU by its data sheet; a plan counts with `visible_gib`."""
    stages: tuple[Stage, ...]
    covers: str
    """What the estimate includes."""
    lower_gib: float
    """Low case of the peak, with memory outside torch."""
    upper_gib: float
    """High case of the peak, with memory outside torch."""
    visible_gib: float
    """Memory that the driver shows, in which all memory on the GPU must fit; the page prints it."""
    verdict: str
    """FITS, TIGHT or DOES NOT FIT."""
    because: str
    unknown: tuple[Range, ...]
    """Uncertain terms."""
    unused_gib: float
    """Memory that torch's allocator holds unused in the high case."""
    outside: Outside
    certain: Certain | None = None
    """Only for a plan that is TIGHT."""
    faster: Faster | None = None
    """Only for a plan that FITS."""

    @property
    def worst_gib(self) -> float:
        """The high case of all memory on the GPU: in torch, unused in its allocator, and outside."""
        return self.upper_gib + self.unused_gib + self.outside.upper_gib


def memory(chosen: Chosen, row: Row, b: Bounds, certain: Certain | None, faster: Faster | None) -> Memory:
    """Estimate the memory of the most loaded rank and of each stage."""
    cost = chosen.cost
    return Memory(
        peak_gib=row.peak_memory / GIB,
        capacity_gib=chosen.problem.program.hardware.memory / GIB,
        stages=tuple(_stage(s) for s in cost.memory_report(row.codes)),
        covers=cost.covers["memory"],
        lower_gib=b.least / GIB,
        upper_gib=b.most / GIB,
        visible_gib=b.visible / GIB,
        verdict=b.verdict,
        because=b.because,
        unknown=tuple(map(_range, b.spread)),
        unused_gib=b.unused / GIB,
        outside=Outside(b.outside_bytes[0] / GIB, b.outside_bytes[1] / GIB, tuple(map(_range, b.outside))),
        certain=certain,
        faster=faster,
    )


def _stage(s: StageMemory) -> Stage:
    sizes = (getattr(s, k) / GIB for k in (*KINDS, "total"))
    return Stage(s.stage, dict(s.layers), s.params + s.expert_params, s.expert_params, *sizes)


def _range(s: Spread | OutsidePart) -> Range:
    return Range(s.name, s.least / GIB, s.most / GIB, s.because)


def _certain_text(c: Certain | None) -> list[str]:
    """Write what a layout that FITS would cost, for a plan that is TIGHT."""
    if c is None:
        return []
    if c.layout is None:
        near = "" if c.within is None else f" with a step at most {c.within:.0%} longer"
        return [f"no layout of this run FITS{near}"]
    return [f"nearest layout that FITS: {c.layout.against_plan}, with {_changes(c.layout.changes)}"]


def _changes(changes: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {axes.written(value)}" for name, value in changes.items())


def _faster_text(f: Faster | None, visible_gib: float) -> list[str]:
    """Write what a layout that may run out of memory would gain, and the statement that chooses it."""
    if f is None:
        return []
    needs = f"{f.lower_gib:.1f} to {f.upper_gib:.1f} of {visible_gib:.1f} GiB"
    gain = f"{f.step_time_s:.2f} s a step ({f.against_plan}), {needs}, with {_changes(f.changes)}"
    return [f"faster, but may run out of memory: {gain}; `{f.statement}` chooses it"]


def _span(r: Range) -> str:
    low, high = f"{r.lower_gib:.1f}", f"{r.upper_gib:.1f}"
    return low if low == high else f"{low} to {high}"


def bounds_text(m: Memory) -> str:
    """Write the verdict, the uncertain terms, and the memory outside torch."""
    out = m.outside
    parts = ", ".join(f"{p.name} {_span(p)}" for p in out.parts)
    seen = [u for u in m.unknown if max(-u.lower_gib, u.upper_gib) >= 0.05]
    moves = ", ".join(f"{u.name} {u.lower_gib:+.1f} to {u.upper_gib:+.1f}" for u in seen)
    lines = [
        f"{m.verdict}: {m.because}",
        f"{m.lower_gib:.1f} to {m.upper_gib:.1f} GiB: {moves}",
        f"outside torch {out.lower_gib:.1f} to {out.upper_gib:.1f} GiB: {parts}",
        *_certain_text(m.certain),
        *_faster_text(m.faster, m.visible_gib),
    ]
    return "\n".join(wrapped(s, "  ", "    ") for s in lines)
