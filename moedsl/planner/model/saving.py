"""How the run saves, what failures cost it, and the share of time that trains."""

from __future__ import annotations

from attrs import frozen

from moedsl.support.json_form import JsonForm


@frozen
class Shares(JsonForm):
    """Shares of a month; together they are 1."""

    trains: float
    """Steps that are kept: the goodput."""
    saves: float
    """Training waits for checkpoints."""
    repeats: float
    """Steps that a failure takes back."""
    returns: float
    """From failures until training goes on."""
    validates: float = 0.0
    """Validation, which trains nothing."""


@frozen
class LocalCheckpoints(JsonForm):
    """Saves on the nodes' own disks, to which a run returns after a failure that leaves every node in its place."""

    folder: str
    interval_steps: int
    blocked_s: float
    """How long training waits for one."""
    node_gb: float
    """Space of one on a node's disk, 10^9 bytes."""
    share: float
    """The share of failures that leave every node in its place."""


@frozen
class Checkpoints(JsonForm):
    """Checkpoints and failures."""

    saved: bool
    """Whether the recipe saves any: with mock data it does so only if the run names a folder."""
    size_gb: float
    """One checkpoint, 10^9 bytes."""
    bytes_per_parameter: float
    """Bytes of a saved parameter: its weight, master copy and moments."""
    async_save: bool
    blocked_s: float
    """How long training waits for one."""
    write_s: float
    """From the start of a save until it can be returned to."""
    load_s: float
    interval_steps: int
    interval_s: float
    best_interval_s: float
    """The interval that keeps most training, before limits."""
    because: str
    """Why the interval is as it is."""
    kept: int | None
    """How many stay on the file system; null if all."""
    kept_gb: float | None
    """Space of those that stay, and of the one that is written; null if all stay."""
    failure_every_s: float
    """Mean time between failures on these GPUs."""
    return_s: float
    """From a failure until training goes on: detection, restart, load."""
    goodput: Shares
    local: LocalCheckpoints | None = None
    """Only where the cluster has `local_disk`, ranks restart within the job, and it adds goodput."""
    chain: bool = False
    """Whether the cluster runs it as a chain of jobs, whose starts and ends come on top."""
