"""Place each rank of a plan: its GPU in node, NVLink domain, rack and rail, its coordinates in both meshes.

Megatron-Core numbers ranks tp fastest, then cp, dp, pp for attention, and etp, ep, edp, pp for the experts
(megatron/core/parallel_state.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen

from moedsl.facts.axes import ATTENTION, EXPERTS
from moedsl.facts.machines import Machines


@frozen
class Rank:
    """One GPU: `attention` and `experts` are its coordinates in the order of `ATTENTION` and `EXPERTS`."""

    rank: int
    node: int
    domain: int
    rack: int
    rail: int
    attention: tuple[int, ...]
    experts: tuple[int, ...]

    @property
    def stage(self) -> int:
        return self.attention[-1]

    def shares(self, other: Rank, axis: str) -> bool:
        """Whether both are in one group of an axis: all other coordinates of its mesh are equal."""
        names, mine, theirs = (
            (ATTENTION, self.attention, other.attention)
            if axis in ATTENTION
            else (EXPERTS, self.experts, other.experts)
        )
        at = names.index(axis)
        return mine[:at] + mine[at + 1 :] == theirs[:at] + theirs[at + 1 :]


def place(layout: Mapping[str, Any], gpus: int, on: Machines) -> list[Rank]:
    """Every rank of the world."""
    attention, experts = ([int(layout[n]) for n in names] for names in (ATTENTION, EXPERTS))
    ranks = np.arange(gpus)
    racks = on.racks(ranks) if on.rack else on.domains(ranks)
    places = zip(on.nodes(ranks), on.domains(ranks), racks, on.on_rails(ranks), strict=True)
    return [
        Rank(r, int(node), int(domain), int(rack), int(rail), _digits(r, attention), _digits(r, experts))
        for r, (node, domain, rack, rail) in enumerate(places)
    ]


def _digits(rank: int, sizes: list[int]) -> tuple[int, ...]:
    """Mixed-radix digits, the fastest first."""
    out: list[int] = []
    for size in sizes:
        rank, digit = divmod(rank, size)
        out.append(digit)
    return tuple(out)


def expert_groups(ranks: list[Rank]) -> list[list[Rank]]:
    """The ranks by the group among which their tokens are exchanged: those of etp and ep."""
    return _by(ranks, lambda r: r.experts[2:])


def stages(ranks: list[Rank]) -> list[list[Rank]]:
    """The ranks by their pipeline stage."""
    return _by(ranks, lambda r: r.stage)


def _by(ranks: list[Rank], key: Callable[[Rank], Any]) -> list[list[Rank]]:
    found: dict[Any, list[Rank]] = {}
    for r in ranks:
        found.setdefault(key(r), []).append(r)
    return [*found.values()]


def crossing(ranks: list[Rank], axis: str, places: Sequence[str]) -> dict[str, int]:
    """On how many of each kind of place (domain, node, rack, rail) the group of rank 0 on an axis is."""
    group = [r for r in ranks if r.shares(ranks[0], axis)]
    return {place: len({getattr(r, place) for r in group}) for place in places}
