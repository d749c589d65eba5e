"""Why a run that names no number of GPUs has a layout on none: the conflict on one number, which stands for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moedsl.checker.program import Program
from moedsl.diagnostics.model import Diagnostic
from moedsl.explainer.infeasible import briefly
from moedsl.explainer.infeasible_said import conflict
from moedsl.schema.gpu_counts import counts
from moedsl.solver.fits import fits
from moedsl.solver.members import without

Solve = Callable[..., Any]


def nowhere(p: Program, legal: int, solve: Solve) -> list[Diagnostic]:
    """The diagnostics. `legal` is the largest number of GPUs with a legal layout, none of which fits; 0: no number has.

    Where none has, the conflict is that of the smallest number on which dropping it all opens a layout.
    """
    gpus = legal or _telling(p, solve)
    at = solve(p, gpus, keep=0)
    return conflict(at.compiled, at.cost, solve)


def _telling(p: Program, solve: Solve) -> int:
    """The smallest number, from a node up, with a layout once what collides there has given way; else a node."""
    node = p.hardware.gpus_per_node
    at = solve(p, node, keep=0)
    gone = [m for m in briefly(at.compiled, at.cost, solve).core if m.gives_way]
    for n in counts(p.hardware, above=node - 1):
        tried = solve(without(p, gone), n, keep=0)
        if fits(tried.compiled, tried.cost):
            return n
    return node
