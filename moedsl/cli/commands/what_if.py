"""`moedsl what-if`: print the effect of each change of a run, a line each."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from moedsl.cli import answers, talk
from moedsl.cli.talk import compiled
from moedsl.queries.text import what_if_text
from moedsl.queries.what_if import what_if
from moedsl.solver.solve import Chosen
from moedsl.support import limits


def run(a: Namespace) -> int:
    if answers.unpriced(a):
        return 1
    result, code = compiled(a, "solve")
    if result is None or code:
        return code
    progress, budget = talk.Progress(), answers.budget_of(a)
    found: list[dict[str, Any]] = []
    for c in result.chosen:
        if not _profiles(c):
            with limits.of_part(c.problem.program):
                found.append(what_if(c, result.library, budget, progress))
    if a.json:
        talk.print_json({"version": 1, "runs": found})
    else:
        print("\n".join(map(what_if_text, found)), end="")
    return 0


def _profiles(c: Chosen) -> bool:
    """Whether a run is profiling in a workflow, which has the layout of the phase before it."""
    p = c.problem.program
    return p.workflow is not None and p.phase == "profile"
