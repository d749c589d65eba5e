"""One rank's trace: the operations of its device in arrays, with their names, launches and enclosing ranges.

The readers collect spans here, also those that a trace states as two events, `B` where one begins and `E` where it
ends. Time is the length of a union of intervals, never a sum of durations.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray

Ints = NDArray[np.int64]
UNKNOWN = -1
"""An operation without a launch, a range or a process group."""

BLOCK = 1 << 16
"""Rows that are plain numbers at the same time."""


@frozen
class Range:
    """What the host did from `start` to `end`, in nanoseconds."""

    text: str
    start: int
    end: int


@frozen
class Trace:
    """What one rank's device did, in the order of the starts; times are nanoseconds of the trace's own clock."""

    name: str
    """The file, and the process or device if it holds several."""
    tool: str
    rank: int | None
    world: int | None
    device: str
    start: Ints
    end: Ints
    text: Ints
    """The index of its name and its enclosing ranges in `texts`."""
    launched: Ints
    """When the host began to launch it, or UNKNOWN."""
    first: Ints
    """1, and 0 for the later parts of an operation of the host that others interrupt."""
    texts: Sequence[tuple[str, tuple[str, ...]]]
    """Pairs of the operation's name, and the names of the ranges around its launch, the outermost first."""
    groups: Sequence[str]
    """For each of `texts`, the process group of a collective, or an empty text."""
    ranges: Sequence[Range]
    """The ranges of the host that may be steps."""
    on_cpu: bool = False
    """Whether the operations are the host's own, because no device was traced."""
    warnings: tuple[str, ...] = ()
    """What the tool that wrote the trace warns of, such as events that it lost."""


@define
class Numbered:
    """Number different values in the order of their first use."""

    values: list[Any] = field(factory=list)
    known: dict[Hashable, int] = field(factory=dict)

    def __call__(self, value: Hashable) -> int:
        at = self.known.get(value)
        if at is None:
            at = self.known[value] = len(self.values)
            self.values.append(value)
        return at


@define
class Spans:
    """Collect spans in typed arrays, a few bytes each: start, end, name, and the thread or stream."""

    start: array[int] = field(factory=lambda: array("q"))
    end: array[int] = field(factory=lambda: array("q"))
    name: array[int] = field(factory=lambda: array("i"))
    place: array[int] = field(factory=lambda: array("i"))

    def add(self, start: int, end: int, name: int, place: int) -> None:
        self.start.append(start)
        self.end.append(end)
        self.name.append(name)
        self.place.append(place)

    def __len__(self) -> int:
        return len(self.start)

    def columns(self) -> Mapping[str, Ints]:
        names = ("start", "end", "name", "place")
        return {n: np.asarray(getattr(self, n), dtype=np.int64) for n in names}


def matched(wanted: Ints, ids: Ints, columns: Sequence[Ints]) -> list[Ints]:
    """Look up each wanted id: the entries of `columns` at that id, UNKNOWN where no row has it."""
    if not len(ids):
        return [np.full(len(wanted), UNKNOWN, np.int64) for _ in columns]
    order = np.argsort(ids, kind="stable")
    at = order[np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)]
    return [np.where(ids[at] == wanted, column[at], UNKNOWN) for column in columns]


def ordered(order: Ints, *columns: Ints) -> Iterator[tuple[int, ...]]:
    """Yield the numbers in `order`, each with its row of the columns."""
    for at in range(0, len(order), BLOCK):
        some = order[at : at + BLOCK]
        yield from zip(some.tolist(), *(c[some].tolist() for c in columns), strict=True)


def rows(*columns: Ints) -> Iterator[tuple[int, ...]]:
    """Yield the rows of equally long columns as plain numbers, a block at a time."""
    for at in range(0, len(columns[0]), BLOCK):
        yield from zip(*(c[at : at + BLOCK].tolist() for c in columns), strict=True)


class Union(NamedTuple):
    """Intervals that do not touch, in order."""

    start: Ints
    end: Ints

    @property
    def length(self) -> int:
        return int((self.end - self.start).sum())


def union(start: Ints, end: Ints) -> Union:
    """Join intervals that overlap or touch; they need no order."""
    filled = end > start
    start, end = start[filled], end[filled]
    if not len(start):
        return Union(start, end)
    order = np.argsort(start, kind="stable")
    start, reached = start[order], np.maximum.accumulate(end[order])
    first = np.concatenate([[True], start[1:] > reached[:-1]])
    last = np.concatenate([first[1:], [True]])
    return Union(start[first], reached[last])


def joined(*unions: Union) -> Union:
    """Join several unions."""
    return union(np.concatenate([u.start for u in unions]), np.concatenate([u.end for u in unions]))


def alone(some: Union, others: Union) -> int:
    """Return the length of `some` outside `others`."""
    return joined(some, others).length - others.length


def gaps(busy: Union, start: int, end: int) -> Union:
    """Return what a window has outside a union that lies in it."""
    starts = np.concatenate([np.array([start], np.int64), busy.end])
    ends = np.concatenate([busy.start, np.array([end], np.int64)])
    filled = ends > starts
    return Union(starts[filled], ends[filled])


END, NOT_KEPT = -1, -2


@define
class EventPairs:
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
