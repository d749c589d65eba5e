"""Find both trade-offs of a run: memory against speed on its GPUs, and GPUs against time at its batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from moedsl.lang.printer import print_expr
from moedsl.planner.model.answers import Behind, FrontPoint, MemoryTime, Pareto, Standing
from moedsl.queries.figures import Budget, priced
from moedsl.queries.front import front
from moedsl.queries.gpus import scaling
from moedsl.queries.top import shared
from moedsl.solver.solve import Chosen
from moedsl.solver.table import Row
from moedsl.support.json_form import ABSENT


def pareto(chosen: Chosen, budget: Budget | None = None, progress: Callable[[str], None] = lambda _: None) -> Pareto:
    """Compare memory with speed, with the position of the plan, and GPUs with time."""
    progress("searching the Pareto front of memory and speed")
    points, plan = tuple(_points(chosen, budget)), chosen.solution.rows[0]
    ahead, left = tuple(i for i, p in enumerate(points) if p.behind is not ABSENT), chosen.compiled.unfollowed(plan)
    at = priced(Standing, chosen, plan, budget, on_front=not ahead, beaten_by=ahead, against_advice=left)
    return Pareto(MemoryTime(points, at), scaling(chosen, budget, progress))


def beats(a: Row, b: Row) -> bool:
    """Whether a layout is no worse than another in both prices and better in one."""
    mine, theirs = (a.peak_memory, a.step_time), (b.peak_memory, b.step_time)
    return mine != theirs and mine[0] <= theirs[0] and mine[1] <= theirs[1]


def _points(chosen: Chosen, budget: Budget | None) -> Iterator[FrontPoint]:
    plan, left = chosen.solution.rows[0], chosen.compiled.unfollowed
    for row in front(chosen):
        yield priced(
            FrontPoint, chosen, row, budget, judged=False, layout=row.layout, changes=row.changes(plan.codes),
            against_advice=left(row), behind=behind(chosen, row) if beats(row, plan) else ABSENT,
        )  # fmt: skip


def behind(chosen: Chosen, row: Row) -> Behind | None:
    """The first key in which a layout differs from the plan.

    A violated wish counts 1, and so does a condition that holds. None if the keys do not decide: they are equal, or
    other runs share the plan's layout, which may not be the best by these keys then.
    """
    if shared(chosen):
        return None
    laws = (*chosen.compiled.wishes, *chosen.compiled.ranks)
    keys = zip(laws, row.keys, chosen.solution.rows[0].keys, strict=False)
    law, value, own = next(((law, a, b) for law, a, b in keys if a != b), (None, 0.0, 0.0))
    return None if law is None or value < own else Behind(law.rule.id, print_expr(law.expr), value, own)
