"""Place each rank of a plan: its GPU in node and NVLink domain, its coordinates in both meshes.

Megatron-Core numbers ranks tp fastest, then cp, dp, pp for attention, and etp, ep, edp, pp for the experts
(megatron/core/parallel_state.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from moedsl.schema.axes import ATTENTION, EXPERTS


@frozen
class Rank:
    """One GPU: `attention` and `experts` are its coordinates in the order of `ATTENTION` and `EXPERTS`."""

    rank: int
    node: int
    domain: int
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


def place(layout: Mapping[str, Any], gpus: int, per_node: int, domain: int) -> list[Rank]:
    """Every rank of the world."""
    attention, experts = ([int(layout[n]) for n in names] for names in (ATTENTION, EXPERTS))
    return [Rank(r, r // per_node, r // domain, _digits(r, attention), _digits(r, experts)) for r in range(gpus)]


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


def used(layout: Mapping[str, Any], per_node: int, domain: int) -> int:
    """The GPUs of each NVLink domain that a job uses, so that no expert group crosses one (Slurm's --segment, in
    nodes).

    It is the whole domain if a group is larger than it, or if its part would not be whole nodes.
    """
    group = int(layout["etp"]) * int(layout["ep"])
    part = domain // group * group
    return part if part and part % per_node == 0 else domain


def crossing(ranks: list[Rank], axis: str) -> tuple[int, int]:
    """The numbers of NVLink domains and of nodes that the group of rank 0 on an axis spans."""
    group = [r for r in ranks if r.shares(ranks[0], axis)]
    return len({r.domain for r in group}), len({r.node for r in group})
