"""Both trades of a run: memory against speed on its GPUs, and GPUs against time at its batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from moedsl.queries.budget import Budget
from moedsl.queries.figures import Figures, Json
from moedsl.queries.front import front
from moedsl.queries.gpus import scaling
from moedsl.queries.rank import behind
from moedsl.solver.solve import Chosen
from moedsl.solver.table import Row


def pareto(chosen: Chosen, budget: Budget | None = None, progress: Callable[[str], None] = lambda _: None) -> Json:
    """`memory_time` (`points`, leanest first, and `plan`) and `gpus_time` (`scaling`).

    `plan` says whether the plan is `on_front`, what advice it leaves, and in `beaten_by` the positions of the points
    that beat it; each of these has in `behind` the key by which the run ranks it behind (`rank.behind`).
    """
    progress("looking for the layouts that none beats in memory and speed")
    rows, plan = front(chosen), chosen.solution.rows[0]
    points = [*_points(chosen, rows, budget)]
    ahead = [i for i, r in enumerate(rows) if beats(r, plan)]
    for i in ahead:
        points[i] = {**points[i], "behind": behind(chosen, rows[i])}
    own = {"on_front": not ahead, "beaten_by": ahead, "against_advice": chosen.compiled.unfollowed(plan)}
    at = {**Figures(chosen, budget).of(plan), **own}
    return {"memory_time": {"points": points, "plan": at}, "gpus_time": scaling(chosen, budget, progress)}


def beats(a: Row, b: Row) -> bool:
    """Whether a layout is no worse than another in both prices and better in one."""
    mine, theirs = (a.peak_memory, a.step_time), (b.peak_memory, b.step_time)
    return mine != theirs and mine[0] <= theirs[0] and mine[1] <= theirs[1]


def _points(chosen: Chosen, rows: tuple[Row, ...], budget: Budget | None) -> Iterator[Json]:
    figures, plan = Figures(chosen, budget, judged=False), chosen.solution.rows[0]
    for row in rows:
        yield {
            **figures.of(row),
            "layout": row.layout,
            "changes": row.changes(plan.codes),
            "against_advice": chosen.compiled.unfollowed(row),
        }
