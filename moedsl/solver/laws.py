"""Tables of layouts, and the rules of a problem compiled to laws over them.

A table grows one axis at a time; its lets are computed when first read.

A law is exact: it needs every value that it reads. `intervals.py` handles rows whose prices are only bounded. `reads`
and `closure` return the names that a rule reads, directly or through the lets of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from moedsl.facts import axes
from moedsl.facts.operators import Column
from moedsl.facts.symbols import COSTS, MEMORY, SAVES, SPARES
from moedsl.lang import ast
from moedsl.rules.check.program import Program
from moedsl.rules.evaluators import LARGEST, Evaluate, names
from moedsl.rules.rule import Rule, Rules
from moedsl.rules.types import WORD
from moedsl.solver.problem import Problem

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]
MOST_KEYS = 2**62
"""Maximum combinations of values that one integer can number."""


def as_mask(value: Column, rows: int) -> Mask:
    """Broadcast the column of a condition to the rows."""
    mask = np.asarray(value, dtype=bool)
    return mask if mask.shape == (rows,) else np.broadcast_to(mask, (rows,))


class Table(dict[str, Column]):
    """Columns by name. A let is computed once, when first read; growing or filtering makes a new table."""

    def __init__(self, columns: Mapping[str, Column], fixed: Mapping[str, Any], lets: Mapping[str, Evaluate]) -> None:
        super().__init__(fixed)
        self.axes = dict(columns)
        self.update(self.axes)
        self._fixed, self._lets = fixed, lets
        self.rows = len(next(iter(self.axes.values()))) if self.axes else 1

    def __missing__(self, key: str) -> Column:
        value = self[key] = self._lets[key](self)
        return value

    def grow(self, name: str, domain: NDArray[np.int64]) -> Table:
        """Combine every row with every value of one more axis."""
        n, m = self.rows, len(domain)
        columns = {k: np.repeat(v, m) for k, v in self.axes.items()}
        return Table({**columns, name: np.tile(domain, n)}, self._fixed, self._lets)

    def without_axes(self) -> Table:
        """Return a table of one row and no axis, with the same facts and lets."""
        return Table({}, self._fixed, self._lets)

    def each(self) -> Iterator[dict[str, int]]:
        """Yield the values of each row."""
        return (dict(zip(self.axes, row, strict=True)) for row in zip(*self.axes.values(), strict=True))

    def parts(self, rows: int) -> list[Table]:
        """Cut the table into parts of at most `rows` rows."""
        at = np.arange(self.rows)
        return [self] if self.rows <= rows else [self.take(at[i : i + rows]) for i in range(0, self.rows, rows)]

    @classmethod
    def joined(cls, parts: Sequence[Table]) -> Table:
        """Concatenate the rows of several tables with the same axes."""
        first, *more = parts
        if not more:
            return first
        columns = {n: np.concatenate([part.axes[n] for part in parts]) for n in first.axes}
        return cls(columns, first._fixed, first._lets)

    def take(self, index: NDArray[Any]) -> Table:
        """Take rows by mask or by position. A mask is converted to positions once, not for each column."""
        at = np.flatnonzero(index) if index.dtype == bool else index
        if at is not index and len(at) == self.rows:
            return self
        return Table({k: v.take(at) for k, v in self.axes.items()}, self._fixed, self._lets)

    def distinct(self, names: Container[str]) -> Table:
        """Return the columns of some axes, with each combination once; the table's own rows must be distinct."""
        columns = {n: v for n, v in self.axes.items() if n in names}
        if len(columns) == len(self.axes) or not self.rows:
            return self
        if not columns:
            return self.without_axes()
        key, size = np.zeros(self.rows, dtype=np.int64), 1
        for column in columns.values():
            low, span = int(column.min()), int(np.ptp(column)) + 1
            if size * span > MOST_KEYS:
                values, key = np.unique(key, return_inverse=True)
                size = len(values)
            key, size = key * span + (column - low), size * span
        first = np.sort(np.unique(key, return_index=True)[1])
        return Table(columns, self._fixed, self._lets).take(first)

    def times(self, other: Mapping[str, NDArray[np.int64]]) -> Table:
        """Combine every row with every row of another table."""
        n, m = self.rows, len(next(iter(other.values())))
        columns = {k: np.repeat(v, m) for k, v in self.axes.items()}
        return Table({**columns, **{k: np.tile(v, n) for k, v in other.items()}}, self._fixed, self._lets)

    def assume(self, **values: Any) -> Table:
        """Return the same rows with constant values for more axes or prices."""
        return Table(self.axes, {**self._fixed, **values}, self._lets)

    def with_columns(self, **columns: NDArray[Any]) -> Table:
        """Return the same rows with more columns."""
        return Table({**self.axes, **columns}, self._fixed, self._lets)


