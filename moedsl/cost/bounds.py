"""Estimate the low, best and high memory of the most loaded rank, and whether it fits its GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from moedsl.cost import cases, outside
from moedsl.cost.estimate import Cost
from moedsl.cost.outside import Part
from moedsl.facts.units import GIB

FITS, TIGHT, NOT = "FITS", "TIGHT", "DOES NOT FIT"


@frozen
class Spread:
    """The change of the peak from one uncertainty alone, in bytes: down (negative) and up."""

    name: str
    least: float
    most: float
    because: str


@frozen
class Bounds:
    """Bytes of torch's peak on the most loaded rank, and of the memory outside torch."""

    least: float
    best: float
    most: float
    spread: tuple[Spread, ...]
    outside: tuple[Part, ...]
    visible: float
    """The memory of the GPU that the driver shows."""
    held_back: float
    """Share that torch's allocator reserves above what is allocated."""

    @property
    def outside_bytes(self) -> tuple[float, float]:
        """Return (low, high) outside torch."""
        return sum(p.least for p in self.outside), sum(p.most for p in self.outside)

    @property
    def unused(self) -> float:
        """Return what torch's allocator holds unused in the high case."""
        return self.most * self.held_back

    @property
    def needed(self) -> tuple[float, float]:
        """Return (low, high) of the whole GPU."""
        least, most = self.outside_bytes
        return self.least + least, self.most + self.unused + most

    @property
    def verdict(self) -> str:
        """Return FITS if the high case fits, DOES NOT FIT if even the low case does not, else TIGHT."""
        least, most = self.needed
        return FITS if most <= self.visible else NOT if least > self.visible else TIGHT

    @property
    def because(self) -> str:
        """Write the sum of the verdict as text."""
        (least, most), (low, high), visible = self.needed, self.outside_bytes, _gib(self.visible)
        if self.verdict == NOT:
            parts = f"{_gib(self.least)} in torch, {_gib(low)} outside torch"
            return f"best case {_gib(least)} GiB; the GPU has {visible}: {parts}"
        held = f"{_gib(self.unused)} held unused by its allocator"
        parts = f"{_gib(self.most)} in torch, {held}, {_gib(high)} outside torch"
        return f"worst case {_gib(most)} GiB; the GPU has {visible}: {parts}"


def bounds(cost: Cost, row: Mapping[str, int]) -> Bounds:
    """Compute the bounds of one row (axis to code); raises ValueError if its (pp, vpp) have no layout."""
    return _bounds(cost, row, cost.uncertain.unknowns)


def verdict(cost: Cost, row: Mapping[str, int]) -> str:
    """Return the verdict of `bounds` for less; raises ValueError like it."""
    return _bounds(cost, row, ()).verdict


def _bounds(cost: Cost, row: Mapping[str, int], known: Sequence[cases.Unknown]) -> Bounds:
    """Compute the bounds with the spread of some uncertain terms."""
    way = cost.uncertain
    alone = [cases.changed(way.best, change) for u in known for change in (u.least, u.most)]
    least, peak, most, *each = cost.peaks(row, [way.least, way.best, way.most, *alone])
    moves = zip(known, each[::2], each[1::2], strict=True)
    spread = (Spread(u.name, low - peak, high - peak, u.because) for u, low, high in moves)
    parts = outside.parts(cost.hardware, cost.model, row, cost.gpus, cost.seq)
    spread = tuple(s for s in spread if s.least or s.most)
    unused = cost.hardware.constants.ends("torch_unused")["high"]
    return Bounds(least, peak, most, spread, tuple(parts), cost.hardware.shown, unused)


def fits(cost: Cost, row: Mapping[str, int]) -> bool:
    """Tell whether the verdict of `bounds` is FITS, from the high case alone."""
    return bool(cost.spare(row)[0] >= 0)


def _gib(size: float) -> str:
    return f"{size / GIB:.1f}"
