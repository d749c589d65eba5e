"""Find the simplest layout whose step is nearly as short as the plan's: the one that a person can reason about."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from attrs import evolve, frozen

from moedsl.facts import axes
from moedsl.facts.axes import pairs
from moedsl.facts.units import GIB
from moedsl.planner.advice import against, by_time
from moedsl.solver.laws import Law, Row, Table
from moedsl.solver.problem import divisors
from moedsl.solver.search import Question, TopK
from moedsl.solver.solve import Chosen
from moedsl.support.json_form import JsonForm

WITHIN = 0.05
"""The longer step, as a share, for which a page names a simpler layout."""
READ = frozenset((*axes.SIZES, "vpp"))


@frozen
class Simpler(JsonForm):
    """A layout with fewer sizes above 1, fewer of them that are no powers of two, or else with fewer stages."""

    within: float
    """The most by which its step may be longer, as a share."""
    changes: Mapping[str, Any]
    """Axes that differ from the plan, with their values; empty if no simpler layout is so fast."""
    step_time_s: float
    peak_gib: float
    against_plan: str

    @property
    def text(self) -> str:
        if not self.changes:
            return f"no simpler layout has a step within {self.within:.0%} of this one"
        sizes = {n: v for n, v in self.changes.items() if n in READ}
        return f"{self.against_plan} with `pin {pairs(sizes)}`"


def simpler(chosen: Chosen, row: Row, within: float = WITHIN) -> Simpler | None:
    """Return the simplest layout with a step at most `within` longer; None if the run ranks by another key first, or
    has a layout of its own."""
    if not by_time(chosen.compiled) or chosen.preference is not None:
        return None
    at = len(chosen.compiled.wishes)
    limit = (*row.keys[:at], row.keys[at] * (1 + within), math.inf)
    now = int(complexity(chosen.compiled.at(row))[0])

    def first(bounds: list[tuple[int, int]]) -> Row | None:
        """The best layout within the first of these bounds, on complexity and stages, that some layout keeps."""
        queries = [TopK(1, Question(law=_law(chosen, most, stages)), limit) for most, stages in bounds]
        chosen.search.fill(queries)
        near = (r for k in queries for r in k.rows if r.step_time <= (1 + within) * row.step_time)
        return next(near, None)

    found = first([(most, chosen.problem.gpus) for most in range(now)]) or row
    most, stages = int(complexity(chosen.compiled.at(found))[0]), found.codes["pp"]
    fewer = [pp for pp in divisors(stages) if pp < stages]
    found = (first([(most, pp) for pp in fewer]) if fewer else None) or found
    changes = {} if found is row else found.changes(row.codes)
    return Simpler(within, changes, found.step_time, found.peak_memory / GIB, against(found, row))


def complexity(t: Table) -> Any:
    """Count the sizes above 1 of each layout, and those that are no powers of two a second time."""
    sizes = [np.asarray(t[name], dtype=np.int64) for name in sorted(READ)]
    return np.sum([(n > 1) * 1 + ((n & (n - 1)) > 0) for n in np.broadcast_arrays(*sizes)], axis=0)


def _law(chosen: Chosen, most: int, stages: int) -> Law:
    return evolve(
        chosen.compiled.ranks[0], needs=READ, value=lambda t: (complexity(t) <= most) & (np.asarray(t["pp"]) <= stages)
    )
