"""Find the steps of a trace: ranges of the host that name them, else the optimizer's kernels or others, which recur."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from attrs import frozen

from moedsl.runs.profile import recurring
from moedsl.runs.profile.kinds import Classes
from moedsl.runs.profile.trace import Ints, Range, Trace

OPTIMIZER = "optimizer"
STEADY = 1.5
"""A step longer than this many medians is no steady one: a warm-up, or the profiler at its start or end."""
INSIDE = 0.9
"""The least share of a step's operations, by time, that run while its range of the host lasts."""
APART = 8
"""The longest gap between operations of the optimizer is this many times longer than those inside a burst of them."""
SAME = 0.05
"""Bursts of the optimizer have equally many operations, within this share; the trace may begin or end in one."""


@frozen
class Steps:
    """The windows of complete steps on the device, in nanoseconds, and how they were found."""

    by: str
    """range, range and launch, optimizer, or recurring."""
    name: str
    windows: tuple[tuple[int, int], ...]
    steady: tuple[bool, ...]

    @property
    def used(self) -> list[tuple[int, int]]:
        return [w for w, fine in zip(self.windows, self.steady, strict=True) if fine]


def find(t: Trace, classes: Classes) -> Steps | None:
    """Find the steps, or return None."""
    ranges = _named(t.ranges, classes)
    if ranges:
        return _of_ranges(t, ranges)
    return _of_optimizer(t, classes) or _of_recurring(t)


def _named(ranges: Sequence[Range], classes: Classes) -> list[Range]:
    """Take the ranges of the first pattern of steps that any matches; without those inside another of them."""
    places = [classes.step(r.text) for r in ranges]
    first = min((p for p in places if p is not None), default=None)
    out: list[Range] = []
    for r, place in zip(ranges, places, strict=True):
        if place == first and r.end > r.start and (not out or r.start >= out[-1].end):
            out.append(r)
    return out


def _of_ranges(t: Trace, ranges: Sequence[Range]) -> Steps:
    name = re.sub(r"\d+", "N", ranges[0].text)
    host = [(r.start, r.end) for r in ranges]
    if _inside(t, host):
        return _steps("range", name, host)
    return _steps("range and launch", name, _by_launch(t, host))


def _inside(t: Trace, host: Sequence[tuple[int, int]]) -> bool:
    """Whether operations run in the range of the host that launches them: the host does not run ahead."""
    inside = whole = 0
    for start, end in host:
        mine = (t.launched >= start) & (t.launched < end)
        whole += int((t.end[mine] - t.start[mine]).sum())
        inside += int(np.maximum(np.minimum(t.end[mine], end) - np.maximum(t.start[mine], start), 0).sum())
    return inside >= INSIDE * whole


def _by_launch(t: Trace, host: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Let a step of the device last from the end of what the step before launched to the end of what it launched."""
    each = (int(t.end[(t.launched >= a) & (t.launched < b)].max(initial=a)) for a, b in host)
    ends = [*accumulate(each, max)]
    before = int(t.end[(t.launched >= 0) & (t.launched < host[0][0])].max(initial=host[0][0]))
    starts = [before, *ends[:-1]]
    return [(a, b) for a, b in zip(starts, ends, strict=True) if b > a]


def _of_optimizer(t: Trace, classes: Classes) -> Steps | None:
    """Let a step last from the end of one burst of the optimizer's kernels to the end of the next."""
    adam = np.array([classes.of(*text, t.on_cpu).name == OPTIMIZER for text in t.texts], bool)
    mine = adam[t.text] if len(t.text) else np.zeros(0, bool)
    windows = _between_bursts(t.start[mine], np.maximum.accumulate(t.end[mine])) if mine.any() else []
    return _steps("optimizer", "the optimizer's kernels", windows) if windows else None


def _of_recurring(t: Trace) -> Steps | None:
    found = recurring.anchor(t) if not t.on_cpu else None
    return found and _steps("recurring", f"{found[0]}, which recurs", found[1])


def _between_bursts(start: Ints, end: Ints) -> list[tuple[int, int]]:
    """Return the windows between the ends of bursts of equally many operations; the gaps between bursts are far longer
    than those in them."""
    gaps = start[1:] - end[:-1]
    if not len(gaps) or gaps.max() <= 0:
        return []
    last = [*np.flatnonzero(gaps > gaps.max() / APART).tolist(), len(start) - 1]
    sizes = np.diff([-1, *last])
    whole = np.abs(sizes - np.median(sizes)) <= SAME * np.median(sizes)
    pairs = zip(last, last[1:], whole, whole[1:], strict=False)
    return [(int(end[a]), int(end[b])) for a, b, first, second in pairs if first and second]


def _steps(by: str, name: str, windows: Sequence[tuple[int, int]]) -> Steps:
    lengths = [b - a for a, b in windows]
    middle = float(np.median(lengths)) if lengths else 0.0
    steady = tuple(x <= STEADY * middle for x in lengths) if len(lengths) > 2 else (True,) * len(lengths)
    return Steps(by, name, tuple(windows), steady)
