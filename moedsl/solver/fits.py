"""Decide whether any layout of a problem obeys every law, prices included; the search stops at the first one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from moedsl.rules.check.program import Program
from moedsl.solver.bounded_space import LEAST_TIME
from moedsl.solver.bounds import Prices
from moedsl.solver.could import could_obey
from moedsl.solver.laws import SECONDS, TIME, Compiled, time_limits
from moedsl.solver.legal import legal_on
from moedsl.solver.order import LARGEST_CHUNK, most_divided_first
from moedsl.solver.problem import Problem
from moedsl.solver.search import Search
from moedsl.solver.solve import Chosen, make_cost, of_same_space, solve
from moedsl.solver.table import Table

GROWTH, FIRST_ROWS = 8, 512
"""Rows of the smallest meshes of a part that are expanded first, and the growth of the next ones."""


def fits(p: Program, gpus: int) -> bool:
    """Whether a program has a legal layout that fits on a number of GPUs."""
    return bool(layouts(solve(p, gpus, keep=0)))


def layouts(c: Chosen, like: Search | None = None, legal: bool = False) -> int:
    """The number of legal meshes of a compiled problem; 0 if no layout fits. `legal` if some layout is probably legal:
    else that is found out first."""
    search = _Any(c.compiled, c.cost, of_same_space(like, c.compiled, c.cost) or c.search)
    return search.legal.rows if (legal or legal_on(c.compiled)) and search.could_hold and search.found() else 0


def fits_where_legal(c: Compiled, prices: Prices, like: Search) -> bool:
    """Whether a layout fits in a problem that has a legal one."""
    return _Any(c, prices, of_same_space(like, c, prices)).found()


def fast_enough(problem: Problem, seconds: float) -> bool:
    """Whether a step of so many seconds obeys the limits of its time."""
    limits, table = time_limits(problem, {"has_layout": lambda pp, vpp: make_cost(problem).has_layout(pp, vpp)})
    return bool(could_obey(problem, limits, table, {TIME: seconds}).all())


class _Any(Search):
    """A search that stops at its first row."""

    def found(self) -> bool:
        if not self.could_be_fast or not self.able.rows or not self.policies.rows:
            return False
        meshes = self.able.with_columns(**self._known)
        return any(self._some(meshes.take(part), self.policies) for part in most_divided_first(meshes))

    @property
    def _known(self) -> dict[str, NDArray[np.floating[Any]]]:
        """The least seconds of each mesh, if they are limited and a search of the same space has them."""
        timed = None if self.like is None else self.like._timed
        limited = any(TIME in law.bounded for law in self.c.laws)
        return {LEAST_TIME: timed._seconds} if timed is not None and limited and self.able is self.legal else {}

    def _some(self, meshes: Table, policies: Table) -> bool:
        """Whether any row of some meshes fits; meshes with the least memory are tried first."""
        meshes = self._could_fit(meshes, "peak_memory")
        order = np.argsort(meshes.axes["peak_memory"], kind="stable")
        at, step = 0, max(1, FIRST_ROWS // policies.rows)
        while at < len(order):
            part = meshes.take(order[at : at + step])
            if self._moved(self._could_hold(self._held(part, policies)), policies).rows:
                return True
            at, step = at + step, min(step * GROWTH, max(1, LARGEST_CHUNK // policies.rows))
        return False

    def _priced(self, table: Table, slowest: float = np.inf) -> Table:
        """Price rows; seconds only if a law limits them."""
        laws = [w for w in self.c.laws if w.priced]
        if any(w.needs & SECONDS for w in laws):
            return super()._priced(table, slowest)
        judged = [n for n in self.c.memory_read if any(n in w.needs for w in laws)]
        return self._within_memory(table, judged, laws)
