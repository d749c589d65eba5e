"""Price unique rows once: a price depends on a few small keys, so columns are reduced to the rows that occur.

`narrow` makes such a table, and `inverse` spreads its prices over all rows again. Prices are kept between searches of
one space, which price many rows again; pricing a few rows takes as long as pricing hundreds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike, NDArray

from moedsl.facts.axes import AXES

Ints = NDArray[np.int64]
Floats = NDArray[np.floating[Any]]
Index = NDArray[np.intp]
DEFAULTS: Mapping[str, int] = {a.name: a.off for a in AXES}
"""The value of a missing column: 1 for sizes, else none, alltoall, bf16 or fp32."""
UNSAID = -1
"""The value in column `fp8_weights` if the run does not set whether parameters are kept in FP8."""
CHUNK = 100_000
"""Rows priced at a time; more rows share the prices that depend on few axes, but need more memory."""
FEW = 256
"""Up to this number of rows, each is priced, because finding the unique ones would take longer."""
FLAGS, FLAGS_A_ROW = 4096, 16
"""The largest table of flags for finding distinct values: FLAGS + FLAGS_A_ROW x rows; beyond it, sorting is faster."""


@frozen(slots=False)
class Table:
    """Unique rows: columns of equal length, and each input row's index among the unique rows."""

    columns: Mapping[str, Ints]
    inverse: Index

    def __getitem__(self, name: str) -> Ints:
        return self.columns[name]

    @property
    def rows(self) -> int:
        """Return the number of unique rows."""
        return len(next(iter(self.columns.values())))

    def take(self, at: Sequence[int]) -> Table:
        """Return the unique rows `at` as a table of their own."""
        return Table({name: c[at] for name, c in self.columns.items()}, np.arange(len(at)))

    def parts(self) -> Iterator[Table]:
        """Yield the unique rows in tables of at most CHUNK rows."""
        for at in slices(self.rows):
            columns = part(self.columns, at)
            yield Table(columns, np.arange(length(columns)))

    def times(self, n: int) -> Table:
        """Return a table with each unique row repeated `n` times."""
        return Table({name: np.repeat(c, n) for name, c in self.columns.items()}, np.arange(self.rows * n))

    def has(self, column: str, bit: int) -> NDArray[np.bool_]:
        """Whether a set column contains the member with number `bit`, by row."""
        return (self.columns[column] >> bit & 1).astype(bool)

    def narrow(self, names: Sequence[str]) -> Table:
        """Return the unique combinations of fewer columns, or all rows if there are few; `inverse` maps this table's
        rows to them."""
        key = (*names,)
        if key not in self._narrowed:
            self._narrowed[key] = Levels.of(self.columns, names).table(names)
        return self._narrowed[key]

    def kinds(self, names: Sequence[str]) -> Table:
        """Return the unique combinations of fewer columns; `inverse` maps this table's rows to them."""
        return Levels.of(self.columns, names).kinds(names)

    @cached_property
    def _narrowed(self) -> dict[tuple[str, ...], Table]:
        return {}


@frozen(slots=False)
class Levels:
    """Columns to combine into any key: each column's distinct values and every row's index among them, found once."""

    columns: Mapping[str, Ints]
    rows: int

    @classmethod
    def of(cls, cols: Mapping[str, Ints], names: Sequence[str]) -> Levels:
        """Take the named columns; a scalar (0-d) has one level."""
        columns = {name: cols[name] for name in names}
        return cls(columns, length(columns))

    def table(self, names: Sequence[str], rows: int = 0) -> Table:
        """Return the unique combinations of some columns, or all rows if there are few; `rows` is their number if all
        columns are scalars."""
        n = max(self.rows, rows)
        if n > FEW:
            return self.kinds(names, rows)
        return Table({name: c if (c := self.columns[name]).ndim else c.repeat(n) for name in names}, np.arange(n))

    def kinds(self, names: Sequence[str], rows: int = 0) -> Table:
        """Return the unique combinations of some columns; `rows` is the number of rows if all columns are scalars."""
        codes, size = np.zeros(max(self.rows, rows), np.int64), 1
        for name in names:
            if name not in self._found:
                values, index = _levels(self.columns[name])
                self._found[name] = values, index.astype(np.int32)
            values, index = self._found[name]
            if len(values) > 1:
                codes *= len(values)
                codes += index
                size *= len(values)
        codes, inverse = _compact(codes, size)
        columns = dict[str, Ints]()
        for name in reversed(names):
            values, _ = self._found[name]
            codes, at = np.divmod(codes, len(values))
            columns[name] = values[at]
        return Table(columns, inverse)

    @cached_property
    def _found(self) -> dict[str, tuple[Ints, NDArray[np.int32]]]:
        return {}


def complete(cols: Mapping[str, object]) -> dict[str, Ints]:
    """Return every axis as a column of integers; missing columns get their defaults, scalars stay scalars (0-d)."""
    every = {**DEFAULTS, "fp8_weights": UNSAID}
    return {name: np.asarray(cols.get(name, default), np.int64) for name, default in every.items()}


