"""Follow nested ranges of threads: which ranges enclose a moment, and which part of a range is its own.

A range that outlives the one in which it begins is asynchronous: work that was started there and is awaited later. It
encloses nothing, and takes no time from the ranges around it. PyTorch's own sums leave such ranges out too
(autograd/profiler_util.py, _populate_cpu_children).
"""

from __future__ import annotations

from array import array
from itertools import pairwise

import numpy as np
from attrs import define, field

from moedsl.runs.profile.trace import Ints, Numbered, Spans, ordered

ROOT = 0
"""The path outside all ranges."""
ROUNDED = 1000
"""Nanoseconds by which a nested range may seem to outlive its parent: older PyTorch writes whole microseconds."""


@define
class Paths:
    """Number the paths of names from the outermost range inward, each as its parent and a name."""

    names: Numbered
    nodes: Numbered = field(factory=lambda: Numbered([(-1, -1)], {(-1, -1): ROOT}))

    def below(self, path: int, name: int) -> int:
        return self.nodes((path, name))

    def of(self, path: int) -> tuple[str, ...]:
        """Return the names on a path; a name that repeats its parent's counts once. An unknown path has none."""
        out: list[str] = []
        while path > ROOT:
            path, name = self.nodes.values[path]
            text = self.names.values[name]
            if not out or out[-1] != text:
                out.append(text)
        return tuple(reversed(out))


def _order(start: Ints, end: Ints, place: Ints) -> Ints:
    """Sort by thread and start; of ranges that start together the longest is first."""
    return np.lexsort((-end, start, place))


def enclosing(ranges: Spans, moments: Ints, places: Ints, paths: Paths) -> Ints:
    """Return the path of ranges that encloses each moment on its thread."""
    c = ranges.columns()
    n = len(ranges)
    start = np.concatenate([c["start"], moments])
    end = np.concatenate([c["end"], moments])
    place = np.concatenate([c["place"], places])
    out = np.zeros(len(moments), np.int64)
    stack: list[tuple[int, int]] = []
    last = None
    for i, begin, until, thread in ordered(_order(start, end, place), start, end, place):
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
    """The parts of ranges; the name of a part is the path of its range."""

    first: array[int] = field(factory=lambda: array("b"))
    """1 where a part is the first of its range."""


@define
class _Open:
    """A range that has begun."""

    end: int
    path: int
    is_new: int = 1
    """1 until it has a part."""


def own_parts(ranges: Spans, paths: Paths) -> Parts:
    """Return the parts of each range that no range inside it covers, and asynchronous ranges whole."""
    out = Parts()
    c = ranges.columns()
    order = _order(c["start"], c["end"], c["place"])
    # Yield the slice of each thread in sorted places
    places = c["place"][order]
    cuts = [0, *(np.flatnonzero(np.diff(places)) + 1).tolist(), len(places)]
    for thread in (slice(a, b) for a, b in pairwise(cuts) if b > a):
        _own_of_thread(ranges, order[thread], paths, out)
    return out


def _own_of_thread(ranges: Spans, order: Ints, paths: Paths, out: Parts) -> None:
    stack: list[_Open] = []
    reached = 0
    place = ranges.place[int(order[0])]
    for i in order.tolist():
        begin = ranges.start[i]
        reached = _close(stack, begin, reached, place, out)
        mine = _Open(ranges.end[i], paths.below(stack[-1].path if stack else ROOT, ranges.name[i]))
        if stack and _outlives(mine.end, stack[-1].end):
            _add(mine, begin, mine.end, place, out)
            continue
        if stack and begin > reached:
            _add(stack[-1], reached, begin, place, out)
        reached = max(reached, begin)
        stack.append(mine)
    _close(stack, max((r.end for r in stack), default=0) + 1, reached, place, out)


def _outlives(end: int, around: int) -> bool:
    return end > around + ROUNDED


def _close(stack: list[_Open], moment: int, reached: int, place: int, out: Parts) -> int:
    """Close the ranges that end before a moment; returns the end of what is covered."""
    while stack and stack[-1].end <= moment:
        closed = stack.pop()
        if closed.end > reached:
            _add(closed, reached, closed.end, place, out)
            reached = closed.end
    return reached


def _add(r: _Open, start: int, end: int, place: int, out: Parts) -> None:
    out.add(start, end, r.path, place)
    out.first.append(r.is_new)
    r.is_new = 0
