"""The least version of a product that a law asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moedsl.schema.versions import PRODUCTS
from moedsl.syntax import ast


def bound(e: ast.Expr, env: Mapping[str, Any]) -> tuple[str, str] | None:
    """The product and the version that a law asks for by ``NAME >= version("...")``, in a row with the values `env`.

    None where it asks for none: another law, or one whose other conditions settle it in this row.
    """
    if not isinstance(e, ast.Binary):
        return None
    if e.op in ("=>", "or"):
        return bound(e.right, env) if _undecided(e, env) else None
    product = next((p for p, n in PRODUCTS.items() if isinstance(e.left, ast.Name) and n == e.left.id), None)
    least = e.right.args[0] if isinstance(e.right, ast.Call) and e.right.args else None
    return (product, least.value) if product and e.op == ">=" and isinstance(least, ast.String) else None


def _undecided(e: ast.Binary, env: Mapping[str, Any]) -> bool:
    """Whether the left side of an `=>` or an `or` leaves it to the right side."""
    from moedsl.rules.interpreter import evaluate

    return bool(evaluate(e.left, env)) == (e.op == "=>")
