"""Answer yes-or-no questions about a problem without ranking its layouts.

- Does any layout obey every law, prices included? The search stops at the first one (`fits`, `layouts`).
- Which layout needs the least memory? A mesh whose ranks hold more than a known layout is skipped (`least_memory`).
- Which laws does a fully pinned run break? The scalar evaluator tells, without search or prices (`violations`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from moedsl.lang import ast
from moedsl.rules.check.program import Program
from moedsl.rules.rule import Rule
from moedsl.solver.bounded_space import LEAST_TIME
from moedsl.solver.bounds import Prices
from moedsl.solver.intervals import may_satisfy
from moedsl.solver.laws import SECONDS, TIME, Compiled, Law, reads_price, time_limits
from moedsl.solver.legal import legal_on
from moedsl.solver.problem import Problem, lower, pinned_row
from moedsl.solver.search import Search
from moedsl.solver.solve import Chosen, environment, make_cost, of_same_space, solve
from moedsl.solver.space import FIRST_BLOCK, LARGEST_CHUNK, most_divided_first
from moedsl.solver.table import Row, Table

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
    return bool(may_satisfy(problem, limits, table, {TIME: seconds}).all())


class _Any(Search):
    """A search that stops at its first row."""

    def found(self) -> bool:
        if not self.could_be_fast or not self.meshes_that_hold_weights.rows or not self.policies.rows:
            return False
        meshes = self.meshes_that_hold_weights.with_columns(**self._known)
        return any(self._some(meshes.take(part), self.policies) for part in most_divided_first(meshes))

    @property
    def _known(self) -> dict[str, NDArray[np.floating[Any]]]:
        """The least seconds of each mesh, if they are limited and a search of the same space has them."""
        timed = None if self.like is None else self.like._timed
        limited = any(TIME in law.bounded for law in self.c.laws)
        return (
            {LEAST_TIME: timed._seconds}
            if timed is not None and limited and self.meshes_that_hold_weights is self.legal
            else {}
        )

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


def least_memory(c: Chosen) -> Row | None:
    """The best layout of a compiled problem that ranks its layouts by `peak_memory`."""
    search = c.search
    first = not c.compiled.wishes  # a layout that follows them comes before one that needs less
    if first and search.legal.rows > FIRST_BLOCK and np.isfinite(most := _of_a_few(search)):
        search = Search(evolve(c.compiled, laws=(*c.compiled.laws, _at_most(c, most))), c.cost, search)
    return next(iter(search.run().rows), None) if search.could_hold else None


def _of_a_few(search: Search) -> float:
    """The least memory of some layouts that probably need little; infinite if none of them is legal."""
    meshes = search.legal.take(next(most_divided_first(search.legal)))
    return search.least_peak(meshes)


def _at_most(c: Chosen, most: float) -> Law:
    """The law that a layout needs at most so much memory."""
    rule = c.compiled.ranks[0].rule
    price, number = ast.Name("peak_memory", rule.span), ast.Number(most, None, f"{most}", rule.span)
    limit = evolve(rule, kind="require", when=None, expr=ast.Binary("<=", price, number, rule.span))
    return Law(limit, limit.expr, frozenset({"peak_memory"}), lambda table: table["peak_memory"] <= most)


def violations(program: Program, gpus: int) -> tuple[Rule, ...]:
    """The laws that the layout of a fully pinned program breaks, in the order of the rules, except those it allows.

    Laws on memory and time are left out because they need prices. Raises ValueError if an axis is open.
    """
    problem = lower(program, gpus)
    env = environment(problem, make_cost(problem), pinned_row(problem))
    laws = [r for r in program.of("require") if r.id not in program.allows and not reads_price(r, program.of("let"))]
    return tuple(r for r in laws if not r.holds(env))
