"""Write an expression as a tree with the value of each part in one layout."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from moedsl.facts.axes import named_value, show
from moedsl.facts.symbols import BUILTIN, BYTES, RATES, TIMES
from moedsl.facts.units import GIB
from moedsl.lang import ast
from moedsl.lang.printer import print_expr
from moedsl.rules.evaluators import evaluate

Json = dict[str, Any]
_NAME = re.compile(r"[\w.]+")


def tree(expr: ast.Expr, env: Mapping[str, Any], lets: Mapping[str, ast.Expr]) -> Json:
    """Make ``{text, value, parts}``: a part for each operand that varies. A `let` opens into its expression where it
    first stands: lets that use each other twice would double the tree each time."""
    return _tree(expr, env, dict(lets))


def _tree(expr: ast.Expr, env: Mapping[str, Any], closed: dict[str, ast.Expr]) -> Json:
    parts = (closed.pop(expr.id),) if isinstance(expr, ast.Name) and expr.id in closed else ast.operands(expr)
    return {
        "text": print_expr(expr),
        "value": named_value(expr.id if isinstance(expr, ast.Name) else "", evaluate(expr, env)),
        "parts": [_tree(e, env, closed) for e in parts if _varies(e, env)],
    }


def _varies(e: ast.Expr, env: Mapping[str, Any]) -> bool:
    """Whether the value of a part differs from its text."""
    if isinstance(e, ast.Name):
        return e.id in env or "." in e.id
    if isinstance(e, ast.Call) and e.func.id == "version":
        return False
    return not isinstance(e, ast.Number | ast.Bool | ast.String) and not _words(e, env)


def _words(e: ast.Expr, env: Mapping[str, Any]) -> bool:
    return isinstance(e, ast.List) and not any(_varies(i, env) for i in e.items)


def lines(node: Mapping[str, Any], indent: str = "") -> list[str]:
    """Print the tree, one part a line; a repeated part is printed once."""
    out = [f"{indent}{node['text']} = {of_expression(node['text'], node['value'])}"]
    seen = set[str]()
    for part in node["parts"]:
        if part["text"] not in seen:
            out += lines(part, indent + "  ")
        seen.add(part["text"])
    return out


def of_expression(text: str, value: Any) -> str:
    """Write the value of an expression: a condition is true or false, and a name has its value as plans write it."""
    if _NAME.fullmatch(text):
        return of_name(text, value)
    return str(value).lower() if isinstance(value, bool) else word(value)


def of_name(name: str, value: Any) -> str:
    """Write the value of a name in the unit that a person expects."""
    if value is None:
        return "not estimated"
    if name not in BUILTIN or isinstance(value, bool) or not isinstance(value, int | float):
        return word(value)
    if name in BYTES:
        return f"{value / GIB:.1f} GiB"
    if name in RATES:
        return f"{value / 1e9:,.4g} GB/s"
    if name in TIMES:
        return f"{value:.4g} s"
    return word(value) if isinstance(value, float) else str(value)


def word(value: Any) -> str:
    """Write a value as plans do, but short."""
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"
    is_bytes = isinstance(value, int) and abs(value) >= GIB
    return f"{value / GIB:.1f} GiB" if is_bytes else show(value)
