"""Find both trade-offs of a run: memory against speed on its GPUs, and GPUs against time at its batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from moedsl.queries.figures import Budget, Figures, Json
from moedsl.queries.front import front
from moedsl.queries.gpus import scaling
from moedsl.queries.top import shared
from moedsl.solver.solve import Chosen
from moedsl.solver.table import Row
from moedsl.syntax.printer import print_expr


def pareto(chosen: Chosen, budget: Budget | None = None, progress: Callable[[str], None] = lambda _: None) -> Json:
    """`memory_time` (`points`, smallest memory first, and `plan`) and `gpus_time` (`scaling`).

    `plan` tells whether the plan is `on_front`, what advice it ignores, and in `beaten_by` the positions of the points
    that beat it; the `behind` of such a point is the key by which the run ranks it lower than the plan.
    """
    progress("searching the Pareto front of memory and speed")
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


def behind(chosen: Chosen, row: Row) -> Json | None:
    """The first key in which a layout differs from the plan: `rule`, `key`, its `value` and the plan's, `plan`.

    A violated wish counts 1, and so does a condition that holds. None if other runs share the plan's layout, which may
    not be the best by these keys then.
    """
    if shared(chosen):
        return None
    laws = (*chosen.compiled.wishes, *chosen.compiled.ranks)
    keys = zip(laws, row.keys, chosen.solution.rows[0].keys, strict=True)
    law, value, own = next(((law, a, b) for law, a, b in keys if a != b), (None, 0.0, 0.0))
    if law is None or value < own:
        return None
    return {"rule": law.rule.id, "key": print_expr(law.expr), "value": value, "plan": own}
