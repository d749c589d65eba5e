"""Tables of layouts: columns grow one axis at a time; lets are computed when first read."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from moedsl.facts import axes
from moedsl.facts.operators import Column
from moedsl.rules.evaluators import Evaluate

Mask = NDArray[np.bool_]
MOST_KEYS = 2**62
"""Combinations of values that one integer counts."""


def as_mask(value: Column, rows: int) -> Mask:
    """Broadcast the column of a condition to the rows."""
    mask = np.asarray(value, dtype=bool)
    return mask if mask.shape == (rows,) else np.broadcast_to(mask, (rows,))


class Table(dict[str, Column]):
    """Columns by name. A let is computed once, when first read; growing or filtering makes a new table."""

    def __init__(self, columns: Mapping[str, Column], fixed: Mapping[str, Any], lets: Mapping[str, Evaluate]) -> None:
        super().__init__(fixed)
        self.axes = dict(columns)
        self.update(self.axes)
        self._fixed, self._lets = fixed, lets
        self.rows = len(next(iter(self.axes.values()))) if self.axes else 1

    def __missing__(self, key: str) -> Column:
        value = self[key] = self._lets[key](self)
        return value

    def grow(self, name: str, domain: NDArray[np.int64]) -> Table:
        """Combine every row with every value of one more axis."""
        n, m = self.rows, len(domain)
        columns = {k: np.repeat(v, m) for k, v in self.axes.items()}
        return Table({**columns, name: np.tile(domain, n)}, self._fixed, self._lets)

    def without_axes(self) -> Table:
        """A table of one row and no axis, with the same facts and lets."""
        return Table({}, self._fixed, self._lets)

    def each(self) -> Iterator[dict[str, int]]:
        """The values of each row."""
        return (dict(zip(self.axes, row, strict=True)) for row in zip(*self.axes.values(), strict=True))

    def parts(self, rows: int) -> list[Table]:
        """Cut the table into parts of at most so many rows."""
        at = np.arange(self.rows)
        return [self] if self.rows <= rows else [self.take(at[i : i + rows]) for i in range(0, self.rows, rows)]

    @classmethod
    def joined(cls, parts: Sequence[Table]) -> Table:
        """Put the rows of several tables of the same axes below each other."""
        first, *more = parts
        if not more:
            return first
        columns = {n: np.concatenate([part.axes[n] for part in parts]) for n in first.axes}
        return cls(columns, first._fixed, first._lets)

    def take(self, index: NDArray[Any]) -> Table:
        """Take rows by mask or by position. A mask becomes positions once, not once for each column."""
        at = np.flatnonzero(index) if index.dtype == bool else index
        if at is not index and len(at) == self.rows:
            return self
        return Table({k: v.take(at) for k, v in self.axes.items()}, self._fixed, self._lets)

    def distinct(self, names: Container[str]) -> Table:
        """The columns of some axes, with each combination once; the rows of all axes together are distinct."""
        columns = {n: v for n, v in self.axes.items() if n in names}
        if len(columns) == len(self.axes) or not self.rows:
            return self
        if not columns:
            return self.without_axes()
        return Table(columns, self._fixed, self._lets).take(np.sort(_first_of_each([*columns.values()])))

    def times(self, other: Mapping[str, NDArray[np.int64]]) -> Table:
        """Combine every row with every row of another table."""
        n, m = self.rows, len(next(iter(other.values())))
        columns = {k: np.repeat(v, m) for k, v in self.axes.items()}
        return Table({**columns, **{k: np.tile(v, n) for k, v in other.items()}}, self._fixed, self._lets)

    def assume(self, **values: Any) -> Table:
        """The same rows with constant values for more axes or prices."""
        return Table(self.axes, {**self._fixed, **values}, self._lets)

    def with_columns(self, **columns: NDArray[Any]) -> Table:
        """The same rows with more columns."""
        return Table({**self.axes, **columns}, self._fixed, self._lets)


def different(column: NDArray[Any]) -> NDArray[Any]:
    """The different values of a column, in order. For them alone np.unique imports numpy.ma, a hundredth of a plan."""
    ordered = np.sort(column)
    return np.append(ordered[:1], ordered[1:][ordered[1:] != ordered[:-1]])


def _first_of_each(columns: Sequence[Column]) -> NDArray[np.intp]:
    """The first position of each combination of values in some columns of integers."""
    key, size = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        low, span = int(column.min()), int(np.ptp(column)) + 1
        if size * span > MOST_KEYS:
            values, key = np.unique(key, return_inverse=True)
            size = len(values)
        key, size = key * span + (column - low), size * span
    return np.unique(key, return_index=True)[1]


@frozen
class Row:
    """One complete layout: codes by axis, prices and rank."""

    codes: Mapping[str, int]
    prices: Mapping[str, float]
    """The prices by their names in rules; NaN for one that no rule reads."""
    keys: tuple[float, ...] = field(repr=False)

    @property
    def peak_memory(self) -> float:
        return self.prices["peak_memory"]

    @property
    def step_time(self) -> float:
        return self.prices["step_time"]

    @property
    def score(self) -> float:
        return self.prices["score"]

    @property
    def layout(self) -> dict[str, Any]:
        """The value of every axis, as the plan writes it."""
        return {a.name: a.decode(self.codes[a.name]) for a in axes.AXES}

    def changes(self, codes: Mapping[str, int]) -> dict[str, Any]:
        """The axes that differ from another layout's codes, with this layout's values."""
        return {n: v for n, v in self.layout.items() if self.codes[n] != codes[n]}
