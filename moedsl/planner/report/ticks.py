"""Choose the round values at which an axis has ticks."""

from __future__ import annotations

import math
from typing import Any

_MOST = 6


def linear(low: float, high: float) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten from `low` to `high`, at most six; both ends if they are equal."""
    if high <= low:
        return [low]
    rough = (high - low) / _MOST
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10, 20) if (high - low) / (m * power) < _MOST)
    first = math.ceil(low / step - 1e-9)
    return [round(n * step, 9) for n in range(first, math.floor(high / step + 1e-9) + 1)]


def doubles(low: float, high: float) -> list[float]:
    """Powers of two times `low` up to `high`, at most seven."""
    many = math.log2(high / low)
    every = max(math.ceil(many / _MOST), 1)
    return [low * 2.0 ** (every * n) for n in range(math.floor(many / every + 1e-9) + 1)]


def decades(low: float, high: float) -> list[float]:
    """Values of 1, 2 and 5 times powers of ten from `low` to `high`; closer ones where it has few."""
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    found = [m * 10.0**n for n in powers for m in (1, 2, 5) if low <= m * 10.0**n <= high]
    return found if len(found) > 2 else linear(low, high)


def shares(whole: float) -> list[dict[str, Any]]:
    """The ticks of what starts at 0, each at its percentage of the whole."""
    return [{"at": t / whole * 100, "text": f"{t:g}"} for t in linear(0, whole)]
