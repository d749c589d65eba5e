"""Write how a plan saves, and what checkpoints and failures cost it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from moedsl.rules.check.program import Program
from moedsl.solver.laws import Row
from moedsl.solver.solve import INTERVAL, Chosen, Saving, saving
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


_GB = 1e9
_KEPT = "checkpoint.most_recent_k"
_LIMITS = {
    "": "keeps most training: saving more often stops it longer, saving less often loses more to a failure",
    "loss": "a failure would take more than the run may lose, so it saves more often than failures alone ask for",
    "write": "the best interval is shorter than the time to write a checkpoint: a faster file system would help",
    "step": "the best interval is shorter than a step",
}


def checkpoints(chosen: Chosen, row: Row, env: Mapping[str, Any], derived: Mapping[str, Any]) -> Checkpoints:
    """Describe the checkpoints of a plan, whose rules derive `derived`."""
    s = saving(chosen.problem, chosen.cost, env, row.step_time)
    p, g = chosen.problem.program, s.goodput
    known = {**derived, **p.sets}
    kept = known.get(_KEPT, -1)
    kept = kept if kept is not None and kept >= 0 else None
    size = s.size.total / _GB
    return Checkpoints(
        saved=env["saves"],
        size_gb=size,
        bytes_per_parameter=s.size.total / max(1, s.size.parameters),
        async_save=s.is_async,
        blocked_s=g.blocked,
        write_s=s.write,
        load_s=s.load,
        interval_steps=s.steps,
        interval_s=g.interval,
        best_interval_s=s.best,
        because=_because(p, s),
        kept=kept,
        kept_gb=None if kept is None else (kept + 1) * size,
        failure_every_s=g.mtbf,
        return_s=g.back,
        goodput=Shares(g.trains, g.saves, g.repeats, g.returns, g.validates),
        local=_local(chosen, s, size),
        chain=p.site.chain,
    )


def _local(chosen: Chosen, s: Saving, size: float) -> LocalCheckpoints | None:
    local, nodes = s.goodput.local, -(-chosen.problem.gpus // chosen.cost.hardware.gpus_per_node)
    return local and LocalCheckpoints(s.local_disk, s.local_steps, local.blocked, size / nodes, local.share)


def _because(p: Program, s: Saving) -> str:
    if INTERVAL in p.sets:
        sets = "sets it" if p.sets[INTERVAL] else "saves only at its end, here a month"
        return f"the run {sets}; {s.best_steps} steps would be best"
    return _LIMITS[s.limit]
