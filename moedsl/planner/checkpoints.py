"""Write how a plan saves, and what checkpoints and failures cost it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moedsl.planner.model.sections import Checkpoints, LocalCheckpoints, Shares
from moedsl.rules.check.program import Program
from moedsl.solver.saving import INTERVAL, Saving, saving
from moedsl.solver.solve import Chosen
from moedsl.solver.table import Row

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
