"""Keep values pickled by name, so that only those that somebody reads are read."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from typing import TypeVar

V = TypeVar("V")


class Packed(Mapping[str, V]):
    """Values by name; each is unpickled when it is first read."""

    def __init__(self, values: Mapping[str, V]) -> None:
        self._packed = {name: pickle.dumps(value, pickle.HIGHEST_PROTOCOL) for name, value in values.items()}
        self._read: dict[str, V] = {}

    def with_more(self, values: Mapping[str, V], most: int) -> Packed[V]:
        """These and more values, the last `most` of them."""
        made = Packed(values)
        made._packed = dict([*self._packed.items(), *made._packed.items()][-most:])
        return made

    def __getitem__(self, name: str) -> V:
        if name not in self._read:
            self._read[name] = pickle.loads(self._packed[name])
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        return name in self._packed

    def __iter__(self) -> Iterator[str]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)
