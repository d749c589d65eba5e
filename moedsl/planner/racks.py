"""Say where a plan's groups are in the racks and on the rails that the cluster of its file states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from attrs import frozen

from moedsl.facts.axes import ATTENTION, EXPERTS
from moedsl.facts.facts import Hardware, Site
from moedsl.facts.machines import Machines, machines, rows, spans
from moedsl.support.json_form import JsonForm


@frozen
class AxisOnRacks(JsonForm):
    """The groups of one axis."""

    axis: str
    size: int
    """Ranks of a group."""
    racks: int
    """Racks of the group that is on most of them."""
    rails: int | None
    """Rails of the group that is on most of them; null if the cluster states none."""


@frozen
class Racks(JsonForm):
    """The racks of the job, if its nodes are given out rack by rack."""

    nodes_per_rack: int
    """Nodes below one leaf switch, or one for each rail, as the cluster states them."""
    nodes_used: int
    """Nodes of a rack that the job takes, so that expert groups stay whole."""
    racks: int
    """Racks of the job."""
    rails: int | None
    """Network adapters of a node that have a switch each; null if the cluster states none."""
    expert_groups: int
    """Groups among which tokens are exchanged: those of ep and etp."""
    expert_groups_inside: int
    """Those within a rack."""
    axes: tuple[AxisOnRacks, ...]


Layout = Mapping[str, Any]


def racks(layout: Layout, gpus: int, h: Hardware, site: Site) -> Racks | None:
    """The racks of a job; None if the cluster states none, or if the job is on one node."""
    node = h.gpus_per_node
    if not site.nodes_per_rack or gpus <= node:
        return None
    on = machines(layout, gpus, node, h.nvlink_domain, site.nodes_per_rack, site.rails)
    experts = spans(rows(layout, "etp", "ep"), on.racks)
    return Racks(
        nodes_per_rack=site.nodes_per_rack,
        nodes_used=min(on.rack, gpus) // node,
        racks=int(on.racks(np.array([gpus - 1]))[0]) + 1,
        rails=site.rails or None,
        expert_groups=len(experts),
        expert_groups_inside=int(np.count_nonzero(experts == 1)),
        axes=tuple(_axes(layout, on)),
    )


def _axes(layout: Layout, on: Machines) -> Iterator[AxisOnRacks]:
    """Each axis whose groups have several ranks, with the group that crosses most."""
    for axis in dict.fromkeys((*ATTENTION, *EXPERTS)):
        if layout[axis] > 1:
            each = rows(layout, axis)
            rails = int(spans(each, on.on_rails).max()) if on.rails else None
            yield AxisOnRacks(axis, layout[axis], int(spans(each, on.racks).max()), rails)
