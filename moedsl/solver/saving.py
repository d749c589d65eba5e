"""How a layout saves: the size and time of its checkpoint, the interval, and the share of time that trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moedsl.classes.fields import frozen
from moedsl.cost import Cost, checkpoints, goodput
from moedsl.cost.checkpoints import Size
from moedsl.cost.goodput import Goodput
from moedsl.cost.memory import trained
from moedsl.rules.ids import LetName
from moedsl.solver.problem import Problem


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


def saving(problem: Problem, cost: Cost, env: Mapping[str, Any], step_time: float) -> Saving:
    """Price the checkpoints of a layout with the step time `step_time`."""
    p, h, gpus = problem.program, cost.hardware, problem.gpus
    sets, c = p.sets, h.constants
    is_async = bool(sets.get("checkpoint.async_save", env[LetName.SAVES_ASYNC]))
    size = checkpoints.size(
        p.model, trained(p.vlm, p.adapter), sets.get("optimizer.optimizer", "adam"), env["sharding"] == "fsdp",
        sets.get("checkpoint.save_optim", True),
    )  # fmt: skip
    write = size.total / checkpoints.write_rate(h, gpus, p.site.storage_write)
    blocked = checkpoints.blocked(h, gpus, size.total, write, is_async)
    durable = write if is_async else 0.0
    mtbf = goodput.mtbf(gpus, p.site.gpu_mtbf or c.gpu_mtbf)
    best = goodput.best_interval(blocked, mtbf)
    lost = p.site.most_lost or 60.0 * float(env[LetName.MOST_LOST_MINUTES])
    wanted, limit = _bounded(best, lost - durable, durable, step_time)
    best_steps = max(1, round(wanted / step_time))
    steps = int(sets.get("checkpoint.save_interval") or best_steps)
    load = c.load_times * write
    times = Goodput(steps * step_time, blocked, durable, mtbf, goodput.back(c, gpus) + load)
    return Saving(size, is_async, blocked + durable, load, steps, best_steps, best, limit, times)


def _bounded(best: float, most: float, least: float, step: float) -> tuple[float, str]:
    """Bound the interval: a save begins after the one before is written, and a failure takes at most what is stated."""
    if best < max(least, step):
        return max(least, step), "write" if least > step else "step"
    return (max(most, least, step), "loss") if most < best else (best, "")
