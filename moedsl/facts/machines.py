"""Place ranks on machines: NVLink domains, racks and rails, as a scheduler that knows them gives them to a job.

Ranks are consecutive on a node, and nodes in a domain and in a rack. A rail is a network adapter of each node with a
switch of its own: GPUs at the same place of their nodes share it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from moedsl.facts.operators import segment

Ints = NDArray[np.int64]


@frozen
class Machines:
    """What a job uses of them, in GPUs."""

    node: int
    domain: int
    """GPUs of each NVLink domain that the job takes."""
    rack: int = 0
    """GPUs of each rack that the job takes; 0 if racks are not known."""
    rails: int = 0
    """0 if they are not known."""

    def nodes(self, ranks: Ints) -> Ints:
        return ranks // self.node

    def domains(self, ranks: Ints) -> Ints:
        return ranks // self.domain

    def racks(self, ranks: Ints) -> Ints:
        """The rack of each rank; an NVLink domain that is larger than a rack starts with a rack of its own."""
        if self.rack >= self.domain:
            return ranks // self.rack
        return ranks // self.domain * ceil(self.domain / self.rack) + ranks % self.domain // self.rack

    def on_rails(self, ranks: Ints) -> Ints:
        """The rail of each rank; GPUs that have several adapters each are told apart by the first one."""
        return ranks % self.node * min(self.rails, self.node) // self.node


def machines(layout: Mapping[str, Any], gpus: int, node: int, domain: int, racks: int = 0, rails: int = 0) -> Machines:
    """What a job uses of NVLink domains of `domain` GPUs and of racks of `racks` nodes, so that no expert group crosses
    more of them than it must.
    """
    taken = _domain(layout, node, domain)
    if not racks:
        return Machines(node, taken, 0, rails)
    whole = racks * node
    if domain > node:
        return Machines(node, taken, whole // domain * taken or whole, rails)
    part = segment(gpus // node, node, _group(layout), racks)
    return Machines(node, taken, (racks // part * part if part else racks) * node, rails)


def _group(layout: Mapping[str, Any]) -> int:
    return int(layout["etp"]) * int(layout["ep"])


def _domain(layout: Mapping[str, Any], node: int, domain: int) -> int:
    """The GPUs of each NVLink domain that a job uses (Slurm's --segment, in nodes).

    It is the whole domain if a group is larger than it, or if its part would not be whole nodes.
    """
    part = domain // _group(layout) * _group(layout)
    return part if part and part % node == 0 else domain


def spans(rows: Ints, places: Callable[[Ints], Ints]) -> Ints:
    """On how many places each group is."""
    found = np.sort(places(rows), axis=1)
    return 1 + np.count_nonzero(np.diff(found, axis=1), axis=1)
