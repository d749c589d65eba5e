"""Both meshes made small: an axis larger than 1 stays larger than 1 where the number of ranks allows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod

from moedsl.rehearse.notes import KEPT, LEFT_OUT, SHRUNK, Note
from moedsl.schema.axes import ATTENTION, EXPERTS, LAYOUT

AXES = ("pp", "ep", "tp", "cp", "etp", "dp", "edp")
"""The most telling first: where ranks are too few for all, the last ones are given up."""
MOST = 64
"""The largest number of ranks that is tried when a note says what all of it would take."""

Sizes = dict[str, int]


def smallest(plan: Mapping[str, int], ranks: int) -> Sizes:
    """Sizes of all AXES for at most `ranks` ranks: what gives up least, then has the fewest ranks.

    Both meshes hold the same ranks: tp x cp x dp = etp x ep x edp on each of pp stages. A size of 1 stays 1.
    """
    return min(_all(plan, ranks), key=lambda s: (_lost(plan, s), prod(s[a] for a in ATTENTION), *s.values()))


def _lost(plan: Mapping[str, int], sizes: Sizes) -> int:
    """A number that is larger the more telling the axes are that became 1."""
    return sum(1 << (len(AXES) - i) for i, a in enumerate(AXES) if plan[a] > 1 and sizes[a] == 1)


def _all(plan: Mapping[str, int], ranks: int) -> Iterator[Sizes]:
    """Every pair of meshes of at most `ranks` ranks whose axes are no larger than the plan's."""
    for pp in {1, min(plan["pp"], 2)}:
        dense = list(_mesh(plan, [n for n in LAYOUT if n in ATTENTION and n != "pp"], ranks // pp))
        expert = list(_mesh(plan, [n for n in LAYOUT if n in EXPERTS and n != "pp"], ranks // pp))
        for a, b in product(dense, expert):
            if prod(a.values()) == prod(b.values()):
                yield {"pp": pp, **a, **b}


def _mesh(plan: Mapping[str, int], axes: Sequence[str], ranks: int) -> Iterator[Sizes]:
    choices = (range(1, min(plan[a], ranks) + 1) for a in axes)
    return (dict(zip(axes, c, strict=True)) for c in product(*choices) if prod(c) <= ranks)


def notes(plan: Mapping[str, int], sizes: Sizes) -> list[Note]:
    """One for each axis; an axis that was given up says how many ranks would keep them all."""
    enough = _enough(plan) if _lost(plan, sizes) else ""
    return [_note(axis, plan[axis], sizes[axis], enough) for axis in AXES]


def _note(axis: str, plan: int, here: int, enough: str) -> Note:
    if plan > 1 and here == 1:
        return Note(axis, LEFT_OUT, plan, here, enough)
    return Note(axis, KEPT if plan == here else SHRUNK, plan, here)


def _enough(plan: Mapping[str, int]) -> str:
    ranks = next((n for n in (2, 4, 8, 16, 32, MOST) if not _lost(plan, smallest(plan, n))), None)
    return f"--ranks {ranks} keeps every axis" if ranks else f"{MOST} ranks do not keep every axis"
