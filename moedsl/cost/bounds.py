"""The least, the best and the most that the most loaded rank may hold, and whether that fits its GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from moedsl.cost import outside, taken
from moedsl.cost.estimate import Cost
from moedsl.cost.outside import Part

GIB = 2**30
HELD_BACK = 0.03
"""What torch's allocator has reserved above what is allocated, at the most: 158.22 and 162.29 GiB, 101.51 and 103.96
GiB in published runs with expandable segments (Nemotron 3.5 Lightning, 8 GB200)."""
FITS, TIGHT, NOT = "FITS", "TIGHT", "DOES NOT FIT"


@frozen
class Spread:
    """What one uncertainty alone moves the peak by, bytes: down (negative) and up."""

    name: str
    least: float
    most: float
    because: str


@frozen
class Bounds:
    """Bytes of torch's peak on the most loaded rank, and of what lies beside it."""

    least: float
    best: float
    most: float
    spread: tuple[Spread, ...]
    outside: tuple[Part, ...]
    visible: float
    """What the driver shows of the GPU."""

    @property
    def beside(self) -> tuple[float, float]:
        """(least, most) outside torch."""
        return sum(p.least for p in self.outside), sum(p.most for p in self.outside)

    @property
    def needed(self) -> tuple[float, float]:
        """(least, most) of the whole GPU."""
        least, most = self.beside
        return self.least + least, self.most * (1 + HELD_BACK) + most

    @property
    def verdict(self) -> str:
        """FITS where the most does, DOES NOT FIT where even the least does not, else TIGHT."""
        least, most = self.needed
        return FITS if most <= self.visible else NOT if least > self.visible else TIGHT

    @property
    def because(self) -> str:
        """The verdict's sum in words."""
        (least, most), (low, high), shown = (
            self.needed,
            self.beside,
            f"of the {_gib(self.visible)} GiB that the GPU shows",
        )
        if self.verdict == NOT:
            return f"at the least {_gib(self.least)} GiB in torch and {_gib(low)} outside it: {_gib(least)} {shown}"
        held = f"{_gib(self.most * HELD_BACK)} that its allocator holds unused"
        return f"at the most {_gib(self.most)} GiB in torch, {held} and {_gib(high)} outside it: {_gib(most)} {shown}"


def bounds(cost: Cost, row: Mapping[str, int]) -> Bounds:
    """The bounds of one row (axis to code); raises ValueError where its (pp, vpp) have no layout."""
    best, known = taken.best(cost.routing), taken.unknowns(cost.routing)
    alone = [taken.changed(best, change) for u in known for change in (u.least, u.most)]
    ways = [taken.least(cost.routing), best, taken.most(cost.routing), *alone]
    least, peak, most, *each = cost.peaks(row, ways)
    moves = zip(known, each[::2], each[1::2], strict=True)
    spread = (Spread(u.name, low - peak, high - peak, u.because) for u, low, high in moves)
    beside = outside.parts(cost.model, row, cost.gpus, cost.seq)
    visible = cost.hardware.visible or cost.hardware.memory
    return Bounds(least, peak, most, tuple(s for s in spread if s.least or s.most), tuple(beside), visible)


def fits(cost: Cost, row: Mapping[str, int]) -> bool:
    """Whether the verdict of `bounds` is FITS, from the most alone; raises as it does."""
    (most,) = cost.peaks(row, [taken.most(cost.routing)])
    beside = sum(p.most for p in outside.parts(cost.model, row, cost.gpus, cost.seq))
    return most * (1 + HELD_BACK) + beside <= (cost.hardware.visible or cost.hardware.memory)


_OUTSIDE = ("tp", "cp", "pp", "ep", "etp", "micro_batch", "dispatcher")
"""What memory outside torch depends on."""


def certain(cost: Cost, cols: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Whether the verdict is FITS, by row of some columns of axes."""
    free = (cost.hardware.visible or cost.hardware.memory) - cost.memory(cols, taken.most(cost.routing)) * (
        1 + HELD_BACK
    )
    keys = np.stack([np.broadcast_to(cols[n], free.shape) for n in _OUTSIDE])
    may = np.flatnonzero(free > outside.DRIVER[1])
    distinct, which = np.unique(keys[:, may], axis=1, return_inverse=True)
    layouts = (dict(zip(_OUTSIDE, map(int, key), strict=True)) for key in distinct.T)
    beside = [sum(p.most for p in outside.parts(cost.model, row, cost.gpus, cost.seq)) for row in layouts]
    out = np.zeros(free.shape, dtype=bool)
    out[may] = np.array(beside, float)[which.ravel()] <= free[may]
    return out


def _gib(size: float) -> str:
    return f"{size / GIB:.1f}"
