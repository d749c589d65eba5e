"""A small scatter plot of characters."""

from __future__ import annotations

import math
from collections.abc import Sequence

from attrs import field, frozen

WIDTH, HEIGHT = 64, 12
"""Characters and lines inside the frame."""


@frozen
class Axis:
    """What an axis shows, from `low` to `high`; a `log` axis has equal steps for equal ratios."""

    name: str
    low: float
    high: float
    log: bool = False
    digits: int = 0
    """Decimals at its ends."""

    def share(self, value: float) -> float:
        """How far along the axis a value is, from 0 to 1; the middle where all values are one."""
        low, high, v = (math.log(x) if self.log else x for x in (self.low, self.high, value))
        return 0.5 if high == low else (v - low) / (high - low)

    def at(self, value: float, cells: int) -> int:
        """The cell of a value, counted from 0."""
        return min(max(round(self.share(value) * (cells - 1)), 0), cells - 1)

    def text(self, value: float) -> str:
        """A value as the axis labels it."""
        return f"{value:,.{self.digits}f}"


def axis(name: str, values: Sequence[float], log: bool = False, digits: int = 0) -> Axis:
    """An axis that holds all values."""
    return Axis(name, min(values), max(values), log, digits)


@frozen
class Mark:
    """One point; of several in one cell the last is seen."""

    x: float
    y: float
    sign: str = field(default="o")


def scatter(x: Axis, y: Axis, marks: Sequence[Mark]) -> str:
    """The plot: `y` grows upwards, its name above its ends at the left, `x` and its ends below."""
    cells = [[" "] * WIDTH for _ in range(HEIGHT)]
    for m in marks:
        cells[HEIGHT - 1 - y.at(m.y, HEIGHT)][x.at(m.x, WIDTH)] = m.sign
    ends = (y.text(y.high), y.text(y.low))
    pad = max(map(len, ends))
    sides = [ends[0].rjust(pad), *[" " * pad] * (HEIGHT - 2), ends[1].rjust(pad)]
    lines = [f"  {side} |{''.join(row)}".rstrip() for side, row in zip(sides, cells, strict=True)]
    left, right = x.text(x.low), x.text(x.high)
    middle = x.name.center(WIDTH - len(left) - len(right))
    return "\n".join(
        [f"  {y.name}", *lines, f"  {' ' * pad} +{'-' * WIDTH}", f"  {' ' * pad}  {left}{middle}{right}".rstrip()]
    )