def different(column: NDArray[Any]) -> NDArray[Any]:
    """Return the distinct values of a column, in order; np.unique would import numpy.ma, which takes a hundredth of a
    plan."""
    ordered = np.sort(column)
    return np.append(ordered[:1], ordered[1:][ordered[1:] != ordered[:-1]])


@frozen
class Row:
    """One complete layout: codes by axis, prices and rank."""

    codes: Mapping[str, int]
    prices: Mapping[str, float]
    """The prices by their names in rules; NaN for a price that no rule reads."""
    keys: tuple[float, ...] = field(repr=False)

    @property
    def peak_memory(self) -> float:
        return self.prices["peak_memory"]

    @property
    def step_time(self) -> float:
        return self.prices["step_time"]

    @property
    def score(self) -> float:
        return self.prices["score"]

    @property
    def layout(self) -> dict[str, Any]:
        """Return the value of every axis, as the plan shows it."""
        return {a.name: a.decode(self.codes[a.name]) for a in axes.AXES}

    def changes(self, codes: Mapping[str, int]) -> dict[str, Any]:
        """Return the axes that differ from another layout's codes, with this layout's values."""
        return {n: v for n, v in self.layout.items() if self.codes[n] != codes[n]}


TIME = "step_time"
SECONDS = frozenset({TIME, "score"})
"""The prices that are seconds; a score is never below the step time."""
KEPT = 4
"""Number of a run's problems whose laws are kept; its searches with other pins have the same facts."""


@frozen(slots=False)
class Law:
    """A compiled rule with the axes and prices that it reads, directly or through lets."""

    rule: Rule
    expr: ast.Expr
    needs: frozenset[str]
    value: Evaluate
    """Evaluates the expression to a column of a table."""

    def holds(self, table: Table) -> Mask:
        """Return a mask of the rows that obey the law."""
        return as_mask(self.value(table), table.rows)

    @cached_property
    def priced(self) -> bool:
        return bool(self.needs & COSTS.keys())

    @property
    def is_price(self) -> bool:
        """Whether the expression is a price, so that a bound of the price bounds it."""
        return isinstance(self.expr, ast.Name) and self.expr.id in COSTS

    @cached_property
    def bounded(self) -> frozenset[str]:
        """Return the prices whose bounds can refuse a row; for a score, the step time."""
        return frozenset(TIME if name in SECONDS else name for name in self.needs & COSTS.keys())


