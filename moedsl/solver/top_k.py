"""The best rows that a search keeps, for each question that it answers in one pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from moedsl.solver.question import Question
from moedsl.solver.table import Mask, Row

Floats = NDArray[np.float64]


@define
class Kept:
    """The best `size` rows of different meshes that answer a question, best first."""

    size: int
    question: Question = field(factory=Question)
    limit: tuple[float, ...] | None = None
    """Keys beyond which no row is kept."""
    rows: list[Row] = field(factory=list)
    ignored: int | None = None
    """The key that does not count: that of the preference which the question drops."""

    @property
    def worst(self) -> tuple[float, ...] | None:
        """The keys that a row has to reach; None where every row is kept."""
        return self.rows[-1].keys if len(self.rows) >= self.size else self.limit

    def room(self, bounds: Floats) -> Mask:
        """The columns of some (keys, rows) that could be among the rows that are kept: before the worst, or beside."""
        return at_most(ignoring(bounds, self.ignored), self.worst)

    def add(self, found: Sequence[Row]) -> None:
        near = [r for r in found if self.limit is None or r.keys <= self.limit]
        self.rows[:] = sorted([*self.rows, *near], key=lambda r: r.keys)[: self.size]


def any_of(masks: Sequence[Mask]) -> Mask:
    """The rows that one of some questions is about."""
    return masks[0] if len(masks) == 1 else np.logical_or.reduce(masks)


def ignoring(keys: Floats, key: int | None) -> Floats:
    """Keys, or their bounds, with one of them the same everywhere."""
    if key is None:
        return keys
    out = keys.copy()
    out[key] = 0.0
    return out


def at_most(bounds: Floats, worst: Sequence[float] | None) -> Mask:
    """The columns of (keys, rows) that are no worse than the first keys of a row; all where there is no row yet."""
    below, equal = np.zeros(bounds.shape[1], dtype=bool), np.ones(bounds.shape[1], dtype=bool)
    for bound, key in zip(bounds, worst or (), strict=False):
        below |= equal & (bound < key)
        equal &= bound == key
    return below | equal
