"""Find the layout that needs the least memory: no mesh counts whose ranks hold more than a layout that is known."""

from __future__ import annotations

import numpy as np
from attrs import evolve

from moedsl.lang import ast
from moedsl.solver.laws import Law
from moedsl.solver.order import FIRST_BLOCK, most_divided_first
from moedsl.solver.search import Search
from moedsl.solver.solve import Chosen
from moedsl.solver.table import Row


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
