"""Describe the samples of a run that fine-tunes on text, and how many tokens of a step are theirs."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from attrs import frozen

SOURCES = ("folder", "hf")
GROUPS = 32
"""The numbers in a list of lengths: each is the mean of a group of samples, which are sorted and equally many."""
_COPIES = 16
"""Samples of each group in a trial of packing."""


@frozen
class Samples:
    """What `data` says of the samples of a text that fine-tuning reads."""

    source: str = SOURCES[0]
    pack: bool | None = None
    """Whether a sequence holds several samples; None if the run does not say."""
    lengths: tuple[float, ...] = ()
    """Tokens of a sample in each of equally large groups, sorted; empty if the run does not say."""
    split: str | None = None
    subset: str | None = None


@frozen
class Filled:
    """What a sequence holds."""

    useful: float
    """The share of its tokens that are a sample's."""
    samples: float
    """Samples of a sequence."""
    span: float
    """Tokens of the text that a token's attention is in, in the mean over the tokens."""


def groups(counts: Mapping[int, int]) -> list[int]:
    """Sort samples, whose number `counts` has by length, into equally large groups, and return the mean of each."""
    total, most = sum(counts.values()), GROUPS
    sums, at = [0.0] * most, 0.0
    for length, count in sorted(counts.items()):
        left = count * most / total
        while left > 1e-9:
            group = min(int(at + 1e-9), most - 1)
            part = min(left, group + 1 - at) if group + 1 < most else left
            sums[group] += part * length
            at, left = at + part, left - part
    return [max(1, round(n)) for n in sums]


def filled(lengths: Sequence[float], seq: int, packed: bool, multiple: int) -> Filled:
    """Fill sequences of `seq` tokens: one sample each, or as many as fit, each padded to a multiple.

    Bridge shuffles the samples and puts each in the first pack with room (bridge data/packing/algorithms.py:121), and
    cuts what is longer than a sequence.
    """
    cut = [min(float(n), float(seq)) for n in lengths]
    if not packed:
        return Filled(sum(cut) / len(cut) / seq, 1.0, float(seq))
    padded = [min(-(-n // multiple) * multiple, seq) for n in cut]
    order = [*range(len(cut))] * _COPIES
    random.Random(0).shuffle(order)
    packs = _first_fit([padded[i] for i in order], seq)
    inside = [order[i] for pack in packs for i in pack]
    total = sum(padded[i] for i in inside)
    return Filled(
        sum(cut[i] for i in inside) / (len(packs) * seq),
        len(inside) / len(packs),
        sum(padded[i] ** 2 for i in inside) / total,
    )


def _first_fit(sizes: Sequence[float], seq: int) -> list[list[int]]:
    """Put each sample in the first pack with room; the last pack is left out, as it is seldom full."""
    packs: list[list[int]] = []
    room: list[float] = []
    for i, size in enumerate(sizes):
        at = next((k for k, free in enumerate(room) if free >= size), len(room))
        if at == len(room):
            packs.append([])
            room.append(float(seq))
        packs[at].append(i)
        room[at] -= size
    return packs[:-1] or packs
