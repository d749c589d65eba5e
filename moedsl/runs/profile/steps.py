"""Find the steps of a trace, and cut the operations of one step out of it.

Ranges of the host name the steps. Without them they are found by the bursts of the optimizer's kernels, or by another
operation that recurs, if the same work lies between any two of its launches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from attrs import frozen

from moedsl.runs.profile import trace
from moedsl.runs.profile.kinds import COMMUNICATION, Classes, Kind
from moedsl.runs.profile.trace import UNKNOWN, Ints, Numbered, Range, Trace, Union

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
        name = re.sub(r"\d+", "N", ranges[0].text)
        host = [(r.start, r.end) for r in ranges]
        # Whether operations run in the range of the host that launches them: the host does not run ahead
        inside = whole = 0
        for start, end in host:
            mine = (t.launched >= start) & (t.launched < end)
            whole += int((t.end[mine] - t.start[mine]).sum())
            inside += int(np.maximum(np.minimum(t.end[mine], end) - np.maximum(t.start[mine], start), 0).sum())
        if inside >= INSIDE * whole:
            return _steps("range", name, host)
        # Let a step of the device last from the end of what the step before launched to the end of what it launched
        each = (int(t.end[(t.launched >= a) & (t.launched < b)].max(initial=a)) for a, b in host)
        ends = [*accumulate(each, max)]
        before = int(t.end[(t.launched >= 0) & (t.launched < host[0][0])].max(initial=host[0][0]))
        starts = [before, *ends[:-1]]
        return _steps("range and launch", name, [(a, b) for a, b in zip(starts, ends, strict=True) if b > a])
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


def _of_optimizer(t: Trace, classes: Classes) -> Steps | None:
    """Let a step last from the end of one burst of the optimizer's kernels to the end of the next."""
    adam = np.array([classes.of(*text, t.on_cpu).name == OPTIMIZER for text in t.texts], bool)
    mine = adam[t.text] if len(t.text) else np.zeros(0, bool)
    windows = _between_bursts(t.start[mine], np.maximum.accumulate(t.end[mine])) if mine.any() else []
    return _steps("optimizer", "the optimizer's kernels", windows) if windows else None


def _of_recurring(t: Trace) -> Steps | None:
    found = recurring(t) if not t.on_cpu else None
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


LEAST, MOST = 3, 1000
"""The launches of an operation that may begin each step."""
TRIED = 50
"""Operations that are tried, the rarest first: what recurs in a step more often than once is no step's beginning."""
SAME_STEP = 0.05
"""The share of a step's operations in which it may differ from the median step: experts get other tokens."""
COVERED = 0.75
"""The share of the trace that its steps fill, at least. The layers of one step fill less, of forward or of backward."""
DIFFERENT = 2
"""A step has so many different operations, at least."""


def recurring(t: Trace) -> tuple[str, list[tuple[int, int]]] | None:
    """Return the name of an operation that begins each step, and the steps; None if there is none."""
    numbered = Numbered()
    name = np.array([numbered(text) for text, _ in t.texts], np.int64)[t.text]
    whole = int(t.end.max()) - int(t.start.min())
    for one in _candidates(name):
        at = np.flatnonzero(name == one)
        begins = t.start[at]
        if begins[-1] - begins[0] >= COVERED * whole and _alike(name, at, len(numbered.values)):
            return numbered.values[one], list(zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True))
    return None


def _candidates(name: Ints) -> Iterator[int]:
    counts = np.bincount(name)
    order = np.argsort(counts, kind="stable").tolist()
    yield from [i for i in order if LEAST <= counts[i] <= MOST][:TRIED]


def _alike(name: Ints, at: Ints, names: int) -> bool:
    """Whether the operations between any two launches at `at` are the same."""
    if len(at) * names > 1 << 24:
        return False
    each = np.array([np.bincount(name[a:b], minlength=names) for a, b in pairwise(at)])
    middle = np.median(each, axis=0)
    apart = np.abs(each - middle).sum(axis=1)
    return int((middle > 0).sum()) >= DIFFERENT and bool(np.all(apart <= SAME_STEP * middle.sum()))


@frozen
class Numbers:
    """The classes of a trace, numbered."""

    kinds: Sequence[Kind]
    of_text: Ints
    """For each of the trace's texts, the number of its class."""
    collectives: Sequence[tuple[str, str]]
    """The class and process group of collectives whose group is known."""
    of_collective: Ints
    """For each of the trace's texts, the number of its collective, or UNKNOWN."""

    @classmethod
    def of(cls, t: Trace, classes: Classes) -> Numbers:
        each = [classes.of(*text, t.on_cpu) for text in t.texts]
        number = {k: i for i, k in enumerate(dict.fromkeys(each))}
        sent = [(k.name, g) if g and k.block == COMMUNICATION else None for k, g in zip(each, t.groups, strict=True)]
        place = {c: i for i, c in enumerate(dict.fromkeys(filter(None, sent)))}
        return cls(
            list(number), np.array([number[k] for k in each], np.int64),
            list(place), np.array([UNKNOWN if c is None else place[c] for c in sent], np.int64),
        )  # fmt: skip

    def block(self, name: str) -> list[int]:
        """Return the numbers of the classes of a block."""
        return [i for i, k in enumerate(self.kinds) if k.block == name]


@frozen
class Window:
    """The operations of one step, clipped to it, in the order of their starts."""

    start: int
    end: int
    starts: Ints
    ends: Ints
    kind: Ints
    text: Ints
    launched: Ints
    begun: Ints
    """1 where an operation starts in the window."""
    after: tuple[int, int]
    """Launch and class of the first operation after the window; UNKNOWN if there is none."""

    @property
    def length(self) -> int:
        return self.end - self.start

    @property
    def work(self) -> Ints:
        return self.ends - self.starts

    def union(self, mask: Any) -> Union:
        return trace.union(self.starts[mask], self.ends[mask])


def cut(t: Trace, numbers: Numbers, start: int, end: int) -> Window:
    """Cut a window out of a trace."""
    mine = (t.start < end) & (t.end > start)
    begin, text = t.start[mine], t.text[mine]
    following = int(np.searchsorted(t.start, end))
    after = (UNKNOWN, UNKNOWN)
    if following < len(t.start):
        after = int(t.launched[following]), int(numbers.of_text[t.text[following]])
    return Window(
        start, end, np.maximum(begin, start), np.minimum(t.end[mine], end), numbers.of_text[text], text,
        t.launched[mine], (begin >= start) * t.first[mine], after,
    )  # fmt: skip
