"""Meshes in the order of their bounds, sorted only as far as somebody reads."""

from __future__ import annotations

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

Index = NDArray[np.intp]
Floats = NDArray[np.float64]
SORTED, GROWTH = 4096, 4
"""How many are sorted at first, and how that grows."""


@define
class Queue:
    """Some meshes, best bound first. `bounds` is (keys, all meshes), the first key the most significant."""

    bounds: Floats
    _rest: Index
    _keys: Floats = field(init=False)
    """The keys that differ, of all meshes; the others order nothing."""
    _sorted: Index = field(init=False, factory=lambda: np.zeros(0, dtype=np.intp))

    def __attrs_post_init__(self) -> None:
        mine = self.bounds if len(self._rest) == self.bounds.shape[1] else self.bounds[:, self._rest]
        varies = [bool(len(k)) and bool(k.min() < k.max()) for k in mine]
        self._keys = self.bounds[varies]

    def read(self, start: int, count: int) -> Index:
        """Meshes from a position on, in order; fewer where there are no more."""
        while len(self._sorted) < start + count and len(self._rest):
            self._extend(max(SORTED, GROWTH * len(self._sorted), start + count - len(self._sorted)))
        return self._sorted[start : start + count]

    def _extend(self, count: int) -> None:
        """Sorts the next ones, and whatever ties with the last of them in the first key."""
        part, self._rest = self._split(count)
        order = np.lexsort(self._keys[::-1, part]) if len(self._keys) else np.arange(len(part))
        self._sorted = np.concatenate([self._sorted, part[order]])

    def _split(self, count: int) -> tuple[Index, Index]:
        if count >= len(self._rest) or not len(self._keys):
            return self._rest, self._rest[:0]
        first = self._keys[0, self._rest]
        near = first <= np.partition(first, count)[count]
        return self._rest[near], self._rest[~near]