@frozen(slots=False)
class Compiled:
    """A problem with its rules compiled."""

    problem: Problem
    lets: Mapping[str, Evaluate]
    needs: Mapping[str, frozenset[str]]
    laws: tuple[Law, ...]
    advice: tuple[Law, ...]
    wishes: tuple[Law, ...]
    ranks: tuple[Law, ...]

    @cached_property
    def memory_read(self) -> tuple[str, ...]:
        """Return the memory prices that affect which layout is chosen; advice without a worth does not."""
        return memory_of((*self.laws, *self.wishes, *self.ranks, *(w for w in self.advice if w.rule.worth)))

    @property
    def memory_prices(self) -> tuple[str, ...]:
        """Return the peak, and the spare memory of each case that any rule reads."""
        return tuple(dict.fromkeys(("peak_memory", *self.memory_read, *memory_of(self.advice))))

    @property
    def spare(self) -> str:
        """Return the name of the spare memory in the case that must fit."""
        return next(n for n, case in SPARES.items() if case == self.problem.values["must_fit"])

    def empty(self) -> Table:
        return Table({}, self.problem.codes, self.lets)

    def table(self, rows: Sequence[Mapping[str, float]]) -> Table:
        """Return a table of layouts from their codes, with prices if they are known."""
        return Table({n: np.array([r[n] for r in rows]) for n in rows[0]}, self.problem.codes, self.lets)

    def at(self, row: Row) -> Table:
        """Return a table of one priced layout."""
        return self.table([{**row.codes, **row.prices}])

    def unfollowed(self, row: Row) -> list[str]:
        """Return the ids of the wishes and advice that a layout does not follow."""
        return [w.rule.id for w in broken((*self.wishes, *self.advice), self.at(row))]


def memory_of(laws: Iterable[Law]) -> tuple[str, ...]:
    """Return the memory prices that laws read."""
    needs = frozenset[str]().union(*(law.needs for law in laws))
    return tuple(n for n in MEMORY if n in needs)


def obeyed(laws: Iterable[Law], table: Table) -> Mask:
    """Return a mask of the rows that obey every law."""
    keep = np.ones(table.rows, dtype=bool)
    for law in laws:
        keep &= law.holds(table)
    return keep


def obeying(table: Table, laws: Iterable[Law]) -> Table:
    """Keep the rows that obey some laws; masks are joined first because copying columns is slower."""
    return table.take(obeyed(laws, table))


def allowed(table: Table, name: str, domain: NDArray[np.int64], laws: Iterable[Law]) -> NDArray[np.int64]:
    """Return the values of an axis that obey the laws on that axis only; `table` has no axis."""
    return np.asarray(obeying(table.grow(name, domain), laws).axes[name])


def broken(laws: Iterable[Law], table: Table) -> list[Law]:
    """Return the laws that some row of a table breaks."""
    return [law for law in laws if not law.holds(table).all()]


def broken_by_row(laws: Iterable[Law], table: Table) -> list[list[Law]]:
    """Return, for each row, the laws that it breaks."""
    out = [list[Law]() for _ in range(table.rows)]
    for law in laws:
        for i in np.flatnonzero(~law.holds(table)):
            out[i].append(law)
    return out


def first_broken(laws: Iterable[Law], table: Table) -> list[Law | None]:
    """Return, for each row, the first law that it breaks; None for a row that obeys all."""
    return [next(iter(found), None) for found in broken_by_row(laws, table)]


def compile_problem(problem: Problem, functions: Mapping[str, Callable[..., Column]]) -> Compiled:
    """Compile every rule, except rules whose condition is never true and those that the user allows to break.

    `functions` are the typed functions of the problem.
    """
    p, lets = problem.program, _lets(problem.program, functions)
    kept, facts = p.rules.compiled, (problem.codes, p.allows.keys(), p.pipeline_layout)
    laws = next((laws for known, laws in kept if known == facts), None)
    if laws is None:
        make = _Maker(p.rules, Table({}, problem.codes, lets), p.pipeline_layout)
        requires = [r for r in p.of("require") if r.id not in p.allows]
        prefers = [r for r in p.of("prefer") if r.id not in p.allows]
        advice, wishes = (make.laws([r for r in prefers if r.wish == wish]) for wish in (False, True))
        laws = make.laws(requires), advice, wishes, make.keys(p.of("rank"))
        kept[:] = [(facts, laws), *kept[: KEPT - 1]]
    return Compiled(problem, lets, p.rules.let_needs, *laws)


