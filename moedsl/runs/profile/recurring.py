"""Find steps by an operation that recurs, where no range and no optimizer tells them: the same work lies between any
two of its launches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from moedsl.runs.profile.trace import Ints, Numbered, Trace

LEAST, MOST = 3, 1000
"""The launches of an operation that may begin each step."""
TRIED = 50
"""Operations that are tried, the rarest first: what recurs in a step more often than once is no step's beginning."""
SAME = 0.05
"""The share of a step's operations in which it may differ from the median step: experts get other tokens."""
COVERED = 0.75
"""The share of the trace that its steps fill, at least. The layers of one step fill less, of forward or of backward."""
DIFFERENT = 2
"""A step has so many different operations, at least."""


def anchor(t: Trace) -> tuple[str, list[tuple[int, int]]] | None:
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
    return int((middle > 0).sum()) >= DIFFERENT and bool(np.all(apart <= SAME * middle.sum()))
