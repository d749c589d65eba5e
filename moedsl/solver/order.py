"""In which order a search looks at meshes: those that probably need the least memory, or those with the best bounds."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moedsl.facts.axes import SIZES
from moedsl.solver.table import Mask, Table, different
from moedsl.solver.top_k import Floats, TopK, ignoring

FIRST_BLOCK = 2048
"""Meshes in the first block, whose memory is bounded first."""
LARGEST_CHUNK = 120_000
"""The most meshes or rows at a time."""
GROWTH = 4
"""Growth factor of blocks, and of each question's share of a chunk."""
GUESSED, DIVIDED_GROWTH = 64, 64
"""Meshes in the first of several growing parts, and the growth of the next ones."""


def most_divided_first(meshes: Table) -> Iterator[NDArray[np.intp]]:
    """Split the meshes into growing parts; those that probably need the least memory on a rank are first."""
    return growing(np.argsort(share_of(meshes), kind="stable"))


def growing(left: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    """Split positions into growing parts."""
    size = GUESSED
    while len(left):
        yield left[:size]
        left, size = left[size:], size * DIVIDED_GROWTH


def share_of(meshes: Table) -> NDArray[np.floating[Any]]:
    """About the share of a step that each rank of a mesh holds."""
    pieces = [meshes.axes[name] for name in SIZES]
    return np.asarray(meshes.axes["micro_batch"] / np.prod(pieces, axis=0, dtype=np.float64))


def in_turns(bounds: Floats, queries: Sequence[TopK], able: Sequence[Mask]) -> Iterator[NDArray[np.intp]]:
    """Blocks of positions in the order of their bounds, the next ones of each question that has room for them."""
    new, size = np.ones(bounds.shape[1], dtype=bool), max(1, FIRST_BLOCK // len(queries))
    alike: dict[tuple[bytes, int | None], list[TopK]] = {}
    for k, mask in zip(queries, able, strict=True):
        alike.setdefault((mask.tobytes(), k.ignored), []).append(k)
    orders = [
        _while_room(ks, bounds, _in_order(ignoring(bounds, ignored), np.frombuffer(mask, dtype=bool), size))
        for (mask, ignored), ks in alike.items()
    ]
    while parts := [at for order in orders for at in itertools.islice(order, 1)]:
        block = different(np.concatenate(parts)) if len(parts) > 1 else parts[0]
        block = block[new[block]]
        new[block] = False
        yield block[np.lexsort(bounds[::-1, block])] if len(parts) > 1 else block


def _while_room(
    queries: Sequence[TopK], bounds: Floats, blocks: Iterable[NDArray[np.intp]]
) -> Iterator[NDArray[np.intp]]:
    """The blocks, until no question has room for the first position of one."""
    return itertools.takewhile(lambda at: any(k.room(bounds[:, at[:1]])[0] for k in queries), blocks)


def _in_order(bounds: Floats, mask: Mask, size: int = FIRST_BLOCK) -> Iterator[NDArray[np.intp]]:
    """Positions in a mask by their columns of bounds, in growing blocks; each block is sorted when it is needed."""
    left = np.flatnonzero(mask)
    while len(left):
        first = bounds[0, left]
        early = first <= np.partition(first, size - 1)[size - 1] if len(left) > size else np.ones(len(left), dtype=bool)
        part, left = left[early], left[~early]
        order = part[np.lexsort(bounds[::-1, part])]
        while len(order):
            block, order = order[:size], order[size:]
            yield block
            size = min(size * GROWTH, LARGEST_CHUNK)
