"""Warn that no layout of a run is certain to fit."""

from __future__ import annotations

from moedsl.solver.solve import Chosen
from moedsl.support.diagnostics import Diagnostic, warning

_BY_CASE = {
    "best": "no layout of this run FITS: the plan fits by the best estimate, but not at the high end",
    "low": "no layout of this run fits by the best estimate: expect the plan to run out of memory",
}


def tight(c: Chosen) -> list[Diagnostic]:
    """Warn if no layout fits in the case of the memory estimate in which the run would have one fit."""
    if not c.fell_back:
        return []
    p = c.problem.program
    fewer = ", fewer pins" if p.pins else ""
    help = f"use more GPUs{fewer} or a shorter sequence, or watch the memory of the first steps"
    return [warning("plan.tight", _BY_CASE[c.must_fit], p.spans["hardware"], help=help)]
