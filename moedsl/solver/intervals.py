"""Interval arithmetic over rules: find rows that may still satisfy a law when prices are only bounded and axes are
open."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from attrs import frozen

from moedsl.facts.operators import BINARY, FUNCTIONS, Column
from moedsl.facts.symbols import ALIASES, COSTS, FLAG, NUMBER, SPARES
from moedsl.lang import ast
from moedsl.solver.laws import SECONDS, TIME, Compiled, Law, Mask, Table, as_mask, closure
from moedsl.solver.problem import Problem

Interval = tuple[Column, Column]
"""The minimum and maximum value; for a condition, whether it must hold and whether it can."""
EITHER: Interval = (False, True)
ANY: Interval = (-np.inf, np.inf)
MONOTONE = ("min", "max", "ceil", "floor", "log2", "sqrt")
"""Functions that never decrease when an argument increases."""
_AT_LEAST_BEST = ("spare_memory", "spare_at_best")
"""Names of the spare memory in cases that need at least the peak of the best case."""


def may_satisfy(
    problem: Problem, laws: Iterable[Law], table: Table, bounds: Mapping[str, Column], required: Iterable[str] = ()
) -> Mask:
    """Return a mask of the rows that could obey every law.

    `bounds` has a minimum peak or step time, or a maximum spare memory; a score is never below the step time. In the
    `required` cases spare memory is not negative.
    """
    prices: dict[str, Interval] = dict.fromkeys(required, (0.0, np.inf))
    shown = problem.program.hardware.shown if any(name in _AT_LEAST_BEST for name in prices) else np.inf
    prices["peak_memory"] = bounds.get("peak_memory", 0.0), shown
    for name in bounds.keys() & SPARES.keys():
        prices[name] = prices.get(name, ANY)[0], bounds[name]
    if TIME in bounds:
        prices |= dict.fromkeys(SECONDS, (bounds[TIME], np.inf))
    of, keep = _Bounds(problem, table, prices).of, np.ones(table.rows, dtype=bool)
    with np.errstate(all="ignore"):
        for law in laws:
            keep &= as_mask((of(law.expr) or EITHER)[1], table.rows)
    return keep


def required(c: Compiled) -> list[str]:
    """Return the cases whose spare memory (in whole bytes) may not be negative, because a law forbids it whatever the
    layout."""
    read = [(name, law) for law in c.laws for name in law.needs & SPARES.keys() if law.needs <= SPARES.keys()]
    return [name for name, law in read if not may_satisfy(c.problem, [law], c.empty(), {name: -1.0}).any()]


@frozen(slots=False)
class _Bounds:
    problem: Problem
    table: Table
    prices: Mapping[str, Interval]

    def of(self, e: ast.Expr) -> Interval | None:
        """Return the interval of a number or a condition; None for words and sets."""
        rules = self.problem.program.rules
        needs = rules.needs_of(e)
        if needs.isdisjoint(COSTS) and needs <= self.table.keys() and not _is_word(e, rules.compiler.types):
            value = rules.compiler.compile(e)(self.table)
            return value, value
        match e:
            case ast.Name():
                name = ALIASES.get(e.id, e.id)
                if name in COSTS:
                    return self.prices.get(name, ANY if name in SPARES else (0.0, np.inf))
                if self.problem.program.named("let", name):
                    return self._let(name)
                kind, domain = rules.compiler.types.get(name), self.problem.domains.get(name)
                if kind in (NUMBER, FLAG) and domain is not None and len(domain):
                    return domain.min(), domain.max()
                return ANY if kind == NUMBER else EITHER if kind == FLAG else None
            case ast.Unary():
                x = self.of(e.value)
                if x is None:
                    return EITHER if e.op == "not" else ANY
                least, most = x
                return _not(x) if e.op == "not" else (np.negative(most), np.negative(least))
            case ast.If():
                (must, can), a, b = self.of(e.test) or EITHER, self.of(e.then), self.of(e.otherwise)
                if a is None or b is None:
                    return None
                both = np.minimum(a[0], b[0]), np.maximum(a[1], b[1])
                least, most = (np.where(must, x, np.where(can, y, z)) for x, y, z in zip(a, both, b, strict=True))
                return least, most
            case ast.Binary():
                a = self.of(e.left)
                b = self.of(e.right)
                compute = _OF.get(e.op)
                if compute is None or a is None or b is None:
                    return EITHER if BINARY[e.op].result == FLAG else ANY
                return compute(a, b)
            case ast.Call():
                f, args = FUNCTIONS[e.func.id], [self.of(a) for a in e.args]
                if f.result not in (NUMBER, FLAG):
                    return None
                if e.func.id not in MONOTONE or f.column is None or any(a is None for a in args):
                    return EITHER if f.result == FLAG else ANY
                least, most = (f.column(*ends) for ends in zip(*(a for a in args if a is not None), strict=True))
                return least, most
            case _:
                return None

    def _let(self, name: str) -> Interval | None:
        """Return the interval of a let, after those of the lets that it reads; each is computed once, because chains
        may be long."""
        if name not in self._lets:
            lets = self.problem.program.of("let")
            read = closure([name], lets) - self._lets.keys()
            for r in lets:
                if r.name in read:
                    self._lets[r.name] = self.of(r.expr)
        return self._lets[name]

    @cached_property
    def _lets(self) -> dict[str, Interval | None]:
        return {}


def _is_word(e: ast.Expr, types: Mapping[str, Any]) -> bool:
    """Whether an expression is a word, a set or a text, which have no order."""
    if isinstance(e, ast.Name):
        return types.get(ALIASES.get(e.id, e.id)) not in (NUMBER, FLAG)
    if isinstance(e, ast.If):
        return _is_word(e.then, types) or _is_word(e.otherwise, types)
    return isinstance(e, ast.List | ast.String) or (
        isinstance(e, ast.Call) and FUNCTIONS[e.func.id].result not in (NUMBER, FLAG)
    )


def _equal(a: Interval, b: Interval) -> Interval:
    one = (a[0] == a[1]) & (b[0] == b[1]) & (a[0] == b[0])
    return one, (a[0] <= b[1]) & (b[0] <= a[1])


def _not(x: Interval) -> Interval:
    return np.logical_not(x[1]), np.logical_not(x[0])


def _ends(compute: Callable[[Column, Column], Column]) -> Callable[[Interval, Interval], Interval]:
    """Return the interval function of an operation that is monotone in each side: it uses the values at the ends. If
    one is 0 times infinity, any value is possible."""

    def of(a: Interval, b: Interval) -> Interval:
        values = np.broadcast_arrays(*(compute(x, y) for x in a for y in b))
        unknown = functools.reduce(np.logical_or, (np.isnan(v) for v in values))
        least, most = functools.reduce(np.minimum, values), functools.reduce(np.maximum, values)
        return np.where(unknown, -np.inf, least), np.where(unknown, np.inf, most)

    return of


def _quotient(a: Interval, b: Interval) -> Interval:
    """Return the interval of a quotient; if the divisor can be 0, any value is possible."""
    zero = (np.asarray(b[0]) <= 0) & (np.asarray(b[1]) >= 0)
    least, most = _ends(np.true_divide)(a, (np.where(zero, 1, b[0]), np.where(zero, 1, b[1])))
    return np.where(zero, -np.inf, least), np.where(zero, np.inf, most)


_OF: Mapping[str, Callable[[Interval, Interval], Interval]] = {
    "and": lambda a, b: (np.logical_and(a[0], b[0]), np.logical_and(a[1], b[1])),
    "or": lambda a, b: (np.logical_or(a[0], b[0]), np.logical_or(a[1], b[1])),
    "=>": lambda a, b: (np.logical_or(np.logical_not(a[1]), b[0]), np.logical_or(np.logical_not(a[0]), b[1])),
    "==": _equal,
    "!=": lambda a, b: _not(_equal(a, b)),
    "<": lambda a, b: (a[1] < b[0], a[0] < b[1]),
    "<=": lambda a, b: (a[1] <= b[0], a[0] <= b[1]),
    ">": lambda a, b: (a[0] > b[1], a[1] > b[0]),
    ">=": lambda a, b: (a[0] >= b[1], a[1] >= b[0]),
    "+": _ends(np.add),
    "-": _ends(np.subtract),
    "*": _ends(np.multiply),
    "/": _quotient,
    "//": lambda a, b: (np.floor((q := _quotient(a, b))[0]) - 1, np.floor(q[1])),  # it may have been rounded up
}
"""The interval function of each operator that can compute its interval from the intervals of its sides."""
