"""Shrink the sizes of a plan: the pipeline and both meshes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod

from attrs import evolve

from moedsl.cost.pipeline import Chunk, Layout
from moedsl.facts.axes import ATTENTION, EXPERTS, LAYOUT
from moedsl.rehearse.notes import KEPT, LEFT_OUT, SHRUNK, Note

TWO = 2
"""Layers of a model without a pipeline, so that one passes its output to the next."""


def shortened(layout: Layout, pp: int, vpp: int, more: int) -> list[Chunk]:
    """The chunks of pp x vpp virtual stages, in a token's order, from those of the plan's `layout`.

    A chunk with the fewest layers (but not none) keeps 1, a fuller one 2, so that an uneven layout stays uneven. Chunks
    with layers of two kinds get `more`: dense layers before those of experts, or layers with different attention.
    """
    chunks = _picked(layout.chunks, pp * vpp)
    fewest = min((c.layers for c in layout.chunks if c.layers), default=1)
    counts = [0 if not c.layers else 1 + more + (c.layers > fewest) for c in chunks]
    if len(counts) == 1:
        counts = [TWO + more]
    return [
        evolve(c, dense=0, moe=n, delta=0, reuse=0, window=0, dense_window=0)
        for c, n in zip(chunks, counts, strict=True)
    ]


def _picked(chunks: tuple[Chunk, ...], count: int) -> list[Chunk]:
    """Choose `count` of them evenly, with the first and the last, and with a fullest one if there is room between.

    A single one combines both ends.
    """
    last = len(chunks) - 1
    if count == 1:
        return [evolve(chunks[last], embedding=True, mtp=sum(c.mtp for c in chunks))]
    picked = [chunks[round(i * last / (count - 1))] for i in range(count)]
    fullest = max(chunks, key=lambda c: c.layers)
    if count > 2 and not any(c.layers == fullest.layers for c in picked):
        picked[count // 2] = evolve(fullest, embedding=False, mtp=0, loss=False)
    return [*picked[:-1], evolve(picked[-1], mtp=sum(c.mtp for c in chunks))]


def paired(chunks: list[Chunk]) -> list[Chunk]:
    """Make the number of layers even, because every other one has full attention: a fullest chunk gets one more."""
    odd, fullest = sum(c.layers for c in chunks) % 2, max(chunks, key=lambda c: c.layers)
    return [evolve(c, moe=c.moe + odd) if c is fullest else c for c in chunks]


def keyed(chunks: list[Chunk]) -> list[Chunk]:
    """Make the number of layers of each chunk even, because every other one attends to the keys of the one before."""
    return [evolve(c, moe=c.moe + c.moe % 2) for c in chunks]


def text(chunks: list[Chunk]) -> str:
    """Write the layout in Megatron's letters."""
    return "|".join(c.text for c in chunks)


def segments(parts: list[str], pp: int) -> list[str]:
    """The stages of a hybrid, each with one layer of each of its kinds, in their order; no kind is lost.

    `parts` are the plan's stages in the letters of its pattern.
    """
    last = len(parts) - 1
    picked = [parts[round(i * last / (pp - 1))] for i in range(pp)] if pp > 1 else ["".join(parts)]
    short = ["".join(dict.fromkeys(part)) for part in picked]
    lost = set("".join(parts)) - set("".join(short))
    return [*short[:-1], short[-1] + "".join(sorted(lost))]


AXES = ("pp", "ep", "tp", "cp", "etp", "dp", "edp")
"""The most important first: with too few ranks, the last ones are dropped."""
MOST = 64
"""The most ranks to try for a note on how many all axes would need."""

Sizes = dict[str, int]


def smallest(plan: Mapping[str, int], ranks: int) -> Sizes:
    """The sizes of all AXES for at most `ranks` ranks: those that drop the least, then use the fewest ranks.

    Both meshes have the same ranks: tp x cp x dp = etp x ep x edp on each of pp stages. A size of 1 stays 1.
    """
    return min(_all(plan, ranks), key=lambda s: (_lost(plan, s), prod(s[a] for a in ATTENTION), *s.values()))


def _lost(plan: Mapping[str, int], sizes: Sizes) -> int:
    """Rank a choice: larger if more important axes became 1."""
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
    """Note each axis; a dropped axis has the number of ranks that would keep all."""
    enough = _enough(plan) if _lost(plan, sizes) else ""
    return [_note(axis, plan[axis], sizes[axis], enough) for axis in AXES]


def _note(axis: str, plan: int, here: int, enough: str) -> Note:
    if plan > 1 and here == 1:
        return Note(axis, LEFT_OUT, plan, here, enough)
    return Note(axis, KEPT if plan == here else SHRUNK, plan, here)


def _enough(plan: Mapping[str, int]) -> str:
    ranks = next((n for n in (2, 4, 8, 16, 32, MOST) if not _lost(plan, smallest(plan, n))), None)
    return f"--ranks {ranks} keeps every axis" if ranks else f"{MOST} ranks do not keep every axis"
