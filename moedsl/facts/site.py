"""What a cluster states of its storage, its failures and its racks; 0 where it states nothing."""

from __future__ import annotations

from attrs import frozen


@frozen
class Site:
    """The facts of a cluster that a plan reads."""

    storage_write: float = 0.0
    """Bytes/s that the shared file system takes from the nodes of a job together."""
    gpu_mtbf: float = 0.0
    """Seconds that a GPU trains between failures that end the job."""
    most_lost: float = 0.0
    """The most seconds of training to lose to one failure."""
    local_disk: str = ""
    """A folder on each node's own disk; empty if there is none."""
    nodes_per_rack: int = 0
    """Nodes below the same leaf switches."""
    rails: int = 0
    """Network adapters of a node, each with a leaf switch of its own."""
    chain: bool = False
    """Whether a long run is a chain of jobs."""
