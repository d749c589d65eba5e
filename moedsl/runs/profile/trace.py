"""One rank's trace: the operations of its device in arrays, with their names, launches and enclosing ranges.

Time is the length of a union of intervals, never a sum of durations.

Ranges nest on each thread: this shows which ranges enclose a moment, and which part of a range no inner range covers. A
range that outlives its parent is asynchronous: work that was started there and is awaited later. It encloses nothing,
and takes no time from the ranges around it. PyTorch's own sums leave such ranges out too (autograd/profiler_util.py,
_populate_cpu_children).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray

Ints = NDArray[np.int64]
IsStep = Callable[[str], bool]
UNKNOWN = -1
"""Stands for an unknown launch, range or process group."""

BLOCK = 1 << 16
"""Rows that are converted to plain numbers at the same time."""


class Malformed(ValueError):
    """Raised for a text that is not a valid trace; says what is wrong."""


class Truncated(Malformed):
    """Raised for a text that ends inside a value or before its last bracket."""


@frozen
class Range:
    """What the host did from `start` to `end`, in nanoseconds."""

    text: str
    start: int
    end: int


@frozen
class Trace:
    """The operations of one rank's device, sorted by start; times are nanoseconds of the trace's own clock."""

    name: str
    """The name of the file, with the process or device if the file has several."""
    tool: str
    rank: int | None
    world: int | None
    device: str
    start: Ints
    end: Ints
    text: Ints
    """Each operation's index into `texts`, which has its name and enclosing ranges."""
    launched: Ints
    """When the host began to launch each operation, or UNKNOWN."""
    first: Ints
    """1, or 0 for the later parts of a host operation that nested ones interrupt."""
    texts: Sequence[tuple[str, tuple[str, ...]]]
    """Pairs of an operation's name and the names of the ranges around its launch, the outermost first."""
    groups: Sequence[str]
    """For each of `texts`, the process group of a collective, or an empty string."""
    ranges: Sequence[Range]
    """The host's ranges that may be steps."""
    on_cpu: bool = False
    """Whether the operations are the host's own, because no device was traced."""
    warnings: tuple[str, ...] = ()
    """Warnings about the trace, such as events that its tool lost."""
    is_cut: bool = False
    """Whether the file has more operations than are read."""


@define
class Numbered:
    """Numbers distinct values in the order of their first use; raises Malformed for more than `most`."""

    values: list[Any] = field(factory=list)
    known: dict[Hashable, int] = field(factory=dict)
    most: int = 1 << 22

    def __call__(self, value: Hashable) -> int:
        at = self.known.get(value)
        if at is None:
            at = self.known[value] = len(self.values)
            self.values.append(value)
            if at >= self.most:
                raise Malformed(f"it has more than {self.most:,} different names, threads or process groups")
        return at


@define
class Spans:
    """Spans in typed arrays, a few bytes each: start, end, name, and the thread or stream."""

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
    """Return the entries of `columns` in the row of each wanted id; UNKNOWN where no row has the id."""
    if not len(ids):
        return [np.full(len(wanted), UNKNOWN, np.int64) for _ in columns]
    order = np.argsort(ids, kind="stable")
    at = order[np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)]
    return [np.where(ids[at] == wanted, column[at], UNKNOWN) for column in columns]


def rows(*columns: Ints) -> Iterator[tuple[int, ...]]:
    """Yield the rows of equally long columns as plain numbers, a block at a time."""
    for at in range(0, len(columns[0]), BLOCK):
        yield from zip(*(c[at : at + BLOCK].tolist() for c in columns), strict=True)


class Union(NamedTuple):
    """Intervals that neither overlap nor touch, sorted."""

    start: Ints
    end: Ints

    @property
    def length(self) -> int:
        return int((self.end - self.start).sum())


def union(start: Ints, end: Ints) -> Union:
    """Join intervals that overlap or touch; they may be in any order."""
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


def outside(some: Union, others: Union) -> int:
    """Return the length of `some` outside `others`."""
    return joined(some, others).length - others.length


