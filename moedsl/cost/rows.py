"""Columns in, unique rows out: a price depends on a few small keys, so it is computed once for each key that occurs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from moedsl.axes import AXES

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
DEFAULTS: Mapping[str, int] = {a.name: 1 if a.kind == "int" else 0 for a in AXES}
"""What a missing column holds: sizes of 1, and none, alltoall, bf16, fp32."""
FLAGS_UP_TO = 1 << 22


@frozen
class Table:
    """Unique rows: columns of equal length, and for every input row the index of its unique row."""

    columns: Mapping[str, Ints]
    inverse: NDArray[np.intp]

    def __getitem__(self, name: str) -> Ints:
        return self.columns[name]

    @property
    def rows(self) -> int:
        """Unique rows."""
        return len(next(iter(self.columns.values())))

    def has(self, column: str, bit: int) -> NDArray[np.bool_]:
        """Where a set column holds the word of `bit`."""
        return (self.columns[column] >> bit & 1).astype(bool)


def complete(cols: Mapping[str, object]) -> dict[str, Ints]:
    """Every axis as a column of integers; columns that are missing take their default, scalars stay scalars (0-d)."""
    return {name: np.asarray(cols.get(name, default), np.int64) for name, default in DEFAULTS.items()}


def length(cols: Mapping[str, Ints]) -> int:
    """Rows of a set of columns; 1 where all are scalars."""
    return max((c.shape[0] for c in cols.values() if c.ndim), default=1)


def unique(cols: Mapping[str, Ints], names: Sequence[str], rows: int) -> Table:
    """The unique combinations of the columns `names`, in ascending order of their first differing column."""
    codes = np.zeros(rows, np.int64)
    size, values = 1, dict[str, Ints]()
    for name in names:
        values[name], index = _levels(cols[name])
        if len(values[name]) > 1:
            codes *= len(values[name])
            codes += index
            size *= len(values[name])
    kept, inverse = _compact(codes, size)
    return Table(_decode(kept, values), inverse)


def _levels(column: Ints) -> tuple[Ints, NDArray[np.intp]]:
    """The values that occur, ascending, and each row's index among them."""
    if column.ndim == 0 or not column.size:
        return column.reshape(-1)[:1], np.zeros(1, np.intp)
    top = int(column.max())
    if int(column.min()) < 0 or top >= FLAGS_UP_TO:
        values, index = np.unique(column, return_inverse=True)
        return values, index
    return _flagged(column, top + 1)


def _flagged(column: Ints, size: int) -> tuple[Ints, NDArray[np.intp]]:
    seen = np.zeros(size, bool)
    seen[column] = True
    return np.flatnonzero(seen), (np.cumsum(seen) - 1)[column]


def _compact(codes: Ints, size: int) -> tuple[Ints, NDArray[np.intp]]:
    if size <= FLAGS_UP_TO:
        return _flagged(codes, size)
    values, index = np.unique(codes, return_inverse=True)
    return values, index


def _decode(codes: Ints, values: Mapping[str, Ints]) -> dict[str, Ints]:
    out = dict[str, Ints]()
    for name in reversed(values):
        codes, at = np.divmod(codes, len(values[name]))
        out[name] = values[name][at]
    return out


def largest(profiles: Sequence[Floats], which: Ints, prices: Floats, at: NDArray[np.intp]) -> Floats:
    """For each row the largest over stages of profile x prices.

    `profiles[i]` is (stages, features); `which` says each row's profile; `prices` is (unique rows, features) and `at`
    each row's row in it. Rows are taken profile by profile, so that temporaries stay as small as the largest group.
    """
    order = np.argsort(which.astype(np.int16) if len(profiles) < 1 << 15 else which, kind="stable")
    ends = np.cumsum(np.bincount(which, minlength=len(profiles)))
    out = np.empty(len(which))
    start = 0
    for profile, end in zip(profiles, ends, strict=True):
        rows = order[start:end]
        out[rows] = (prices[at[rows]] @ profile.T).max(axis=1) if len(rows) else 0.0
        start = end
    return out


def undominated(profile: Floats) -> Floats:
    """The stages that no other stage reaches in every feature; prices are never negative, so one of them is the largest."""
    rows = np.unique(profile, axis=0)
    covers = (rows[:, None, :] >= rows[None, :, :]).all(axis=2)
    return rows[covers.sum(axis=0) == 1]
