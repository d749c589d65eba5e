"""The slow evaluator: one row, plain Python values. It explains a row, derives settings and tests the fast evaluator.

A value is an int, a float, a bool, a word (str) or a set of words (frozenset). A word that is no variable is itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from moedsl.schema.symbols import ALIASES
from moedsl.schema.versions import as_number
from moedsl.syntax import ast

Value = Any
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
    left = evaluate(e.left, env, fs)
    if e.op in _SHORT:
        done, result = _SHORT[e.op](bool(left))
        return result if done else bool(evaluate(e.right, env, fs))
    return _OPS[e.op](left, evaluate(e.right, env, fs))


_SHORT: dict[str, Callable[[bool], tuple[bool, bool]]] = {
    "and": lambda left: (not left, False),
    "or": lambda left: (left, True),
    "=>": lambda left: (not left, True),
}


def _same(a: Value, b: Value) -> bool:
    if isinstance(a, frozenset) != isinstance(b, frozenset):
        return _as_set(a) == _as_set(b)
    return a == b


def _as_set(v: Value) -> frozenset[str]:
    return v if isinstance(v, frozenset) else frozenset(() if v in ("none", None) else (v,))


def _contains(item: Value, group: Value) -> bool:
    """Membership; a word where a set is meant is the set of it."""
    return any(_same(item, g) for g in (_as_set(group) if isinstance(group, str) else group))


def _held(x: float) -> float:
    """A whole number beyond what a float holds exactly goes on as a float, so that nothing overflows."""
    return float(x) if isinstance(x, int) and abs(x) > 2**53 else x


def _divide(a: float, b: float) -> float:
    return a / b if b else 0


def _floor(a: float, b: float) -> float:
    return a // b if b else 0


def _mod(a: float, b: float) -> float:
    return a % b if b else 0


_OPS: dict[str, Callable[[Value, Value], Value]] = {
    "==": _same,
    "!=": lambda a, b: not _same(a, b),
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "in": _contains,
    "not in": lambda a, b: not _contains(a, b),
    "+": lambda a, b: _held(a + b),
    "-": lambda a, b: _held(a - b),
    "*": lambda a, b: _held(a * b),
    "/": _divide,
    "//": _floor,
    "%": _mod,
}


def pow2(x: float) -> float:
    """The nearest power of two, at least 1; half-way goes up."""
    if x <= 1 or not math.isfinite(x):
        return max(x, 1)
    low = 1 << (int(x).bit_length() - 1)
    return low if x - low < 2 * low - x else 2 * low


def segment(nodes: float, gpus_per_node: float, group: float, most: float) -> int:
    """The largest whole number of nodes, at most `most`, that divides `nodes` and holds whole groups; 0 for none."""
    if not all(math.isfinite(x) and 1 <= x <= _MOST_NODES for x in (nodes, gpus_per_node, group, most)):
        return 0
    sizes = range(int(min(nodes, most)), 0, -1)
    return next((s for s in sizes if nodes % s == 0 and s * gpus_per_node % group == 0), 0)


_MOST_NODES = 1_000_000


def _log2(x: float) -> float:
    return math.log2(x) if x > 0 else 0.0


_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "min": min,
    "max": max,
    "abs": abs,
    "ceil": lambda x: math.ceil(x) if math.isfinite(x) else x,
    "floor": lambda x: math.floor(x) if math.isfinite(x) else x,
    "log2": _log2,
    "pow2": pow2,
    "version": lambda text: as_number(str(text)),
    "count": lambda s: len(_as_set(s)),
    "segment": segment,
}


def _call(e: ast.Call, env: Mapping[str, Value], fs: Functions) -> Value:
    args = [evaluate(a, env, fs) for a in e.args]
    if e.func.id in ("min", "max") and len(args) == 1:
        return args[0]
    return (fs.get(e.func.id) or _FUNCTIONS[e.func.id])(*args)


def _list(e: ast.List, env: Mapping[str, Value], fs: Functions) -> Value:
    """A set of words; a tuple for anything else."""
    items = [evaluate(i, env, fs) for i in e.items]
    return frozenset(items) if all(isinstance(i, str) for i in items) else tuple(items)


def _unary(e: ast.Unary, env: Mapping[str, Value], fs: Functions) -> Value:
    value = evaluate(e.value, env, fs)
    return not value if e.op == "not" else -value


def _if(e: ast.If, env: Mapping[str, Value], fs: Functions) -> Value:
    return evaluate(e.then if evaluate(e.test, env, fs) else e.otherwise, env, fs)


SCALES = {
    "%": 0.01,
    "GB": 1e9,
    "GiB": 2**30,
    "TB": 1e12,
    "TiB": 2**40,
    "GB/s": 1e9,
    "TB/s": 1e12,
    "TFLOPS": 1e12,
    "PFLOPS": 1e15,
}
"""What one of each unit is in bytes, bytes/s, FLOP/s, or one."""


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
