"""How a layout saves: the size and time of its checkpoint, the interval, and the share of time that trains."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from attrs import evolve, frozen

from moedsl.cost import Cost, goodput
from moedsl.cost.goodput import Goodput, Local, Size, best_interval
from moedsl.cost.memory import trained
from moedsl.facts import common
from moedsl.facts.facts import Hardware
from moedsl.rules.check.program import Program
from moedsl.rules.stdlib import LetName
from moedsl.solver.problem import Problem

PAYS = 0.005
"""The least goodput that saves on the nodes' own disks must add."""
INTERVAL = "checkpoint.save_interval"
MONTH = 30 * 86400.0
"""The interval of a run that saves only at its end."""
FORWARD = 1 / 3
"""The forward pass of a step, whose backward pass computes two gradients for each matrix product."""
FORWARD_FROZEN = 1 / 2
"""The same where the weights are frozen: the backward pass computes the gradient of the input alone."""
_RESTARTS_IN_JOB = ("ft.enable_ft_package", "inprocess_restart.enabled")


@frozen
class Saving:
    """Times in seconds."""

    size: Size
    is_async: bool
    write: float
    """From the start of a save until it can be returned to."""
    load: float
    steps: int
    """Steps between two checkpoints."""
    best_steps: int
    """The same where the run does not set it."""
    best: float
    """The interval that keeps most training, without a limit."""
    limit: str
    """What moved the interval away from that: loss, write, step, or nothing."""
    goodput: Goodput
    local_steps: int
    """Steps between saves on the nodes' own disks; 0 where they do not pay."""
    local_disk: str

    @property
    def names(self) -> dict[str, Any]:
        """What rules read of it (`symbols.SAVES`)."""
        return {
            "goodput": self.goodput.trains,
            "save_steps": self.best_steps,
            "local_save_steps": self.local_steps,
            "local_disk": self.local_disk,
        }


def saving(problem: Problem, cost: Cost, env: Mapping[str, Any], step_time: float) -> Saving:
    """Price the checkpoints of a layout with the step time `step_time`."""
    p, h, gpus = problem.program, cost.hardware, problem.gpus
    sets, c = p.sets, h.constants
    validates = _validates(p, env)
    step = step_time * (1 + validates)  # with its part of the next validation
    is_async = bool(sets.get("checkpoint.async_save", env[LetName.SAVES_ASYNC]))
    size = goodput.size(
        p.model, trained(p.vlm, p.adapter), sets.get("optimizer.optimizer", "adam"), env["sharding"] == "fsdp",
        sets.get("checkpoint.save_optim", True),
    )  # fmt: skip
    write = size.total / goodput.write_rate(h, gpus, p.site.storage_write)
    blocked = goodput.blocked(h, gpus, size.total, write, is_async, c.save_start)
    durable, load = write if is_async else 0.0, c.load_times * write
    mtbf = goodput.mtbf(gpus, p.site.gpu_mtbf or c.gpu_mtbf)
    best = best_interval(blocked, mtbf)
    lost = p.site.most_lost or 60.0 * float(env[LetName.MOST_LOST_MINUTES])
    wanted, limit = _bounded(best, lost - durable, durable, step)
    best_steps = max(1, (math.ceil if limit == "write" else round)(wanted / step))
    steps = sets.get(INTERVAL, best_steps) or max(1, round(MONTH / step))
    share = c.in_place if any(p.sets.get(path) for path in _RESTARTS_IN_JOB) else 0.0
    back = share * goodput.back_in_job(c) + (1 - share) * goodput.back(c, gpus)
    shared = Goodput(steps * step, blocked, durable, mtbf, back + load, validation=validates / (1 + validates))
    near, local_steps = shared, 0
    if share and p.site.local_disk and is_async:
        near, local_steps = _local(shared, h, gpus, size.total, share, step, load)
    return Saving(
        size, is_async, blocked + durable, load, steps, best_steps, best, limit, near, local_steps, p.site.local_disk
    )


def _validates(p: Program, env: Mapping[str, Any]) -> float:
    """The time of validation, as a share of that of the steps: forward passes through the same pipeline."""
    batches = p.sets.get(common.ITERATIONS, common.validation_iterations(p.task, p.data == "mock"))
    every = p.sets.get(common.INTERVAL, common.validation_interval(p.task))
    if not batches or not every:
        return 0.0
    smallest = common.smallest_validation_batch(env["micro_batch"], env["dp"], env["pp"], env["vpp"])
    batch = p.sets.get(common.BATCH) or (smallest if p.samples else env["global_batch"])
    filling = (env["pp"] - 1) / env["vpp"]  # microbatches that pass while the pipeline fills and empties
    passes = batch / (env["micro_batch"] * env["dp"]) + filling
    forward = FORWARD_FROZEN if p.adapter else FORWARD
    return forward * batches / every * passes / (env["num_microbatches"] + filling)


def _local(
    shared: Goodput, h: Hardware, gpus: int, nbytes: float, share: float, step_time: float, load: float
) -> tuple[Goodput, int]:
    """Add saves on the nodes' own disks, if they add enough; a run loads from them in the time that they take."""
    write = goodput.local_write(h, gpus, nbytes)
    blocked = goodput.blocked(h, gpus, nbytes, write, True, h.constants.local_start)
    wanted = max(best_interval(blocked, shared.mtbf / share), write, step_time)
    intervals = round(shared.interval / wanted)
    if intervals < 2:
        return shared, 0
    steps = max(1, round(shared.interval / intervals / step_time))
    back = shared.back - share * (load - write)
    near = evolve(shared, back=back, local=Local(intervals, blocked, write, share))
    return (near, steps) if near.trains - shared.trains > PAYS else (shared, 0)


def _bounded(best: float, most: float, least: float, step: float) -> tuple[float, str]:
    """Bound the interval: a save begins after the one before is written, and a failure takes at most what is stated."""
    if best < max(least, step):
        return max(least, step), "write" if least > step else "step"
    return (max(most, least, step), "loss") if most < best else (best, "")
