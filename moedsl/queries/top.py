"""The best layouts of a run, each of another mesh, with what differs and the advice that each leaves."""

from __future__ import annotations

from collections.abc import Sequence

from moedsl.queries.figures import Budget, Figures, Json
from moedsl.solver.search import Search
from moedsl.solver.solve import Chosen
from moedsl.solver.table import Row


def top(chosen: Chosen, k: int, budget: Budget | None = None) -> list[Json]:
    """The `k` best meshes with their best policies, best first, by the run's own ranking; fewer where fewer fit.

    Each has the keys of `Figures.of` and `rank`, `layout`, `changes` (against the first) and `against_advice`.
    """
    figures, rows = Figures(chosen, budget), best(chosen, k)
    return [
        {
            "rank": i,
            **figures.of(row),
            "layout": row.layout,
            "changes": row.changes(rows[0].codes),
            "against_advice": chosen.compiled.unfollowed(row),
        }
        for i, row in enumerate(rows, 1)
    ]


def best(chosen: Chosen, k: int) -> Sequence[Row]:
    """The best rows; a layout shared with other runs (`isolate`, profiling in a `workflow`) has those that it kept."""
    if k <= len(chosen.solution.rows) or shared(chosen):
        return chosen.solution.rows[:k]
    return Search(chosen.compiled, chosen.cost, k).run().rows


def shared(chosen: Chosen) -> bool:
    """Whether the layout was not chosen for this run alone."""
    p = chosen.problem.program
    return p.isolate is not None or (p.workflow is not None and p.phase == "profile")


def because(chosen: Chosen) -> dict[str, str]:
    """Why each advice and each wish is given, by id."""
    laws = (*chosen.compiled.wishes, *chosen.compiled.advice)
    return {law.rule.id: law.rule.because or "preferred by the run file" for law in laws}
