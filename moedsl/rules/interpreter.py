"""The slow evaluator: one row, plain Python values. It explains a row, derives settings and tests the fast evaluator.

A word that is no variable is itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from moedsl.schema.operators import BINARY, FUNCTIONS, UNARY, Value
from moedsl.schema.symbols import ALIASES
from moedsl.schema.units import SCALES
from moedsl.syntax import ast

Functions = Mapping[str, Callable[..., Value]]


def evaluate(expr: ast.Expr, env: Mapping[str, Value], functions: Functions = {}) -> Value:  # noqa: B006 - read only
    """The value of an expression for one row; total, so division by zero is 0."""
    return _EVAL[type(expr)](expr, env, functions)


def holds(expr: ast.Expr | None, env: Mapping[str, Value], functions: Functions = {}) -> bool:  # noqa: B006 - read only
    """Whether a condition is true; an absent one is."""
    return expr is None or bool(evaluate(expr, env, functions))


def _name(e: ast.Name, env: Mapping[str, Value], _: Functions) -> Value:
    key = ALIASES.get(e.id, e.id)
    if key in env:
        return env[key]
    return frozenset() if key == "none" else key


def _binary(e: ast.Binary, env: Mapping[str, Value], fs: Functions) -> Value:
    op, left = BINARY[e.op], evaluate(e.left, env, fs)
    if op.decided is not None and bool(left) == op.decided[0]:
        return op.decided[1]
    return op.row(left, evaluate(e.right, env, fs))


def _call(e: ast.Call, env: Mapping[str, Value], fs: Functions) -> Value:
    compute = fs.get(e.func.id) or FUNCTIONS[e.func.id].row
    assert compute is not None, f"nothing supplies {e.func.id}"
    return compute(*(evaluate(a, env, fs) for a in e.args))


def _list(e: ast.List, env: Mapping[str, Value], fs: Functions) -> Value:
    """A set of words; a tuple for anything else."""
    items = [evaluate(i, env, fs) for i in e.items]
    return frozenset(items) if all(isinstance(i, str) for i in items) else tuple(items)


def _unary(e: ast.Unary, env: Mapping[str, Value], fs: Functions) -> Value:
    return UNARY[e.op].row(evaluate(e.value, env, fs))


def _if(e: ast.If, env: Mapping[str, Value], fs: Functions) -> Value:
    return evaluate(e.then if evaluate(e.test, env, fs) else e.otherwise, env, fs)


def number(e: ast.Number) -> int | float:
    """A number in base units; whole numbers stay integers."""
    value = e.value * SCALES.get(e.unit or "", 1)
    return int(value) if float(value).is_integer() else value


_EVAL: dict[type, Callable[[Any, Mapping[str, Value], Functions], Value]] = {
    ast.Number: lambda e, _, __: number(e),
    ast.String: lambda e, _, __: e.value,
    ast.Bool: lambda e, _, __: e.value,
    ast.Name: _name,
    ast.List: _list,
    ast.Call: _call,
    ast.Unary: _unary,
    ast.Binary: _binary,
    ast.If: _if,
}
