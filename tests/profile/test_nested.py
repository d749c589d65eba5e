"""Unions of intervals and nested ranges, compared with a timeline that is painted moment by moment."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from moedsl.runs.profile import trace
from moedsl.runs.profile.trace import Numbered, Paths, Spans

END = 24
SPANS = st.lists(st.tuples(st.integers(0, END), st.integers(0, END)).map(sorted).map(tuple), max_size=6)
Pairs = list[tuple[int, int]]


def painted(spans: Pairs) -> set[int]:
    return {t for a, b in spans for t in range(a, b)}


def made(spans: Pairs) -> trace.Union:
    start, end = (np.array([s[i] for s in spans], np.int64) for i in (0, 1))
    return trace.union(start, end)


@settings(deadline=None)
@given(SPANS, SPANS)
def test_unions(some: Pairs, others: Pairs) -> None:
    a, b = made(some), made(others)
    assert painted(list(zip(a.start.tolist(), a.end.tolist(), strict=True))) == painted(some)
    assert a.length == len(painted(some))
    assert (a.start[1:] > a.end[:-1]).all()
    assert trace.joined(a, b).length == len(painted(some) | painted(others))
    assert trace.alone(a, b) == len(painted(some) - painted(others))
    gaps = trace.gaps(a, 0, END)
    assert painted(list(zip(gaps.start.tolist(), gaps.end.tolist(), strict=True))) == {*range(END)} - painted(some)


@st.composite
def trees(draw: st.DrawFn, start: int = 0, end: int = END) -> Pairs:
    """Draw ranges that nest, as those of one thread do."""
    out: Pairs = []
    at = start
    while at < end and draw(st.booleans()):
        a = draw(st.integers(at, end - 1))
        b = draw(st.integers(a + 1, end))
        out.append((a, b))
        if b - a < end - start:
            out += draw(trees(a, b))
        at = b
    return out


@settings(deadline=None)
@given(st.lists(trees(), min_size=1, max_size=3), st.randoms())
def test_nested_ranges(threads: list[Pairs], order: object) -> None:
    flat = [(a, b, thread) for thread, tree in enumerate(threads) for a, b in tree]
    order.shuffle(flat)  # type: ignore[attr-defined]
    names = Numbered()
    ranges = Spans()
    for a, b, thread in flat:
        ranges.add(a, b, names(f"{a}-{b}"), thread)
    moments = [(t, thread) for thread in range(len(threads)) for t in range(END)]
    paths = Paths(names)
    at, place = (np.array([m[i] for m in moments], np.int64) for i in (0, 1))
    found = trace.enclosing(ranges, at, place, paths)
    for (t, thread), path in zip(moments, found.tolist(), strict=True):
        around = {s for s in threads[thread] if s[0] <= t < s[1]}
        assert {*paths.of(path)} == {f"{a}-{b}" for a, b in around}

    parts = trace.own_parts(ranges, paths)
    c = parts.columns()
    for thread, tree in enumerate(threads):
        mine = [(int(a), int(b)) for a, b, p in zip(c["start"], c["end"], c["place"], strict=True) if p == thread]
        assert sum(b - a for a, b in mine) == len(painted(mine)) == len(painted(tree))
    for a, b, path, thread in zip(c["start"], c["end"], c["name"], c["place"], strict=True):
        for t in range(int(a), int(b)):
            inner = min((s for s in threads[thread] if s[0] <= t < s[1]), key=lambda s: s[1] - s[0])
            assert paths.of(int(path))[-1] == f"{inner[0]}-{inner[1]}"


@settings(deadline=None)
@given(trees(), st.lists(st.tuples(st.integers(0, END - 1), st.integers(1, END)), max_size=4), st.randoms())
def test_what_outlives_the_range_that_begins_it(tree: Pairs, drawn: Pairs, order: random.Random) -> None:
    """It is asynchronous: it has its own time whole, and the others keep theirs and their paths."""
    unit = 2 * trace.ROUNDED
    tree = [(a * unit, b * unit) for a, b in tree]
    late: Pairs = []
    for at, length in drawn:
        start = at * unit + trace.ROUNDED
        around = [b for a, b in tree if a < start < b]
        late += [(start, min(around) + length * unit)] if around else []

    names, flat = Numbered(), [(s, f"{s}") for s in tree] + [(s, "late") for s in late]
    order.shuffle(flat)
    found = []
    for kept in (flat, [x for x in flat if x[1] != "late"]):
        ranges, paths = Spans(), Paths(names)
        for (a, b), name in kept:
            ranges.add(a, b, names(name), 0)
        moments = np.arange(0, END * unit, trace.ROUNDED, dtype=np.int64)
        around = trace.enclosing(ranges, moments, np.zeros(len(moments), np.int64), paths)
        parts = trace.own_parts(ranges, paths)
        rows = zip(parts.start, parts.end, (paths.of(path) for path in parts.name), strict=True)
        found.append((sorted(rows), [paths.of(path) for path in around.tolist()]))
    (parts, around), (others, without) = found
    assert around == without
    assert [p for p in parts if p[2][-1] != "late"] == others
    assert sorted((a, b) for a, b, path in parts if path[-1] == "late") == sorted(late)
    for a, _, path in parts:
        if path[-1] == "late":
            inner = min((s for s in tree if s[0] < a < s[1]), key=lambda s: s[1] - s[0])
            assert path[-2] == f"{inner}"
