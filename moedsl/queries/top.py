"""List the best layouts of a run, each with a different mesh, with differences and ignored advice."""

from __future__ import annotations

from collections.abc import Sequence

from moedsl.queries.figures import Budget, Figures, Json
from moedsl.solver.search import Search
from moedsl.solver.solve import Chosen
from moedsl.solver.table import Row


def top(chosen: Chosen, k: int, budget: Budget | None = None) -> list[Json]:
    """List the `k` best meshes with their best policies by the run's ranking, best first; fewer if fewer fit.

    Each has the keys of `Figures.of` and `rank`, `layout`, `changes` (from the first) and `against_advice`.
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
    """The best rows; for a layout shared with other runs (`isolate`, profiling in a `workflow`), the stored ones."""
    if k <= len(chosen.solution.rows) or shared(chosen):
        return chosen.solution.rows[:k]
    return Search(chosen.compiled, chosen.cost, k).run().rows


def shared(chosen: Chosen) -> bool:
    """Whether other runs share the layout."""
    p = chosen.problem.program
    return p.isolate is not None or (p.workflow is not None and p.phase == "profile")


def because(chosen: Chosen) -> dict[str, str]:
    """The reason of each advice and each wish, by id."""
    laws = (*chosen.compiled.wishes, *chosen.compiled.advice)
    return {law.rule.id: law.rule.because or "preferred by the run file" for law in laws}
