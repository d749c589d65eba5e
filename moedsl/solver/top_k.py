"""Keep the best rows for each question that a search answers in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from moedsl.solver.question import Question
from moedsl.solver.table import Mask, Row

Floats = NDArray[np.float64]


@define
class TopK:
    """The best `size` rows of different meshes that answer a question, best first."""

    size: int
    question: Question = field(factory=Question)
    limit: tuple[float, ...] | None = None
    """The worst keys that a row may have."""
    rows: list[Row] = field(factory=list)
    ignored: int | None = None
    """The key of the preference that the question drops."""

    @property
    def worst(self) -> tuple[float, ...] | None:
        """The worst keys with which a row can enter; None if every row can."""
        return self.rows[-1].keys if len(self.rows) >= self.size else self.limit

    def room(self, bounds: Floats) -> Mask:
        """The columns of (keys, rows) that could enter: no worse than the worst row."""
        return at_most(ignoring(bounds, self.ignored), self.worst)

    def add(self, rows: Sequence[Row]) -> None:
        near = [r for r in rows if self.limit is None or r.keys <= self.limit]
        self.rows[:] = sorted([*self.rows, *near], key=lambda r: r.keys)[: self.size]


def any_of(masks: Sequence[Mask]) -> Mask:
    """Join masks: the rows that answer any of the questions."""
    return masks[0] if len(masks) == 1 else np.logical_or.reduce(masks)


def least(columns: Sequence[NDArray[Any]], at: NDArray[np.intp]) -> NDArray[np.intp]:
    """The position with the least values, of some positions in columns; none if there are none. NaN is the largest."""
    for column in columns:
        if len(at) < 2:
            break
        values = column[at]
        best = np.fmin.reduce(values)
        at = at[values == best] if best == best else at
    return at[:1]


def ignoring(keys: Floats, key: int | None) -> Floats:
    """Set one key to 0 in all columns of keys or bounds."""
    if key is None:
        return keys
    out = keys.copy()
    out[key] = 0.0
    return out


def at_most(bounds: Floats, worst: Sequence[float] | None) -> Mask:
    """The columns of (keys, rows) that are no worse than the first keys of a row; all if there is no row."""
    below, equal = np.zeros(bounds.shape[1], dtype=bool), np.ones(bounds.shape[1], dtype=bool)
    for bound, key in zip(bounds, worst or (), strict=False):
        below |= equal & (bound < key)
        equal &= bound == key
    return below | equal
