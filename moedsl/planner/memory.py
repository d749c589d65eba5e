"""The memory of a plan by stage: low, best and high case, memory outside torch, and the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from attrs import evolve, frozen

from moedsl.cost.estimate import Bounds, Spread
from moedsl.cost.memory import KINDS, OutsidePart
from moedsl.facts import axes
from moedsl.facts.units import GIB
from moedsl.solver.laws import Row
from moedsl.solver.solve import Chosen
from moedsl.support.json_form import JsonForm
from moedsl.support.text import table, wrapped

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


def build(chosen: Chosen, row: Row, b: Bounds, certain: Certain | None, faster: Faster | None) -> Memory:
    """Estimate the memory of the most loaded rank and of each stage."""
    cost = chosen.cost
    low, high = b.outside_bytes
    return Memory(
        peak_gib=row.peak_memory / GIB,
        capacity_gib=chosen.problem.program.hardware.memory / GIB,
        stages=tuple(
            Stage(s.stage, dict(s.layers), s.params + s.expert_params, s.expert_params, *sizes)
            for s in cost.memory_report(row.codes)
            for sizes in [[getattr(s, kind) / GIB for kind in (*KINDS, "total")]]
        ),
        covers=cost.covers["memory"],
        lower_gib=b.least / GIB,
        upper_gib=b.most / GIB,
        visible_gib=b.visible / GIB,
        verdict=b.verdict,
        because=b.because,
        unknown=_ranges(b.spread),
        unused_gib=b.unused / GIB,
        outside=Outside(low / GIB, high / GIB, _ranges(b.outside)),
        certain=certain,
        faster=faster,
    )


def _ranges(terms: Iterable[Spread | OutsidePart]) -> tuple[Range, ...]:
    return tuple(Range(t.name, t.least / GIB, t.most / GIB, t.because) for t in terms)


def text(m: Memory) -> str:
    """Print the peak, the verdict with its bounds, and a table with a line for each run of equal stages."""
    share = 100 * m.peak_gib / m.visible_gib
    rows: list[tuple[str, ...]] = [("stage", "parameters", *MEMORY, "total GiB")]
    for _, group in groupby(m.stages, key=lambda s: evolve(s, stage=0)):
        first, *others = group
        name = f"{first.stage}-{others[-1].stage}" if others else str(first.stage)
        sizes = (f"{getattr(first, f'{kind}_gib'):.1f}" for kind in (*MEMORY, "total"))
        rows.append((name, f"{first.params / 1e9:.2f}B", *sizes))
    head = f"Memory  {m.peak_gib:.1f} of {m.visible_gib:.1f} GiB ({share:.0f}%) on the most loaded rank"
    return "\n".join([head, *(wrapped(s, "  ", "    ") for s in _verdict(m)), *table(rows)])


def _verdict(m: Memory) -> Iterator[str]:
    """Write the verdict, the uncertain terms, the memory outside torch, and a layout that is surer or faster."""
    yield f"{m.verdict}: {m.because}"
    seen = [u for u in m.unknown if max(-u.lower_gib, u.upper_gib) >= 0.05]
    moves = ", ".join(f"{u.name} {u.lower_gib:+.1f} to {u.upper_gib:+.1f}" for u in seen)
    yield f"{m.lower_gib:.1f} to {m.upper_gib:.1f} GiB: {moves}"
    spans = [(p.name, f"{p.lower_gib:.1f}", f"{p.upper_gib:.1f}") for p in m.outside.parts]
    parts = ", ".join(f"{name} {low}" if low == high else f"{name} {low} to {high}" for name, low, high in spans)
    yield f"outside torch {m.outside.lower_gib:.1f} to {m.outside.upper_gib:.1f} GiB: {parts}"
    if m.certain and m.certain.layout:
        safe = m.certain.layout
        yield f"nearest layout that FITS: {safe.against_plan}, with {_changes(safe.changes)}"
    elif m.certain:
        near = "" if m.certain.within is None else f" with a step at most {m.certain.within:.0%} longer"
        yield f"no layout of this run FITS{near}"
    if f := m.faster:
        needs = f"{f.lower_gib:.1f} to {f.upper_gib:.1f} of {m.visible_gib:.1f} GiB"
        gain = f"{f.step_time_s:.2f} s a step ({f.against_plan}), {needs}, with {_changes(f.changes)}"
        yield f"faster, but may run out of memory: {gain}; `{f.statement}` chooses it"


def _changes(changes: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {axes.written(value)}" for name, value in changes.items())