def time_limits(problem: Problem, functions: Mapping[str, Callable[..., Column]]) -> tuple[list[Law], Table]:
    """Return the laws of `compile_problem` that read the step time, and a table without an axis; the domains need not
    be known."""
    p = problem.program
    table = Table({}, problem.codes, _lets(p, functions))
    limits = [r for r in p.of("require") if r.id not in p.allows and p.rules.needs(r.reads) & SECONDS]
    return [*_Maker(p.rules, table, p.pipeline_layout).laws(limits)], table


def _lets(p: Program, functions: Mapping[str, Callable[..., Column]]) -> dict[str, Evaluate]:
    compiler = p.rules.compiler

    def within_64_bits(value: Evaluate) -> Evaluate:
        """Convert large whole numbers to floats, because a run's let may add up many others and exceed 64 bits."""

        def within(c: Mapping[str, Column]) -> Column:
            column = np.asarray(value(c))
            large = column.dtype.kind == "i" and column.size and np.abs(column).max() > LARGEST
            return column.astype(np.float64) if large else column

        return within

    lets = {
        r.name: compiler.compile(r.expr) if r.is_std else within_64_bits(compiler.compile(r.expr))
        for r in p.of("let")
        if compiler.types[r.name] != WORD
    }
    return lets | {name: lambda _, function=function: function for name, function in functions.items()}


@frozen
class _Maker:
    rules: Rules
    fixed: Table
    layout: str | None
    """The pinned pipeline layout."""

    def laws(self, rules: list[Rule]) -> tuple[Law, ...]:
        """Return a law for each rule whose condition can hold."""
        kept, out = self.rules.kept, list[Law]()
        for r in rules:
            expr = r.expr
            if r.when is not None:
                when_needs = self.rules.needs(r.when_reads)
                if not when_needs and not self._holds(r, r.when):
                    continue
                expr = r.guarded if when_needs else expr
            key = id(r), id(expr)
            if key not in kept:
                kept[key] = Law(r, expr, self.rules.needs(r.reads), self.rules.compiler.compile(expr))
            out.append(kept[key])
        return tuple(out)

    def _holds(self, r: Rule, when: ast.Expr) -> bool:
        """Whether the condition of a rule holds, which reads no axis; it is evaluated once for the facts that
        it reads."""
        key = id(r), id(when)
        if key not in self.rules.kept:
            read = closure(r.when_reads, self.rules.by_kind.get("let", ())) & self.fixed.keys()
            self.rules.kept[key] = r, sorted({*read, "model"} - self.rules.let_needs.keys()), {}
        _, read, known = self.rules.kept[key]
        facts = (self.layout, *(self.fixed[name] for name in read))
        if facts not in known:
            known[facts] = bool(np.asarray(self.rules.compiler.compile(when)(self.fixed)).all())
        return known[facts]

    def keys(self, ranks: tuple[Rule, ...]) -> tuple[Law, ...]:
        """Return one law for each key of the first rank whose condition holds."""
        for r in sorted(ranks, key=lambda r: r.id.startswith("std.")):
            if r.when is None or self._holds(r, r.when):
                items = r.expr.items if isinstance(r.expr, ast.List) else (r.expr,)
                return tuple(Law(r, i, self.rules.needs(names(i)), self.rules.compiler.compile(i)) for i in items)
        return ()


def reads(p: Program, r: Rule) -> frozenset[str]:
    """Return every name that a rule of a program reads, directly or through lets."""
    return closure(r.reads, p.of("let"))


def reads_price(r: Rule, lets: Iterable[Rule]) -> bool:
    """Whether a rule reads a price, or a value that follows from one."""
    return bool(closure(r.reads, lets) & (COSTS.keys() | SAVES.keys()))


def closure(used: Iterable[str], lets: Iterable[Rule]) -> frozenset[str]:
    """Expand a set of names transitively: for each name of a `let`, add every name that its expression reads."""
    exprs = {r.name: r.expr for r in lets}
    todo, seen = [*used], set[str]()
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += names(exprs[name]) if name in exprs else ()
    return frozenset(seen)
