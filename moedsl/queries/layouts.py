"""List the best layouts of a run, each with a different mesh, with their figures and the cost of a budget of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from attrs import frozen

from moedsl.cost.estimate import verdict
from moedsl.facts.units import GIB
from moedsl.planner.advice import reason
from moedsl.planner.plan import Priced, Ranked, TokenCost
from moedsl.solver.laws import Row
from moedsl.solver.search import Search
from moedsl.solver.solve import Chosen


def top(chosen: Chosen, k: int, budget: Budget | None = None) -> tuple[Ranked, ...]:
    """List the `k` best meshes with their best policies by the run's ranking, best first; fewer if fewer fit."""
    rows, left = best(chosen, k), chosen.compiled.unfollowed
    now = rows[0].codes
    return tuple(
        priced(Ranked, chosen, r, budget, rank=i, layout=r.layout, changes=r.changes(now), against_advice=left(r))
        for i, r in enumerate(rows, 1)
    )


def best(chosen: Chosen, k: int) -> Sequence[Row]:
    """The best rows; for a layout shared with other runs (`isolate`, profiling in a `workflow`), the stored ones."""
    if k <= len(chosen.solution.rows) or shared(chosen):
        return chosen.solution.rows[:k]
    return Search(chosen.compiled, chosen.cost, keep=k).run().rows


def shared(chosen: Chosen) -> bool:
    """Whether other runs share the layout."""
    p = chosen.problem.program
    return p.isolate is not None or (p.workflow is not None and p.phase == "profile")


def because(chosen: Chosen) -> dict[str, str]:
    """The reason of each advice and each wish, by id."""
    laws = (*chosen.compiled.wishes, *chosen.compiled.advice)
    return {law.rule.id: reason(law.rule) for law in laws}


AnyPriced = TypeVar("AnyPriced", bound=Priced)


def priced(
    kind: type[AnyPriced], chosen: Chosen, row: Row, budget: Budget | None, judged: bool = True, **more: Any
) -> AnyPriced:
    """Make a record of a layout: its figures and `more`. The verdict takes most of the time."""
    gpus, tokens = chosen.problem.gpus, step_tokens(chosen)
    return kind(
        gpus=gpus,
        step_time_s=row.step_time,
        tokens_per_s=tokens / row.step_time,
        tokens_per_s_per_gpu=tokens / row.step_time / gpus,
        peak_gib=row.peak_memory / GIB,
        gpu_hours_per_billion_tokens=BILLION / tokens * row.step_time * gpus / HOUR,
        verdict=verdict(chosen.cost, row.codes) if judged else None,
        budget=budget and budget.of(row.step_time, tokens, gpus),
        **more,
    )


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

    def of(self, step_time: float, step_tokens: int, gpus: int) -> TokenCost:
        """Count whole steps and their cost, for seconds and tokens of a step."""
        steps = -(-self.tokens // step_tokens)
        hours = steps * step_time * gpus / HOUR
        cost = None if self.price is None else hours * self.price
        return TokenCost(self.tokens, steps, steps * step_time / DAY, hours, self.price, cost)
