"""Choose one layout for every variant of an axis, so that a comparison of them compares only that axis.

The layout is the best by the phase's ranking with the first variant, among those that are legal for every variant: the
laws of the other variants, applied to the same row with the isolated axis changed, join those of the first. The search
is the usual one, so the choice is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from attrs import evolve

from moedsl.facts.gpu_counts import counts
from moedsl.facts.symbols import CASES
from moedsl.planner.isolate import conflict
from moedsl.planner.isolate.arms import Arm, compile_arms, price, search, with_laws
from moedsl.planner.notes import run
from moedsl.planner.notes.tight import tight
from moedsl.rules.check.program import Program
from moedsl.solver.problem import cases
from moedsl.solver.search import Solution
from moedsl.solver.solve import Chosen
from moedsl.support.diagnostics import Diagnostic

Progress = Callable[[str], None]


def choose(p: Program, progress: Progress) -> tuple[tuple[Chosen, ...], list[Diagnostic]]:
    """Choose the same layout for each variant, in the order of the statement, or explain why none is legal for all."""
    assert p.isolate is not None
    found = p.gpus is None and p.isolate.axis != "gpus"
    for case, gpus in product(cases(p), counts(p.hardware) if found else [p.gpus]):
        progress(f"looking for a layout that {len(p.isolate.variants)} variants share")
        arms = compile_arms(p, gpus, case)
        solution = search(arms)
        if solution.rows:
            notes = [run.smallest(p, gpus)] if found and gpus else []
            chosen = tuple(_chosen(arms, arm, solution) for arm in arms)
            return chosen, [*tight(chosen[0]), *notes]
    return (), conflict.conflict(p, compile_arms(p, p.gpus or p.hardware.gpus_per_node, CASES[-1]))


def _chosen(arms: Sequence[Arm], arm: Arm, solution: Solution) -> Chosen:
    """An arm with the common layout; the first arm also has the next best."""
    row = price(arm, solution.rows[0])
    rest = solution.rows[1:] if arm is arms[0] else ()
    compiled = with_laws(arm.chosen.compiled, [a for a in arms if a is not arm])
    return evolve(arm.chosen, compiled=compiled, solution=Solution((row, *rest), solution.legal, solution.priced))
