"""Place ranks on machines: NVLink domains, racks and rails, and the process groups of both meshes.

Ranks are consecutive on a node, and nodes are consecutive in a domain and in a rack, as a topology-aware scheduler
assigns them. A rail is one network adapter of each node, on its own switch: GPUs with the same index in their nodes
share it.

Rank order of Megatron-Core (megatron/core/parallel_state.py, order "tp-cp-ep-dp-pp"): tp fastest, then cp (dense mesh)
or ep (expert mesh, where etp is fastest), then dp or edp, then pp; "tp-cp-ep-pp-dp" swaps the last two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import ceil, prod
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from moedsl.facts.axes import ATTENTION, EXPERTS
from moedsl.facts.facts import Hardware
from moedsl.facts.operators import segment

Ints = NDArray[np.int64]


@frozen
class Machines:
    """The GPUs that a job takes of each node, NVLink domain and rack, and the rails of a node."""

    node: int
    domain: int
    """GPUs of each NVLink domain that the job takes."""
    rack: int = 0
    """GPUs of each rack that the job takes; 0 if racks are unknown."""
    rails: int = 0
    """Rails of a node; 0 if unknown."""

    def nodes(self, ranks: Ints) -> Ints:
        return ranks // self.node

    def domains(self, ranks: Ints) -> Ints:
        return ranks // self.domain

    def racks(self, ranks: Ints) -> Ints:
        """Return each rank's rack; an NVLink domain larger than a rack starts in a new rack."""
        if self.rack >= self.domain:
            return ranks // self.rack
        return ranks // self.domain * ceil(self.domain / self.rack) + ranks % self.domain // self.rack

    def on_rails(self, ranks: Ints) -> Ints:
        """Return each rank's rail; if a GPU has several adapters, its first one counts."""
        return ranks % self.node * min(self.rails, self.node) // self.node


def machines(layout: Mapping[str, Any], gpus: int, node: int, domain: int, racks: int = 0, rails: int = 0) -> Machines:
    """Choose the GPUs to take of each NVLink domain and rack so that no expert group spans more of them than it must.

    A domain has `domain` GPUs, a rack `racks` nodes. A job takes whole domains (Slurm's --segment, in nodes) if an
    expert group is larger than a domain, or if the whole groups in a domain would not fill whole nodes.
    """
    group = int(layout["etp"]) * int(layout["ep"])
    part = domain // group * group
    taken = part if part and part % node == 0 else domain
    if not racks:
        return Machines(node, taken, 0, rails)
    whole = racks * node
    if domain > node:
        return Machines(node, taken, whole // domain * taken or whole, rails)
    part = segment(gpus // node, node, group, racks)
    return Machines(node, taken, (racks // part * part if part else racks) * node, rails)


def spans(rows: Ints, places: Callable[[Ints], Ints]) -> Ints:
    """Return how many places (nodes, domains or racks) each row of ranks spans."""
    found = np.sort(places(rows), axis=1)
    return 1 + np.count_nonzero(np.diff(found, axis=1), axis=1)


Groups = dict[str, list[list[int]]]

_DENSE = ("TP", "CP", "DP", "DP_CP", "PP", "TP_CP", "TP_PP")
_EXPERT = ("ETP", "EP", "ETP_EP", "EDP")
"""The groups of each mesh, by the axes along which their members differ."""


def rank_groups(layout: Mapping[str, Any], pp_before_dp: bool = False) -> Groups:
    """Return the rank groups of each kind by name, sorted; a group is a sorted list of global ranks.

    `layout` has the sizes tp cp dp pp ep etp edp. Raises ValueError if the two meshes have different numbers of ranks.
    """
    dense, expert = (_sizes(layout, mesh, pp_before_dp) for mesh in (ATTENTION, EXPERTS))
    if prod(dense.values()) != prod(expert.values()):
        raise ValueError(f"the dense mesh has {prod(dense.values())} ranks, the expert mesh {prod(expert.values())}")
    sizes = {name: mesh for mesh, names in ((dense, _DENSE), (expert, _EXPERT)) for name in names}
    tables = {name: _table(mesh, {*name.lower().split("_")}) for name, mesh in sizes.items()}
    return {name: sorted(sorted(row) for row in table.tolist()) for name, table in tables.items()}


def world(layout: Mapping[str, Any]) -> int:
    """Count the ranks of the dense mesh of `layout`."""
    return prod(int(layout[axis]) for axis in ATTENTION)


def _sizes(layout: Mapping[str, Any], mesh: tuple[str, ...], pp_before_dp: bool) -> dict[str, int]:
    """Return the sizes of a mesh's axes, fastest-varying first."""
    *inner, data, pp = mesh
    outer = (pp, data) if pp_before_dp else (data, pp)
    return {axis: int(layout[axis]) for axis in (*inner, *outer)}


def rows(layout: Mapping[str, Any], *axes: str) -> NDArray[np.int64]:
    """Return the rank groups whose members differ only along these axes of one mesh, one group per row."""
    mesh = ATTENTION if set(axes) <= set(ATTENTION) else EXPERTS
    return _table(_sizes(layout, mesh, False), set(axes))


def _table(sizes: dict[str, int], axes: set[str]) -> NDArray[np.int64]:
    names = list(reversed(sizes))
    ranks = np.arange(prod(sizes.values())).reshape([sizes[n] for n in names])
    last = [n for n in names if n in axes]
    first = [n for n in names if n not in axes]
    return ranks.transpose([names.index(n) for n in (*first, *last)]).reshape(-1, prod(sizes[n] for n in last))


MOST_GPUS = 16_384


def gpu_counts(h: Hardware, above: int = 0) -> Iterator[int]:
    """Yield GPU counts above `above`, ascending: divisors of a node, up to 32 whole nodes, then eight per doubling."""
    node = h.gpus_per_node
    nodes = sorted({*range(1, 33), *(m * 2**e for e in range(2, 12) for m in range(8, 16))})
    yield from (g for g in range(above + 1, node) if node % g == 0)
    yield from (n * node for n in nodes if above < n * node <= MOST_GPUS)
