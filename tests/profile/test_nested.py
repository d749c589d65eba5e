"""Unions of intervals and nested ranges, compared with a timeline that is painted moment by moment."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from moedsl.profile import intervals, nested
from moedsl.profile.nested import Paths
from moedsl.profile.trace import Numbered, Spans

END = 24
SPANS = st.lists(st.tuples(st.integers(0, END), st.integers(0, END)).map(sorted).map(tuple), max_size=6)
Pairs = list[tuple[int, int]]


def painted(spans: Pairs) -> set[int]:
    return {t for a, b in spans for t in range(a, b)}


def made(spans: Pairs) -> intervals.Union:
    start, end = (np.array([s[i] for s in spans], np.int64) for i in (0, 1))
    return intervals.union(start, end)


@settings(deadline=None)
@given(SPANS, SPANS)
def test_unions(some: Pairs, others: Pairs) -> None:
    a, b = made(some), made(others)
    assert painted(list(zip(a.start.tolist(), a.end.tolist(), strict=True))) == painted(some)
    assert a.length == len(painted(some))
    assert (a.start[1:] > a.end[:-1]).all()
    assert intervals.joined(a, b).length == len(painted(some) | painted(others))
    assert intervals.alone(a, b) == len(painted(some) - painted(others))
    gaps = intervals.gaps(a, 0, END)
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
    found = nested.enclosing(ranges, at, place, paths)
    for (t, thread), path in zip(moments, found.tolist(), strict=True):
        around = {s for s in threads[thread] if s[0] <= t < s[1]}
        assert {*paths.of(path)} == {f"{a}-{b}" for a, b in around}

    parts = nested.own_parts(ranges, paths)
    c = parts.columns()
    for thread, tree in enumerate(threads):
        mine = [(int(a), int(b)) for a, b, p in zip(c["start"], c["end"], c["place"], strict=True) if p == thread]
        assert sum(b - a for a, b in mine) == len(painted(mine)) == len(painted(tree))
    for a, b, path, thread in zip(c["start"], c["end"], c["name"], c["place"], strict=True):
        for t in range(int(a), int(b)):
            inner = min((s for s in threads[thread] if s[0] <= t < s[1]), key=lambda s: s[1] - s[0])
            assert paths.of(int(path))[-1] == f"{inner[0]}-{inner[1]}"
