"""List the best layouts of a run, each with a different mesh, with differences and ignored advice."""

from __future__ import annotations

from collections.abc import Sequence

from moedsl.planner.model.answers import Ranked
from moedsl.planner.notes.advice import reason
from moedsl.queries.figures import Budget, priced
from moedsl.solver.search import Search
from moedsl.solver.solve import Chosen
from moedsl.solver.table import Row


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
