"""Join spans that a trace states as two events, `B` where one begins and `E` where it ends."""

from __future__ import annotations

from array import array

import numpy as np
from attrs import define, field

from moedsl.runs.profile.trace import Spans, ordered

END, NOT_KEPT = -1, -2


@define
class Halves:
    """Collect the beginnings and ends; those of one thread are nested."""

    into: tuple[Spans, ...]
    """Where the spans are kept."""
    at: array[int] = field(factory=lambda: array("q"))
    thread: array[int] = field(factory=lambda: array("i"))
    row: array[int] = field(factory=lambda: array("q"))
    """The span that begins, as its row and its place in `into`; END, or NOT_KEPT."""

    def begin(self, at: int, thread: int, spans: Spans | None) -> None:
        """Add a beginning; its span is the last of `spans`."""
        place = next((i for i, s in enumerate(self.into) if s is spans), None)
        self._add(at, thread, NOT_KEPT if spans is None or place is None else (len(spans) - 1) * len(self.into) + place)

    def end(self, at: int, thread: int) -> None:
        self._add(at, thread, END)

    def _add(self, at: int, thread: int, row: int) -> None:
        self.at.append(at)
        self.thread.append(thread)
        self.row.append(row)

    def join(self) -> int:
        """Set the ends of the spans; returns how many halves have no other."""
        at, thread, row = (np.asarray(c, np.int64) for c in (self.at, self.thread, self.row))
        order = np.lexsort((at, thread))  # stable: at the same time the order of the file
        left, last = 0, None
        begun: list[int] = []
        for _, when, where, one in ordered(order, at, thread, row):
            if where != last:
                left, begun, last = left + len(begun), [], where
            if one != END:
                begun.append(one)
            elif begun:
                self._set(begun.pop(), when)
            else:
                left += 1
        return left + len(begun)

    def _set(self, one: int, end: int) -> None:
        if one != NOT_KEPT:
            at, place = divmod(one, len(self.into))
            self.into[place].end[at] = end
