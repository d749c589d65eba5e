"""The best rows that a search keeps, for each question that it answers in one pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from moedsl.solver.laws import Law
from moedsl.solver.table import Mask, Row, Table

Floats = NDArray[np.float64]


@define
class Kept:
    """The best `size` rows of different meshes that obey `law`, or of all where there is none, best first."""

    size: int
    law: Law | None = None
    limit: tuple[float, ...] | None = None
    """Keys beyond which no row is kept."""
    rows: list[Row] = field(factory=list)

    @property
    def worst(self) -> tuple[float, ...] | None:
        """The keys that a row has to reach; None where every row is kept."""
        return self.rows[-1].keys if len(self.rows) >= self.size else self.limit

    def obeying(self, table: Table, known: frozenset[str] | None = None) -> Mask:
        """The rows of a table that may answer the question; with `known`, as far as those axes tell."""
        if self.law is None or (known is not None and not self.law.needs <= known):
            return np.ones(table.rows, dtype=bool)
        return self.law.holds(table)

    def room(self, bounds: Floats) -> Mask:
        """The columns of some (keys, rows) that could be among the rows that are kept: before the worst, or beside."""
        worst = self.worst
        if worst is None:
            return np.ones(bounds.shape[1], dtype=bool)
        below, equal = np.zeros(bounds.shape[1], dtype=bool), np.ones(bounds.shape[1], dtype=bool)
        for bound, key in zip(bounds, worst, strict=False):
            below |= equal & (bound < key)
            equal &= bound == key
        return below | equal

    def add(self, found: Sequence[Row]) -> None:
        near = [r for r in found if self.limit is None or r.keys <= self.limit]
        self.rows[:] = sorted([*self.rows, *near], key=lambda r: r.keys)[: self.size]


def any_of(masks: Sequence[Mask]) -> Mask:
    """The rows that one of some questions is about."""
    return masks[0] if len(masks) == 1 else np.logical_or.reduce(masks)
