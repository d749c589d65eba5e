"""Tables of rows: columns grown one axis at a time, lets computed when a law asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from moedsl.rules.rule import Rule
from moedsl.rules.types import WORD, Inference
from moedsl.rules.vectorizer import Column, Compiler, Evaluate, Extern, names
from moedsl.schema import axes
from moedsl.schema.symbols import BUILTIN, COSTS, NUMBER, Type
from moedsl.solver.problem import Problem
from moedsl.syntax import ast

Mask = NDArray[np.bool_]


class Table(dict[str, Column]):
    """Columns by name. A let is computed once, when first read; growing or filtering makes a new table."""

    def __init__(self, columns: Mapping[str, Column], fixed: Mapping[str, Any], lets: Mapping[str, Evaluate]) -> None:
        super().__init__(fixed)
        self.axes = dict(columns)
        self.update(self.axes)
        self._fixed, self._lets = fixed, lets

    def __missing__(self, key: str) -> Column:
        value = self[key] = self._lets[key](self)
        return value

    @property
    def rows(self) -> int:
        return len(next(iter(self.axes.values()))) if self.axes else 1

    def grow(self, name: str, domain: NDArray[np.int64]) -> Table:
        """Every row with every value of one more axis."""
        n, m = self.rows, len(domain)
        columns = {k: np.repeat(v, m) for k, v in self.axes.items()}
        return Table({**columns, name: np.tile(domain, n)}, self._fixed, self._lets)

    def take(self, index: NDArray[Any]) -> Table:
        """Some rows, by mask or by position. A mask becomes positions once, not once a column."""
        at = np.flatnonzero(index) if index.dtype == bool else index
        if at is not index and len(at) == self.rows:
            return self
        return Table({k: v.take(at) for k, v in self.axes.items()}, self._fixed, self._lets)

    def times(self, other: Mapping[str, NDArray[np.int64]]) -> Table:
        """Every row with every row of another table."""
        n, m = self.rows, len(next(iter(other.values())))
        columns = {k: np.repeat(v, m) for k, v in self.axes.items()}
        return Table({**columns, **{k: np.tile(v, n) for k, v in other.items()}}, self._fixed, self._lets)

    def assume(self, **values: Any) -> Table:
        """The same rows with one value for each of some more axes or prices."""
        return Table(self.axes, {**self._fixed, **values}, self._lets)

    def with_columns(self, **columns: NDArray[Any]) -> Table:
        """The same rows with more columns."""
        return Table({**self.axes, **columns}, self._fixed, self._lets)


@frozen
class Law:
    """A compiled rule and the axes and prices that it needs, through the lets that it uses."""

    rule: Rule
    expr: ast.Expr
    needs: frozenset[str]
    holds: Evaluate

    @property
    def priced(self) -> bool:
        return bool(self.needs & COSTS.keys())

    @property
    def is_price(self) -> bool:
        """Whether it is a price itself, so that a bound of the price bounds it."""
        return isinstance(self.expr, ast.Name) and self.expr.id in COSTS

    @property
    def is_memory_cap(self) -> bool:
        """Whether it only caps memory, so that a lower bound of the memory may already refuse a row."""
        e = self.rule.expr
        if not (isinstance(e, ast.Binary) and e.op in ("<", "<=") and isinstance(e.left, ast.Name)):
            return False
        priced = (names(e.right) | names(self.rule.when)) & COSTS.keys()
        return e.left.id == "peak_memory" and not priced and not self.needs - {"peak_memory"}


@frozen
class Compiled:
    """A problem with its rules compiled."""

    problem: Problem
    lets: Mapping[str, Evaluate]
    needs: Mapping[str, frozenset[str]]
    laws: tuple[Law, ...]
    advice: tuple[Law, ...]
    wishes: tuple[Law, ...]
    ranks: tuple[Law, ...]

    @property
    def asks_for_spare(self) -> bool:
        """Whether any rule reads the memory that is left at the most."""
        rules = (*self.laws, *self.advice, *self.wishes, *self.ranks)
        return any("spare_memory" in law.needs for law in rules)

    def empty(self) -> Table:
        return Table({}, self.problem.codes, self.lets)


_ALWAYS = frozenset(a.name for a in axes.AXES) | COSTS.keys()


def compile_problem(problem: Problem, externs: Mapping[str, Extern]) -> Compiled:
    """Compiles every rule; one whose condition is fixed and false is left out, one that the user allowed too."""
    p = problem.program
    types = _types(p.of("let"))
    compiler = Compiler(types, externs)
    lets = {r.name: compiler.compile(r.expr) for r in p.of("let") if types[r.name] != WORD}
    needs = _needs(p.of("let"))
    make = _Maker(compiler, needs, Table({}, problem.codes, lets))
    requires = [r for r in p.of("require") if r.id not in p.allows]
    prefers = [r for r in p.of("prefer") if r.id not in p.allows]
    return Compiled(
        problem, lets, needs, make.laws(requires), make.laws([r for r in prefers if not r.wish]),
        make.laws([r for r in prefers if r.wish]), make.keys(p.of("rank")),
    )  # fmt: skip


def _types(lets: tuple[Rule, ...]) -> dict[str, Type]:
    """The type of every name; a let that stands for a word is for the scalar evaluator alone."""
    types = dict(BUILTIN)
    for r in lets:
        types[r.name] = Inference(types).of(r.expr) or NUMBER
    return types


def _needs(lets: tuple[Rule, ...]) -> dict[str, frozenset[str]]:
    """The axes behind each let, in order of declaration."""
    out: dict[str, frozenset[str]] = {}
    for r in lets:
        out[r.name] = _axes(names(r.expr), out)
    return out


def _axes(used: frozenset[str], lets: Mapping[str, frozenset[str]]) -> frozenset[str]:
    found = used & _ALWAYS
    for n in used & lets.keys():
        found |= lets[n]
    return found


@frozen
class _Maker:
    compiler: Compiler
    needs: Mapping[str, frozenset[str]]
    fixed: Table

    def laws(self, rules: list[Rule]) -> tuple[Law, ...]:
        return tuple(law for r in rules if (law := self._law(r)) is not None)

    def _law(self, r: Rule) -> Law | None:
        expr = r.expr
        if r.when is not None:
            when_needs = _axes(names(r.when), self.needs)
            if not when_needs and not np.all(self.compiler.compile(r.when)(self.fixed)):
                return None
            expr = ast.Binary("=>", r.when, r.expr, r.span) if when_needs else expr
        return Law(r, expr, _axes(names(expr), self.needs), self.compiler.compile(expr))

    def keys(self, ranks: tuple[Rule, ...]) -> tuple[Law, ...]:
        """The keys of the first rank whose condition holds, one law each."""
        for r in sorted(ranks, key=lambda r: r.id.startswith("std.")):
            if r.when is None or np.all(self.compiler.compile(r.when)(self.fixed)):
                items = r.expr.items if isinstance(r.expr, ast.List) else (r.expr,)
                return tuple(Law(r, i, _axes(names(i), self.needs), self.compiler.compile(i)) for i in items)
        return ()


@frozen
class Row:
    """One complete layout: codes by axis, its prices and its rank."""

    codes: Mapping[str, int]
    peak_memory: float
    step_time: float
    score: float
    spare_memory: float
    """NaN where no rule reads it."""
    keys: tuple[float, ...] = field(repr=False)

    @property
    def prices(self) -> dict[str, float]:
        """Its prices as rules call them."""
        return {n: getattr(self, n) for n in COSTS}
