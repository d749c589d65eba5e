"""The pipeline made short: the first chunk, the last and some between, each with a layer or two of what it held."""

from __future__ import annotations

from attrs import evolve

from moedsl.cost.pipeline import Chunk, Layout

TWO = 2
"""Layers of a model without a pipeline: one hands its output to the next."""


def shortened(layout: Layout, pp: int, vpp: int, more: int) -> list[Chunk]:
    """The chunks of pp x vpp virtual stages, in a token's order, out of those of the plan's `layout`.

    A chunk with the fewest layers (but for none at all) keeps 1, a fuller one 2, so that an uneven layout stays uneven;
    `more` each where its layers are of two kinds: dense ones before those of experts, or by their attention.
    """
    chunks = _picked(layout.chunks, pp * vpp)
    fewest = min((c.layers for c in layout.chunks if c.layers), default=1)
    counts = [0 if not c.layers else 1 + more + (c.layers > fewest) for c in chunks]
    if len(counts) == 1:
        counts = [TWO + more]
    return [evolve(c, dense=0, moe=n, delta=0) for c, n in zip(chunks, counts, strict=True)]


def _picked(chunks: tuple[Chunk, ...], count: int) -> list[Chunk]:
    """`count` of them, evenly, the first and the last among them, and a fullest one where there is room between.

    A single one holds what both ends hold.
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
    """An even number of layers, of which every other one has full attention: a fullest chunk takes one more."""
    odd, fullest = sum(c.layers for c in chunks) % 2, max(chunks, key=lambda c: c.layers)
    return [evolve(c, moe=c.moe + odd) if c is fullest else c for c in chunks]


def text(chunks: list[Chunk]) -> str:
    """The layout in Megatron's letters."""
    return "|".join(c.text for c in chunks)


def segments(parts: list[str], pp: int) -> list[str]:
    """The stages of a hybrid, each with one layer of every kind that it held, in their order; no kind is lost.

    `parts` are the plan's stages in the letters of its pattern.
    """
    last = len(parts) - 1
    picked = [parts[round(i * last / (pp - 1))] for i in range(pp)] if pp > 1 else ["".join(parts)]
    short = ["".join(dict.fromkeys(part)) for part in picked]
    lost = set("".join(parts)) - set("".join(short))
    return [*short[:-1], short[-1] + "".join(sorted(lost))]
