"""Price the same rows again with another constant: only the parts that read it are computed anew."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from moedsl.classes.fields import evolve
from moedsl.schema.calibration import Constants
from moedsl.schema.facts import Hardware

T = TypeVar("T")


class Again:
    """The parts of a price with the constants that they read, as they were when each was first computed."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[dict[str, float], Any]] = {}

    def of(self, part: Hashable, hw: Hardware, price: Callable[[Hardware], T], after: Hashable = None) -> T:
        """Return a part that depends on its name and the machine alone, or also on another part before it."""
        if part not in self._known:
            watched = _Watched(hw.constants)
            value = price(evolve(hw, constants=watched))
            self._known[part] = watched.reads | (self._known[after][0] if after else {}), value
            return value
        read, value = self._known[part]
        same = [getattr(hw.constants, name) == known for name, known in read.items()]
        return value if all(same) else price(hw)


class Afresh(Again):
    """Nothing is known of a price that is computed once."""

    def of(self, part: Hashable, hw: Hardware, price: Callable[[Hardware], T], after: Hashable = None) -> T:
        return price(hw)


AFRESH = Afresh()


class _Watched(Constants):
    """Constants that note which of them are read."""

    def __init__(self, of: Constants) -> None:
        self.__dict__.update(_of=of, reads={})

    def __getattr__(self, name: str) -> Any:
        value = self.reads[name] = getattr(self.__dict__["_of"], name)
        return value

    reads: dict[str, float]
