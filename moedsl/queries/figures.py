"""What every answer says of one layout: its prices, its axes, what differs from another, the advice it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from attrs import frozen

from moedsl.cost.bounds import bounds
from moedsl.queries.budget import Budget, per_billion
from moedsl.schema import axes
from moedsl.schema.units import GIB
from moedsl.solver.solve import Chosen
from moedsl.solver.table import Row, Table

Json = dict[str, Any]


@frozen
class Figures:
    """One run whose layouts are compared; with a budget each of them gets its days and GPU-hours."""

    chosen: Chosen
    budget: Budget | None = None
    judged: bool = True
    """Whether each layout is told FITS, TIGHT or DOES NOT FIT, which takes longer than the rest."""

    def of(self, row: Row) -> Json:
        """`gpus`, `step_time_s`, `tokens_per_s`, `tokens_per_s_per_gpu`, `peak_gib`, `gpu_hours_per_billion_tokens`,
        `verdict` where layouts are judged, and `budget` where one is asked for."""
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


def layout(row: Row) -> Json:
    """Every axis of a layout as the plan writes it."""
    return {a.name: a.decode(row.codes[a.name]) for a in axes.AXES}


def changes(row: Row, other: Mapping[str, int]) -> Json:
    """The axes in which a layout differs from another's codes, with its own values."""
    return {n: v for n, v in layout(row).items() if row.codes[n] != other[n]}


def unfollowed(chosen: Chosen, row: Row) -> list[str]:
    """The wishes and the advice that a layout does not follow, by id, from the columns of its one row."""
    c, prices = chosen.compiled, row.prices
    columns = {n: np.array([v]) for n, v in {**row.codes, **prices}.items()}
    table = Table(columns, chosen.problem.codes, c.lets)
    return [law.rule.id for law in (*c.wishes, *c.advice) if not np.all(law.holds(table))]
