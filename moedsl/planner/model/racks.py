"""Where the groups of a plan are in racks and on rails."""

from __future__ import annotations

from attrs import frozen

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
