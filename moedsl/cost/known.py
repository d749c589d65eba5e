"""Keep the prices of rows: searches of one space price many rows again, and a few rows take as long as hundreds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from moedsl.cost.rows import FEW, Floats, Table

MOST = 50_000
"""Rows whose prices are kept."""


class Known:
    """The prices of the rows of small tables, by what they depend on."""

    def __init__(self) -> None:
        self._kept: dict[bytes, Floats] = {}

    def prices(self, t: Table, names: Sequence[str], price: Callable[[Table], Floats], many: bool = False) -> Floats:
        """Return `price(t)`, (..., rows), which depends on the named columns; of few rows, or if `many` are kept too,
        only new ones are priced."""
        if t.rows > (MOST if many else FEW):
            return np.concatenate([price(part) for part in t.parts()], axis=-1)
        if len(self._kept) > MOST:
            self._kept = {}
        kept, keys = self._kept, _keys(t, names)
        if new := {key: i for i, key in enumerate(keys) if key not in kept}:
            kept.update(zip(new, np.moveaxis(price(t.take([*new.values()])), -1, 0), strict=True))
        return np.stack([kept[key] for key in keys], axis=-1)


def _keys(t: Table, names: Sequence[str]) -> list[bytes]:
    rows = np.empty((t.rows, len(names)), np.int64)
    for i, name in enumerate(names):
        rows[:, i] = t[name]
    return rows.view(f"V{8 * len(names)}").ravel().tolist()
