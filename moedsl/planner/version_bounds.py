"""Read the least version of a product from a law."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moedsl.facts.releases import BRIDGE, PRODUCTS
from moedsl.lang import ast


def bound(e: ast.Expr, env: Mapping[str, Any]) -> tuple[str, str] | None:
    """The product and the version that a law requires by ``NAME >= version("...")``, in a row with the values `env`.

    None if the law requires none, or if its other conditions already decide it for this row.
    """
    if not isinstance(e, ast.Binary):
        return None
    if e.op in ("=>", "or"):
        # Whether the value of an `=>` or an `or` depends on its right side
        from moedsl.rules.evaluators import evaluate

        return bound(e.right, env) if (bool(evaluate(e.left, env)) == (e.op == "=>")) else None
    products = {**PRODUCTS, "bridge": BRIDGE}
    product = next((p for p, n in products.items() if isinstance(e.left, ast.Name) and n == e.left.id), None)
    least = e.right.args[0] if isinstance(e.right, ast.Call) and e.right.args else None
    return (product, least.value) if product and e.op == ">=" and isinstance(least, ast.String) else None
