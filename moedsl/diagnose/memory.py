"""Read the numbers in an out-of-memory message, and compare them with a plan.

PyTorch's message (torch lib/libc10_cuda.so) states the memory that was requested, that is free, and that the process
uses; and how much PyTorch's allocator has in tensors, in private pools of CUDA graphs, and unused. Other messages state
less.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from attrs import frozen

from moedsl.planner.plan import Plan

_NUMBER = r"([0-9]{1,9}(?:\.[0-9]{1,6})?) (GiB|MiB|KiB|bytes)"
_UNITS = {"GiB": 1.0, "MiB": 2**-10, "KiB": 2**-20, "bytes": 2**-30}
_PARTS = {
    "tried": rf"Tried to allocate {_NUMBER}",
    "total": rf"total capacity of {_NUMBER}",
    "free": rf"of which {_NUMBER} is free|{_NUMBER} free",
    "in_use": rf"this process has {_NUMBER} memory in use",
    "allocated": rf"{_NUMBER} is allocated by PyTorch|{_NUMBER} already allocated",
    "graphs": rf"with {_NUMBER} allocated in private pools",
    "unused": rf"{_NUMBER} is reserved by PyTorch but unallocated",
}
_EXPRESSIONS = {name: re.compile(text) for name, text in _PARTS.items()}
OTHERS_GIB = 1.5
"""If more memory than this is neither free nor in use by this process, another process is suspected."""


@frozen
class Shortage:
    """The numbers in a message, in GiB; None where the message states none."""

    tried: float
    total: float | None = None
    free: float | None = None
    in_use: float | None = None
    """Used by this process, in and outside of PyTorch."""
    allocated: float | None = None
    """Allocated for tensors."""
    graphs: float | None = None
    """In private pools of captured CUDA graphs."""
    unused: float | None = None
    """Reserved by the allocator, but not allocated."""

    @property
    def missing(self) -> float:
        """The requested memory that was not free."""
        return max(self.tried - (self.free or 0.0), 0.0)

    @property
    def outside(self) -> float | None:
        """What the process uses outside of PyTorch's allocator; None if unknown."""
        if self.in_use is None or self.allocated is None:
            return None
        return max(self.in_use - self.allocated - (self.unused or 0.0), 0.0)

    @property
    def others(self) -> float | None:
        """What other processes use on the GPU; None if unknown."""
        known = self.total is not None and self.free is not None and self.in_use is not None
        return max(self.total - self.free - self.in_use, 0.0) if known else None  # type: ignore[operator]


@frozen
class Part:
    """One kind of memory: the message's value, and the plan's bounds; GiB."""

    name: str
    measured: float
    lower: float
    upper: float

    @property
    def above(self) -> float:
        """How far the measured value exceeds the upper bound; 0 if it does not."""
        return max(self.measured - self.upper, 0.0)


def read(texts: Iterable[str]) -> Shortage | None:
    """Read the texts that state how much was requested, and return the one that misses most; None without any."""
    found: list[Shortage] = []
    for text in texts:
        matches = {n: e.search(text) for n, e in _EXPRESSIONS.items()}
        numbers = {n: [g for g in m.groups() if g] for n, m in matches.items() if m}
        values = {n: float(value) * _UNITS[unit] for n, (value, unit) in numbers.items()}
        if "tried" in values:
            found.append(Shortage(**values))
    return max(found, key=lambda s: s.missing, default=None)


def compare(s: Shortage, plan: Plan) -> list[Part]:
    """Return the kinds of memory that both the message and the plan have."""
    m = plan.estimate.memory
    rows = (
        ("tensors", s.allocated, m.lower_gib, m.upper_gib),
        ("unused in the allocator", s.unused, 0.0, m.unused_gib),
        ("outside PyTorch", s.outside, m.outside.lower_gib, m.outside.upper_gib),
    )
    return [Part(name, measured, low, high) for name, measured, low, high in rows if measured is not None]


def judgement(s: Shortage, parts: Iterable[Part], plan: Plan | None) -> Iterator[str]:
    """Yield sentences: which kind of memory exceeds its bound, and the likeliest cause."""
    if s.others is not None and s.others > OTHERS_GIB:
        yield f"something else on this GPU holds {s.others:.1f} GiB: another process, or a run that did not end"
    worst = max(parts, key=lambda p: p.above, default=None)
    if worst is None or plan is None:
        return
    if worst.above <= 0:
        yield (
            "every part is within the plan's bounds, so the plan was too near to the GPU's memory"
            if plan.estimate.memory.worst_gib + s.missing > plan.estimate.memory.visible_gib
            else "every part is within the plan's bounds, although the plan fits: fragmentation, or another moment"
        )
        return
    text = f"{worst.name}: {worst.above:.1f} GiB above the plan's upper bound"
    if worst.name == "tensors":
        term = max(plan.estimate.memory.unknown, key=lambda r: r.upper_gib, default=None)
        graphs = s.graphs or 0.0
        if graphs > worst.above:
            yield f"{text}: captured graphs hold {graphs:.1f} GiB in private pools, the likeliest cause"
        elif term is not None:
            yield f"{text}: {term.name} is the most uncertain term, or the run differs from the plan"
        else:
            yield f"{text}: the run differs from the plan"
    elif worst.name == "outside PyTorch":
        yield f"{text}: buffers of NCCL, DeepEP or NVSHMEM, or more kernels than usual"
    else:
        yield f"{text}: fragmentation; `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` avoids most of it"
