"""Find the faster layout that may run out of memory, which a run gets only if it asks for it."""

from __future__ import annotations

from moedsl.solver.question import Question, TopK
from moedsl.solver.search import Search
from moedsl.solver.solve import Chosen, fit_is_read, solve
from moedsl.solver.table import Row

STATEMENT = "risk oom"
LEAST = 5e-4
"""Least gain that is shown, as a share of the step."""


def faster(chosen: Chosen, row: Row) -> Row | None:
    """The layout that `STATEMENT` would choose instead of `row`; None if it is not faster."""
    problem = chosen.problem
    if chosen.must_fit != "high" or problem.program.isolate is not None:
        return None
    same = {n: problem.values[n] for n in ("seq", "global_batch")}
    risky = solve(problem.program, problem.gpus, keep=0, must_fit="best", **same)
    query = TopK(1, Question(but=row.codes), row.keys)
    Search(risky.compiled, risky.cost, None if fit_is_read(problem.program) else chosen.search).fill([query])
    return next((r for r in query.rows if r.step_time < row.step_time * (1 - LEAST)), None)
