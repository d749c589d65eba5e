"""Find the steps of a trace, cut out the operations of one step, and classify them.

Host ranges name the steps. Without such ranges, steps are found by bursts of optimizer kernels, or by another operation
that recurs with the same work between any two of its launches. Classes come from tables of name patterns, in blocks of
rules `of trace`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from attrs import define, field, frozen

from moedsl.lang import ast
from moedsl.rules import collect
from moedsl.rules.library import Library
from moedsl.rules.patterns import Pattern, UnusablePattern, compiled
from moedsl.rules.rule import Rule
from moedsl.runs.profile import trace
from moedsl.runs.profile.trace import UNKNOWN, Ints, Numbered, Range, Trace, Union
from moedsl.support.diagnostics import Diagnostic, error

OPTIMIZER = "optimizer"
STEADY = 1.5
"""A step longer than this many medians is not steady: it has a warm-up, or the profiler's start or end."""
INSIDE = 0.9
"""Host ranges are the steps if at least this share of operation time lies in the range that launched the operations."""
APART = 8
"""A gap between optimizer operations separates two bursts if it is longer than the longest gap divided by this."""
SAME = 0.05
"""Complete bursts of the optimizer have equally many operations, within this share; the trace may cut others."""


@frozen
class Steps:
    """The windows of complete steps on the device, in nanoseconds, and how they were found."""

    by: str
    """How they were found: range, range and launch, optimizer, or recurring."""
    name: str
    windows: tuple[tuple[int, int], ...]
    steady: tuple[bool, ...]

    @property
    def used(self) -> list[tuple[int, int]]:
        return [w for w, fine in zip(self.windows, self.steady, strict=True) if fine]


def find(t: Trace, classes: Classes) -> Steps | None:
    """Return the steps of a trace; None if none are found."""
    # The ranges of the first step pattern that matches any range, without ranges inside another
    places = [classes.step(r.text) for r in t.ranges]
    best = min((p for p in places if p is not None), default=None)
    ranges = list[Range]()
    for r, place in zip(t.ranges, places, strict=True):
        if place == best and r.end > r.start and (not ranges or r.start >= ranges[-1].end):
            ranges.append(r)
    if ranges:
        name = re.sub(r"\d+", "N", ranges[0].text)
        host = [(r.start, r.end) for r in ranges]
        # If operations run within the host range that launches them, the host does not run ahead
        inside = whole = 0
        for start, end in host:
            mine = (t.launched >= start) & (t.launched < end)
            whole += int((t.end[mine] - t.start[mine]).sum())
            inside += int(np.maximum(np.minimum(t.end[mine], end) - np.maximum(t.start[mine], start), 0).sum())
        if inside >= INSIDE * whole:
            return _steps("range", name, host)
        # A device step lasts from the end of the operations that the step before launched to the end of its own
        edges = [(0, host[0][0], host[0][0]), *((a, b, a) for a, b in host)]
        each = (int(t.end[(t.launched >= a) & (t.launched < b)].max(initial=least)) for a, b, least in edges)
        first, *ends = each
        ends = [first, *accumulate(ends, max)]
        return _steps("range and launch", name, [(a, b) for a, b in pairwise(ends) if b > a])
    # A step lasts from the end of one burst of optimizer kernels to the end of the next: bursts have equally many
    # operations, and gaps between bursts are far longer than gaps within them
    adam = np.array([classes.of(*text, t.on_cpu).name == OPTIMIZER for text in t.texts], bool)
    mine = adam[t.text] if len(t.text) else np.zeros(0, bool)
    start, end = t.start[mine], np.maximum.accumulate(t.end[mine])
    gaps = start[1:] - end[:-1]
    if len(gaps) and gaps.max() > 0:
        last = [*np.flatnonzero(gaps > gaps.max() / APART).tolist(), len(start) - 1]
        sizes = np.diff([-1, *last])
        whole = np.abs(sizes - np.median(sizes)) <= SAME * np.median(sizes)
        bursts = pairwise(zip(end[last].tolist(), whole.tolist(), strict=True))
        windows = [(a, b) for (a, first), (b, second) in bursts if first and second]
        if windows:
            return _steps("optimizer", "the optimizer's kernels", windows)
    found = recurring(t) if not t.on_cpu else None
    return found and _steps("recurring", f"{found[0]}, which recurs", found[1])


def _steps(by: str, name: str, windows: Sequence[tuple[int, int]]) -> Steps:
    lengths = [b - a for a, b in windows]
    middle = float(np.median(lengths)) if lengths else 0.0
    steady = tuple(x <= STEADY * middle for x in lengths) if len(lengths) > 2 else (True,) * len(lengths)
    return Steps(by, name, tuple(windows), steady)


LEAST, MOST = 3, 1000
"""The fewest and the most launches of an operation that may begin each step."""
TRIED = 50
"""The operations that are tried, the rarest first: one that recurs within a step does not begin it."""
SAME_STEP = 0.05
"""The share of a step's operations that may differ from the median step, because experts get other tokens."""
COVERED = 0.75
"""The least share of the trace that its steps fill. Layers that recur in one forward or backward pass fill less."""
DIFFERENT = 2
"""The fewest distinct operations of a step."""


