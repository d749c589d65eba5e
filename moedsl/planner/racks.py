"""Say where a plan's groups are in the racks and on the rails that the cluster of its file states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from attrs import frozen

from moedsl.facts.axes import ATTENTION, EXPERTS
from moedsl.facts.facts import Hardware, Site
from moedsl.facts.machines import machines, rows, spans
from moedsl.support.json_form import JsonForm
from moedsl.support.text import counted, table, wrapped


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


def build(layout: Mapping[str, Any], gpus: int, h: Hardware, site: Site) -> Racks | None:
    """The racks of a job; None if the cluster states none, or if the job is on one node."""
    node = h.gpus_per_node
    if not site.nodes_per_rack or gpus <= node:
        return None
    on = machines(layout, gpus, node, h.nvlink_domain, site.nodes_per_rack, site.rails)
    experts = spans(rows(layout, "etp", "ep"), on.racks)
    axes = list[AxisOnRacks]()
    for axis in dict.fromkeys((*ATTENTION, *EXPERTS)):
        if layout[axis] > 1:  # of its groups, the one that crosses most
            each = rows(layout, axis)
            rails = int(spans(each, on.on_rails).max()) if on.rails else None
            axes.append(AxisOnRacks(axis, layout[axis], int(spans(each, on.racks).max()), rails))
    return Racks(
        nodes_per_rack=site.nodes_per_rack,
        nodes_used=min(on.rack, gpus) // node,
        racks=int(on.racks(np.array([gpus - 1]))[0]) + 1,
        rails=site.rails or None,
        expert_groups=len(experts),
        expert_groups_inside=int(np.count_nonzero(experts == 1)),
        axes=tuple(axes),
    )


def summary(r: Racks) -> str:
    """Write which groups stay in a rack, in one line."""
    outside = r.expert_groups - r.expert_groups_inside
    inside = f"{outside} of {r.expert_groups} expert groups cross racks" if outside else "every expert group is in one"
    crossing = [f"{a.axis} is on {a.racks}" for a in r.axes if a.racks > 1]
    crosses = f"; a group of {', '.join(crossing)}" if crossing else ""
    return f"{r.racks} of {counted(r.nodes_per_rack, 'node')} each: {inside}{crosses}"


def text(r: Racks) -> str:
    """Print the racks of the job, and the racks and rails of each axis."""
    rails = f"; {counted(r.rails, 'rail')} of each node" if r.rails else ""
    rows = [("axis", "ranks", "racks", *(["rails"] if r.rails else []))]
    rows += [(a.axis, str(a.size), str(a.racks), *([str(a.rails)] if r.rails else [])) for a in r.axes]
    used = f"the job takes {r.nodes_used} of {counted(r.nodes_per_rack, 'node')} in each{rails}"
    return "\n".join(["Racks", wrapped(summary(r)), wrapped(used), *table(rows, "l")])
