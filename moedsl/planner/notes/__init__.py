"""Notes on a plan: what the reader should know first."""

from __future__ import annotations

from moedsl.planner.notes import run
from moedsl.planner.notes.advice import idle_advice, unheeded
from moedsl.planner.notes.goodput import low_goodput
from moedsl.planner.notes.run import no_proxy, uneven_batch, unsaved
from moedsl.planner.notes.tight import tight
from moedsl.solver.solve import Chosen
from moedsl.support.diagnostics import Diagnostic


def notes(c: Chosen) -> list[Diagnostic]:
    """Note a doubtful fit, the number of GPUs, mock data, little time to train, the batch, and advice that the chosen
    layout ignores."""
    p = c.problem.program
    gpus = [run.smallest(p, c.problem.gpus)] if p.gpus is None else run.whole_nodes(p, p.gpus)
    about_run = [*tight(c), *gpus, *no_proxy(c.problem), *low_goodput(c)]
    return [*about_run, *unheeded(c.compiled, c.solution.rows[0]), *uneven_batch(c), *unsaved(c), *idle_advice(c)]
