"""Estimate how well a median of steps is known.

Consecutive steps of a run resemble each other, so the error comes from blocks of consecutive steps, not from single
steps.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise

BLOCKS = 8
"""The blocks of one run."""
LEAST = 3
"""Steps of a block. A run with too few for two blocks has no known error."""


def error_of(values: Sequence[float]) -> float | None:
    """Return the standard error of the median of one run's steps, in order; None if they are too few."""
    count = min(BLOCKS, len(values) // LEAST)
    if count < 2:
        return None
    cuts = [round(i * len(values) / count) for i in range(count + 1)]
    return of_repeats([statistics.median(values[a:b]) for a, b in pairwise(cuts)])


def of_repeats(values: Sequence[float]) -> float:
    """Return the standard error of the middle of several independent values."""
    return statistics.stdev(values) / len(values) ** 0.5