def slices(rows: int) -> Iterator[slice]:
    """Yield slices of at most CHUNK rows, which bounds the memory that pricing needs."""
    for start in range(0, rows, CHUNK):
        yield slice(start, start + CHUNK)


def part(cols: Mapping[str, Ints], at: slice) -> dict[str, Ints]:
    """Return some rows of the columns; scalars stay scalars."""
    return {name: c[at] if c.ndim else c for name, c in cols.items()}


def chunks(cols: Mapping[str, Ints], rows: int) -> Iterator[dict[str, Ints]]:
    """Yield the columns in pieces of at most CHUNK rows."""
    return (part(cols, at) for at in slices(rows))


def length(cols: Mapping[str, Ints]) -> int:
    """Count the rows of a set of columns; 1 if all are scalars."""
    return max((c.shape[0] for c in cols.values() if c.ndim), default=1)


def _levels(column: Ints) -> tuple[Ints, Index]:
    """Return the values that occur, ascending, and each row's index among them."""
    if column.ndim == 0 or not column.size:
        return column.reshape(-1)[:1], np.zeros(column.size, np.intp)
    low, top = int(column.min()), int(column.max())
    if low == top:
        return column[:1], np.zeros(column.size, np.intp)
    return _compact(column, top + 1) if low >= 0 else _sorted(column)


def _compact(codes: Ints, size: int) -> tuple[Ints, Index]:
    if size > FLAGS + FLAGS_A_ROW * len(codes):
        return _sorted(codes)
    seen = np.zeros(size, bool)
    seen[codes] = True
    values, place = seen.nonzero()[0], np.empty(size, np.intp)
    place[values] = np.arange(len(values))
    return values, place[codes]


def _sorted(codes: Ints) -> tuple[Ints, Index]:
    values, index = np.unique(codes, return_inverse=True)
    return values, index


def picked(values: Sequence[ArrayLike], at: Ints) -> Floats:
    """Return one of some values for each row; if a value differs by machine, (machines, 1), the result is (machines,
    rows)."""
    if all(np.ndim(v) == 0 for v in values):
        return np.asarray(values)[at]
    return np.concatenate(np.broadcast_arrays(*map(np.atleast_2d, values)), axis=-1)[..., at]


Profile = Callable[[int], Floats | None]
"""Returns the stages of one kind of row, (stages, features), or None if it has none; `largest` is then 0."""


def largest(kinds: int, profile: Profile, which: Index, prices: Floats, at: Index) -> Floats:
    """Return for each row the largest over stages of profile x prices.

    `which` is each row's kind; `prices` is (features, unique rows) and `at` each row's column in it. Rows are processed
    kind by kind, so that temporaries stay as small as the largest group. Several prices of the same rows, (prices,
    features, unique rows), give (prices, rows).
    """
    order = np.argsort(which.astype(np.int16) if kinds < 1 << 15 else which, kind="stable")
    out = np.empty((*prices.shape[:-2], len(which)))
    start = 0
    for kind, count in enumerate(np.bincount(which, minlength=kinds).tolist()):
        if count:
            rows, stages = order[start : start + count], profile(kind)
            start += count
            if stages is None:
                out[..., rows] = 0.0
            elif prices.shape[-1] <= 2 * count:  # price all columns first, because rows share many
                out[..., rows] = (stages @ prices).max(axis=-2).take(at[rows], axis=-1)
            else:
                out[..., rows] = (stages @ prices.take(at[rows], axis=-1)).max(axis=-2)
    return out


def undominated(profile: Floats) -> Floats:
    """Return the stages that no other stage reaches in every feature; one of them is the largest, as prices are never
    negative."""
    rows = profile[np.lexsort(profile.T[::-1])]
    rows = rows[np.append(True, (rows[1:] != rows[:-1]).any(axis=1))]
    covers = (rows[:, None, :] >= rows[None, :, :]).all(axis=2)
    return rows[covers.sum(axis=0) == 1]


MOST = 50_000
"""Maximum number of rows whose prices are kept."""


class Known:
    """The prices of rows of small tables, kept by the columns that they depend on."""

    def __init__(self) -> None:
        self._kept: dict[bytes, Floats] = {}

    def prices(self, t: Table, names: Sequence[str], price: Callable[[Table], Floats], many: bool = False) -> Floats:
        """Return `price(t)`, (..., rows), which depends on the named columns; of few rows, or if `many` are kept too,
        only new ones are priced."""
        if t.rows > (MOST if many else FEW):
            return np.concatenate([price(part) for part in t.parts()], axis=-1)
        if len(self._kept) > MOST:
            self._kept = {}
        columns = np.column_stack([t[name] for name in names]).astype(np.int64, order="C")
        kept, keys = self._kept, columns.view(f"V{8 * len(names)}").ravel().tolist()
        if new := {key: i for i, key in enumerate(keys) if key not in kept}:
            kept.update(zip(new, np.moveaxis(price(t.take([*new.values()])), -1, 0), strict=True))
        return np.stack([kept[key] for key in keys], axis=-1)
