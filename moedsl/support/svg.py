"""Draw charts as SVG: choose round values for an axis's ticks, and write the elements of a picture.

Used for the report of a plan, the picture of `moedsl tune` and the page of `moedsl watch`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape
from typing import Any

from attrs import frozen

_MOST = 6
Point = tuple[float, float]


def linear(low: float, high: float) -> list[float]:
    """Return at most six ticks: multiples of 1, 2 or 5 times a power of ten; only `low` if both ends are equal."""
    if high <= low:
        return [low]
    rough = (high - low) / _MOST
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10, 20) if (high - low) / (m * power) < _MOST)
    first = math.ceil(low / step - 1e-9)
    return [round(n * step, 9) for n in range(first, math.floor(high / step + 1e-9) + 1)]


def doubles(low: float, high: float) -> list[float]:
    """Return at most seven ticks: powers of two times `low`, up to `high`."""
    many = math.log2(high / low)
    every = max(math.ceil(many / _MOST), 1)
    return [low * 2.0 ** (every * n) for n in range(math.floor(many / every + 1e-9) + 1)]


def decades(low: float, high: float) -> list[float]:
    """Return ticks of a logarithmic axis: 1, 2 and 5 times powers of ten; as `linear` if these are too few."""
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    found = [m * 10.0**n for n in powers for m in (1, 2, 5) if low <= m * 10.0**n <= high]
    return found if len(found) > 2 else linear(low, high)


def shares(whole: float) -> list[dict[str, Any]]:
    """Return the ticks of an axis from 0 to `whole`, each with its position in percent."""
    return [{"at": t / whole * 100, "text": f"{t:g}"} for t in linear(0, whole)]


def element(name: str, *inside: str, **attributes: object) -> str:
    """Write an element around others. A `_` in an attribute's name becomes `-`; floats have one decimal."""
    written = "".join(
        f' {n.replace("_", "-")}="{f"{v:.1f}" if isinstance(v, float) else escape(str(v))}"'
        for n, v in attributes.items()
    )
    return f"<{name}{written}>{''.join(inside)}</{name}>" if inside else f"<{name}{written}/>"


def polyline(points: Iterable[Point], **attributes: object) -> str:
    """Write a line through points, in pixels."""
    return element("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points), **attributes)


def picture(width: float, height: float, title: str, shapes: Iterable[str]) -> str:
    """Write a whole SVG file on a white background, with a title for screen readers."""
    ground = element("rect", width=width, height=height, fill="#fff")
    inside = "\n".join(["", element("title", escape(title)), ground, *shapes, ""])
    head = {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {width} {height}", "font_size": 12}
    return element("svg", inside, **head, font_family="sans-serif") + "\n"


@frozen
class Area:
    """The part of a picture where values are drawn: its position and size in pixels, and the values at its corners."""

    left: float
    top: float
    width: float
    height: float
    lowest: Point
    """x and y of the lower left corner."""
    highest: Point
    """x and y of the upper right corner."""

    def at(self, x: float, y: float) -> Point:
        """Return the pixel position of a value; an axis whose ends are equal has its value at its start."""
        across = (x - self.lowest[0]) * self.width / ((self.highest[0] - self.lowest[0]) or 1.0)
        up = (y - self.lowest[1]) * self.height / ((self.highest[1] - self.lowest[1]) or 1.0)
        return self.left + across, self.top + self.height - up