def gaps(busy: Union, start: int, end: int) -> Union:
    """Return the parts of a window that a union inside it does not cover."""
    starts = np.concatenate([np.array([start], np.int64), busy.end])
    ends = np.concatenate([busy.start, np.array([end], np.int64)])
    filled = ends > starts
    return Union(starts[filled], ends[filled])


ROOT = 0
"""The path outside all ranges."""
ROUNDED = 1000
"""Nanoseconds by which a nested range may seem to outlive its parent: older PyTorch writes whole microseconds."""


@define
class Paths:
    """Numbers the paths of nested ranges, from the outermost name inward; a path is stored as its parent path and a
    name."""

    names: Numbered
    nodes: Numbered = field(factory=lambda: Numbered([(-1, -1)], {(-1, -1): ROOT}))

    def below(self, path: int, name: int) -> int:
        return self.nodes((path, name))

    def of(self, path: int) -> tuple[str, ...]:
        """Return the names on a path, without a name that repeats its parent's; empty for an unknown path."""
        out: list[str] = []
        while path > ROOT:
            path, name = self.nodes.values[path]
            text = self.names.values[name]
            if not out or out[-1] != text:
                out.append(text)
        return tuple(reversed(out))


def _order(start: Ints, end: Ints, place: Ints) -> Ints:
    """Return the order by thread and start; of ranges that start together, the longest is first."""
    return np.lexsort((-end, start, place))


def enclosing(ranges: Spans, moments: Ints, places: Ints, paths: Paths) -> Ints:
    """Return the path of the ranges around each moment on its thread."""
    c = ranges.columns()
    n = len(ranges)
    start = np.concatenate([c["start"], moments])
    end = np.concatenate([c["end"], moments])
    place = np.concatenate([c["place"], places])
    out = np.zeros(len(moments), np.int64)
    stack: list[tuple[int, int]] = []
    last = None
    order = _order(start, end, place)
    for i, begin, until, thread in rows(order, start[order], end[order], place[order]):
        if thread != last:
            stack, last = [], thread
        while stack and stack[-1][0] <= begin:
            stack.pop()
        path = stack[-1][1] if stack else ROOT
        if i >= n:
            out[i - n] = path
        elif not (stack and _outlives(until, stack[-1][0])):
            stack.append((until, paths.below(path, ranges.name[i])))
    return out


@define
class Parts(Spans):
    """Parts of ranges; `name` is the path of a part's range."""

    first: array[int] = field(factory=lambda: array("b"))
    """1 where a part is the first of its range."""


@define
class _Open:
    """A range that has begun and not yet ended."""

    end: int
    path: int
    place: int
    is_new: int = 1
    """1 until its first part is added."""


def own_parts(ranges: Spans, paths: Paths) -> Parts:
    """Return the parts of each range that no range inside it covers, and asynchronous ranges whole."""
    out, stack, last, reached = Parts(), list[_Open](), None, 0  # all time before `reached` is in a part

    def add(r: _Open, start: int, end: int) -> None:
        out.add(start, end, r.path, r.place)
        out.first.append(r.is_new)
        r.is_new = 0

    def close(moment: float) -> None:
        """Close the ranges that end by a moment."""
        nonlocal reached
        while stack and stack[-1].end <= moment:
            closed = stack.pop()
            if closed.end > reached:
                add(closed, reached, closed.end)
                reached = closed.end

    c = ranges.columns()
    order = _order(c["start"], c["end"], c["place"])
    for begin, end, name, place in rows(*(c[n][order] for n in ("start", "end", "name", "place"))):
        if place != last:
            close(inf)
            last, reached = place, 0
        close(begin)
        around = stack[-1] if stack else None
        mine = _Open(end, paths.below(around.path if around else ROOT, name), place)
        if around and _outlives(end, around.end):
            add(mine, begin, end)
            continue
        if around and begin > reached:
            add(around, reached, begin)
        reached = max(reached, begin)
        stack.append(mine)
    close(inf)
    return out


def _outlives(end: int, around: int) -> bool:
    return end > around + ROUNDED
