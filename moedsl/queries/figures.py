"""Figures of a layout: speed, memory, verdict, and the cost of a budget of tokens."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from moedsl.cost.bounds import bounds
from moedsl.schema.units import GIB
from moedsl.solver.solve import Chosen
from moedsl.solver.table import Row

Json = dict[str, Any]


@frozen
class Figures:
    """Gives the figures of the layouts of one run; with a budget, also days and GPU-hours."""

    chosen: Chosen
    budget: Budget | None = None
    judged: bool = True
    """Whether to judge each layout (FITS, TIGHT or DOES NOT FIT), which takes most of the time."""

    def of(self, row: Row) -> Json:
        """`gpus`, `step_time_s`, `tokens_per_s`, `tokens_per_s_per_gpu`, `peak_gib`, `gpu_hours_per_billion_tokens`,
        `verdict` if layouts are judged, and `budget` if there is one."""
        gpus, tokens = self.chosen.problem.gpus, step_tokens(self.chosen)
        out: Json = {
            "gpus": gpus,
            "step_time_s": row.step_time,
            "tokens_per_s": tokens / row.step_time,
            "tokens_per_s_per_gpu": tokens / row.step_time / gpus,
            "peak_gib": row.peak_memory / GIB,
            "gpu_hours_per_billion_tokens": per_billion(row.step_time, tokens, gpus),
        }
        if self.judged:
            out["verdict"] = bounds(self.chosen.cost, row.codes).verdict
        if self.budget is not None:
            out["budget"] = self.budget.of(row.step_time, tokens, gpus)
        return out


def step_tokens(c: Chosen) -> int:
    """Tokens of one step."""
    return int(c.problem.global_batch * c.problem.values["seq"])


BILLION = 10**9
HOUR, DAY = 3600.0, 86400.0
"""Seconds."""
COVERS = (
    "Days and GPU-hours are for uninterrupted steps at the estimated step time, without checkpoints, restarts, "
    "evaluation or warm-up."
)


@frozen
class Budget:
    """The tokens to train on, image tokens included, and the price of a GPU-hour if it is known."""

    tokens: int
    price: float | None = None

    def of(self, step_time: float, step_tokens: int, gpus: int) -> dict[str, Any]:
        """`steps` (rounded up), `days`, `gpu_hours` and with a price `cost`, for seconds and tokens of a step."""
        steps = -(-self.tokens // step_tokens)
        hours = steps * step_time * gpus / HOUR
        out = {"tokens": self.tokens, "steps": steps, "days": steps * step_time / DAY, "gpu_hours": hours}
        if self.price is None:
            return out
        return {**out, "price_per_gpu_hour": self.price, "cost": hours * self.price}


def per_billion(step_time: float, step_tokens: int, gpus: int) -> float:
    """GPU-hours for 10^9 tokens."""
    return BILLION / step_tokens * step_time * gpus / HOUR
