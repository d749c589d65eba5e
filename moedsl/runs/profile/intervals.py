"""Unions of intervals: time is the length of a union, never a sum of durations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from moedsl.runs.profile.trace import Ints


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
