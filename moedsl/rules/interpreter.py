"""Evaluate an expression for one row of plain Python values: to explain a row, to derive settings, and to test the fast
evaluator.

A word that is not a variable is itself; a function that a problem supplies is a value like others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from moedsl.facts.operators import BINARY, FUNCTIONS, UNARY, Value
from moedsl.facts.symbols import ALIASES
from moedsl.facts.units import SCALES
from moedsl.lang import ast


def evaluate(expr: ast.Expr, env: Mapping[str, Value]) -> Value:
    """Evaluate an expression for one row; total, so division by zero is 0."""
    return _EVAL[type(expr)](expr, env)


def holds(expr: ast.Expr | None, env: Mapping[str, Value]) -> bool:
    """Whether a condition is true; an absent one is."""
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
    """A set of words; a tuple for anything else."""
    items = [evaluate(i, env) for i in e.items]
    return frozenset(items) if all(isinstance(i, str) for i in items) else tuple(items)


def _unary(e: ast.Unary, env: Mapping[str, Value]) -> Value:
    return UNARY[e.op].row(evaluate(e.value, env))


def _if(e: ast.If, env: Mapping[str, Value]) -> Value:
    return evaluate(e.then if evaluate(e.test, env) else e.otherwise, env)


def number(e: ast.Number) -> int | float:
    """Convert a number to base units; whole numbers stay integers."""
    value = e.value * SCALES.get(e.unit or "", 1)
    return int(value) if float(value).is_integer() else value


_EVAL: dict[type, Callable[[Any, Mapping[str, Value]], Value]] = {
    ast.Number: lambda e, _: number(e),
    ast.String: lambda e, _: e.value,
    ast.Bool: lambda e, _: e.value,
    ast.Name: _name,
    ast.List: _list,
    ast.Call: _call,
    ast.Unary: _unary,
    ast.Binary: _binary,
    ast.If: _if,
}
