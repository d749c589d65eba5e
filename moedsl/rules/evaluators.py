"""Evaluate expressions, either for one row of plain Python values or compiled for whole NumPy columns.

The row evaluator explains a row, derives settings, and tests the column evaluator. It evaluates a word that is not a
variable to itself, and takes functions that a problem supplies from the row's values.

A column is a NumPy array or a scalar that broadcasts. Words are encoded by `moedsl.facts.axes`; text facts are compared
at compile time, because they are equal in every row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
from attrs import field, frozen

from moedsl.facts.operators import BINARY, FUNCTIONS, MEMBER, UNARY, Column, Value
from moedsl.facts.symbols import ALIASES, Type
from moedsl.facts.units import SCALES
from moedsl.lang import ast


def evaluate(expr: ast.Expr, env: Mapping[str, Value]) -> Value:
    """Evaluate an expression for one row; it never raises, and division by zero is 0."""
    return _EVAL[type(expr)](expr, env)


def holds(expr: ast.Expr | None, env: Mapping[str, Value]) -> bool:
    """Whether a condition is true; a missing condition is."""
    return expr is None or bool(evaluate(expr, env))


def _name(e: ast.Name, env: Mapping[str, Value]) -> Value:
    key = ALIASES.get(e.id, e.id)
    if key in env:
        return env[key]
    return frozenset() if key == "none" else key


def _binary(e: ast.Binary, env: Mapping[str, Value]) -> Value:
    op, left = BINARY[e.op], evaluate(e.left, env)
    if op.decided is not None and bool(left) == op.decided[0]:
        return op.decided[1]
    return op.row(left, evaluate(e.right, env))


def _call(e: ast.Call, env: Mapping[str, Value]) -> Value:
    compute = env.get(e.func.id) or FUNCTIONS[e.func.id].row
    assert compute is not None, f"nothing supplies {e.func.id}"
    return compute(*(evaluate(a, env) for a in e.args))


def _list(e: ast.List, env: Mapping[str, Value]) -> Value:
    """Return a set if all items are words, else a tuple."""
    items = [evaluate(i, env) for i in e.items]
    return frozenset(items) if all(isinstance(i, str) for i in items) else tuple(items)


def number(e: ast.Number) -> int | float:
    """Convert a number to base units; whole numbers become integers."""
    value = e.value * SCALES.get(e.unit or "", 1)
    return int(value) if float(value).is_integer() else value


_EVAL: dict[type, Callable[[Any, Mapping[str, Value]], Value]] = {
    ast.Number: lambda e, _: number(e),
    ast.String: lambda e, _: e.value,
    ast.Bool: lambda e, _: e.value,
    ast.Name: _name,
    ast.List: _list,
    ast.Call: _call,
    ast.Unary: lambda e, env: UNARY[e.op].row(evaluate(e.value, env)),
    ast.Binary: _binary,
    ast.If: lambda e, env: evaluate(e.then if evaluate(e.test, env) else e.otherwise, env),
}


Columns = Mapping[str, Column]
Evaluate = Callable[[Columns], Column]
LARGEST = 2**31
"""The largest whole number whose products stay within 64 bits."""


@frozen
class Compiler:
    """Compiles each expression once. `types` gives each variable's type."""

    types: Mapping[str, Type]
    _made: dict[int, tuple[ast.Expr, Evaluate]] = field(factory=dict, init=False, eq=False, repr=False)
    """The compiled functions by their expression's `id`; the expression is kept so that its id stays unique."""

    def compile(self, expr: ast.Expr) -> Evaluate:
        """Return a function from columns to the expression's column; the expression must have passed the check.

        If `FUNCTIONS` has no column version of a function, the column with the function's name is called.
        """
        if id(expr) not in self._made:
            value = self._any(expr, self._type(expr))

            def quiet(c: Columns) -> Column:
                with np.errstate(all="ignore"):
                    return value(c)

            self._made[id(expr)] = expr, quiet
        return self._made[id(expr)][1]

    def _any(self, e: ast.Expr, want: Type | None) -> Evaluate:
        match e:
            case ast.Number():
                return _constant(safe(number(e)))
            case ast.Bool():
                return _constant(e.value)
            case ast.String():
                return _constant(e.value)
            case ast.Name():
                return self._name(e, want)
            case ast.List():
                return _constant(_mask([i.id for i in e.items if isinstance(i, ast.Name)], want))
            case ast.Call():
                return self._call(e)
            case ast.Unary():
                op, value = UNARY[e.op].column, self._any(e.value, None)
                return lambda c: op(value(c))
            case ast.If():
                test, a, b = self._any(e.test, None), self._any(e.then, want), self._any(e.otherwise, want)
                return lambda c: np.where(test(c), a(c), b(c))
            case ast.Binary():
                return self._binary(e)

    def _name(self, e: ast.Name, want: Type | None) -> Evaluate:
        key = ALIASES.get(e.id, e.id)
        if key in self.types:
            return lambda c: c[key]
        if want is not None and want.kind == "enum":
            return _constant(want.words.index(key) if key in want.words else -1)
        return _constant(_mask([key], want) if want is not None and want.kind == "set" else key)

    def _call(self, e: ast.Call) -> Evaluate:
        args = [self._any(a, self._type(a)) for a in e.args]
        name, compute = e.func.id, FUNCTIONS[e.func.id].column
        if compute is None:
            return lambda c: c[name](*(a(c) for a in args))
        return lambda c: compute(*(a(c) for a in args))

    def _binary(self, e: ast.Binary) -> Evaluate:
        op, left, right = BINARY[e.op], self._type(e.left), self._type(e.right)
        if op.takes is MEMBER and right is not None and right.kind == "set":
            bit, mask = self._any(e.left, Type("enum", right.words)), self._any(e.right, right)
            return lambda c: op.column((np.right_shift(mask(c), bit(c)) & 1) != 0)
        if op.takes is MEMBER:
            value = self._any(e.left, left)
            items = [self._any(i, left) for i in e.right.items] if isinstance(e.right, ast.List) else []
            return lambda c: op.column(reduce(np.logical_or, [np.equal(value(c), i(c)) for i in items], False))
        a, b = self._any(e.left, left or right), self._any(e.right, right or left)
        return lambda c: op.column(a(c), b(c))

    def _type(self, e: ast.Expr) -> Type | None:
        """Return the type of a variable, also inside an `if`; None for a word or a number."""
        if isinstance(e, ast.If):
            return self._type(e.then) or self._type(e.otherwise)
        return self.types.get(ALIASES.get(e.id, e.id)) if isinstance(e, ast.Name) else None


def safe(value: Any) -> Any:
    """Convert a whole number to a float if a product with it could exceed 64 bits."""
    return float(value) if isinstance(value, int) and abs(value) > LARGEST else value


def _constant(value: Any) -> Evaluate:
    return lambda _: value


def _mask(words: list[str], want: Type | None) -> int:
    known = want.words if want is not None else ()
    return sum(1 << known.index(w) for w in set(words) if w in known)


def names(expr: ast.Expr | None) -> frozenset[str]:
    """Return every name in an expression, with aliases resolved; words count as names."""
    if isinstance(expr, ast.Name):
        return frozenset([ALIASES.get(expr.id, expr.id)])
    return frozenset[str]().union(*map(names, ast.operands(expr))) if expr is not None else frozenset()