def recurring(t: Trace) -> tuple[str, list[tuple[int, int]]] | None:
    """Return the name of an operation that begins each step, and the steps; None if there is none."""
    numbered = Numbered()
    name = np.array([numbered(text) for text, _ in t.texts], np.int64)[t.text]
    whole, names, counts = int(t.end.max()) - int(t.start.min()), len(numbered.values), np.bincount(name)
    rarest = np.argsort(counts, kind="stable").tolist()
    for one in [i for i in rarest if LEAST <= counts[i] <= MOST][:TRIED]:
        at = np.flatnonzero(name == one)
        begins = t.start[at]
        if begins[-1] - begins[0] < COVERED * whole or len(at) * names > 1 << 24:
            continue
        # Whether the operations between any two launches are the same
        each = np.array([np.bincount(name[a:b], minlength=names) for a, b in pairwise(at)])
        middle = np.median(each, axis=0)
        apart = np.abs(each - middle).sum(axis=1)
        if int((middle > 0).sum()) >= DIFFERENT and bool(np.all(apart <= SAME_STEP * middle.sum())):
            return numbered.values[one], list(zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True))
    return None


@frozen
class Numbers:
    """The classes of a trace's operations, as indices."""

    kinds: Sequence[Kind]
    of_text: Ints
    """For each of the trace's texts, the index of its class."""
    collectives: Sequence[tuple[str, str]]
    """The class and process group of each collective whose group is known."""
    of_collective: Ints
    """For each of the trace's texts, the index of its collective, or UNKNOWN."""

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
        """Return the indices of the classes in a block."""
        return [i for i, k in enumerate(self.kinds) if k.block == name]


@frozen
class Window:
    """The operations of one step, clipped to it and sorted by start."""

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
    """The launch time and the class of the first operation after the window; UNKNOWN if there is none."""

    @property
    def length(self) -> int:
        return self.end - self.start

    @property
    def work(self) -> Ints:
        return self.ends - self.starts

    def union(self, mask: Any) -> Union:
        return trace.union(self.starts[mask], self.ends[mask])


def cut(t: Trace, numbers: Numbers, start: int, end: int) -> Window:
    """Return the operations of a trace in a window."""
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


SUBJECT = "trace"
COMPUTE, COMMUNICATION, COPIES, STEPS, MEMORY = "compute", "communication", "copies", "steps", "memory"
OPERATIONS = (COMMUNICATION, COMPUTE, COPIES)
BLOCKS = (*OPERATIONS, STEPS, MEMORY)
"""The names of blocks `of trace`: classes of operations, host ranges that are steps, and kinds of memory."""
NO_CLASS = "unknown"
AROUND = " @ "
"""Separates the name of a kernel from the ranges around its launch, in a pattern that names both."""
HOST = "host"
"""The name of the range that patterns see around every operator of a CPU."""


@frozen
class Kind:
    """A class of operations: its block and its name."""

    block: str
    name: str


UNKNOWN_KIND = Kind(COMPUTE, NO_CLASS)


@define
class Classes:
    """The name patterns in the order in which they are tried: the run's own first, then the stdlib's."""

    rules: Sequence[Rule]
    patterns: list[tuple[Kind, Pattern, bool]] = field(init=False)
    known_steps: dict[str, int | None] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.patterns = [
            (Kind(r.id.split(".")[1], r.name), compiled(_pattern(r)), AROUND in _pattern(r))
            for r in sorted(self.rules, key=lambda r: r.is_std)
        ]

    def of(self, name: str, around: tuple[str, ...], on_cpu: bool = False) -> Kind:
        """Return the class of an operation, by its name and the ranges around it or its launch."""
        whole = name + AROUND + "/".join([HOST, *around] if on_cpu else around)
        fits = (k for k, p, inside in self.patterns if k.block in OPERATIONS and p.search(whole if inside else name))
        return next(fits, UNKNOWN_KIND)

    def step(self, text: str) -> int | None:
        """Return the index of the first step pattern that a range's name matches; None if it is not a step."""
        if text not in self.known_steps:  # a trace has millions of ranges
            steps = (p for k, p, _ in self.patterns if k.block == STEPS)
            self.known_steps[text] = next((i for i, p in enumerate(steps) if p.search(text)), None)
        return self.known_steps[text]

    def memory(self, frame: str) -> str | None:
        """Return the kind of an allocation from one stack frame of the code that made it; None if no pattern
        matches."""
        return next((k.name for k, p, _ in self.patterns if k.block == MEMORY and p.search(frame)), None)


def read(library: Library) -> tuple[Classes, list[Diagnostic]]:
    """Read a library's blocks `of trace`; return its classes, empty if anything is wrong, and the diagnostics."""
    found: list[Diagnostic] = []
    rules: list[Rule] = []
    of_trace = [
        (prefix, b, m) for prefix, b in library.rules if b.subject and b.subject.id == SUBJECT for m in b.members
    ]
    for prefix, block, member in of_trace:
        rule = collect.read_rule(prefix, block, member, found)
        if block.name.id not in BLOCKS:
            names = ", ".join(BLOCKS)
            found.append(error("check.trace_member:block", block.name.span, blocks=names, block=block.name.id))
        elif rule.kind != "symptom":
            found.append(error("check.trace_member:decides", rule.span, kind=rule.kind))
        else:
            rules.append(rule)
            try:
                compiled(_pattern(rule))
            except UnusablePattern as e:
                found.append(error("check.pattern", str(e), rule.expr.span, help=e.help))
    return Classes([] if found else rules), found


def _pattern(rule: Rule) -> str:
    assert isinstance(rule.expr, ast.String)
    return rule.expr.value
