"""Questions about a space, and the best rows found for each while one search answers all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray

from moedsl.facts import axes
from moedsl.facts.axes import MESH
from moedsl.solver.laws import Law
from moedsl.solver.table import Mask, Row, Table, as_mask


@frozen
class Question:
    """Ask for the best layout: `only` fixes axes or lets, `law` must hold, `dropped` advice does not count, and `but`
    is no answer."""

    only: Mapping[str, int] = field(factory=dict)
    """Values of axes, or of lets that read only meshes."""
    law: Law | None = None
    dropped: str | None = None
    but: Mapping[str, int] | None = None

    def rows(self, table: Table, known: frozenset[str] | None = None) -> Mask:
        """A mask of the rows that may answer it, judged by the `known` axes, or by all if None."""
        keep = np.ones(table.rows, dtype=bool)
        for name, value in self.only.items():
            if known is None or known.issuperset({name} if name in axes.BY_NAME else MESH):
                keep &= as_mask(np.equal(table[name], value), table.rows)
        if self.law is not None and (known is None or self.law.needs <= known):
            keep &= self.law.holds(table)
        return keep

    def others(self, table: Table) -> Mask:
        """A mask of the rows that are not `but`."""
        if self.but is None:
            return np.ones(table.rows, dtype=bool)
        return np.logical_or.reduce([table.axes[name] != code for name, code in self.but.items()])


@frozen
class Answer:
    """The best row for a question, or None; `legal` counts the meshes that obey the laws except those on prices."""

    row: Row | None
    legal: int
    least_needed: float
    """The least bytes that any legal mesh needs in the case of the memory estimate that must fit; infinite if there is
    none."""


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
