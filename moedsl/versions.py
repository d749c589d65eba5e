"""Versions of what a run stands on, as numbers that compare as the versions do, and the least that a plan needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from moedsl import ast

PRODUCTS = {"torch": "torch_version", "transformer_engine": "te_version"}
"""What `target` may name beside Bridge, and the name of its version in an expression."""
_VERSION = re.compile(r"\d{1,4}(?:\.\d{1,4}){0,2}")


def is_version(text: str) -> bool:
    """Whether a text is one to three numbers of at most four digits, with dots between: 2.10 or 2.6.0."""
    return _VERSION.fullmatch(text) is not None


def as_number(text: str) -> int:
    """A version as one integer, four digits for each part after the first: 2.10.0 is 2_0010_0000; 0 for no version."""
    parts = [int(p) for p in text.split(".")] if is_version(text) else []
    major, minor, patch = (*parts, 0, 0, 0)[:3]
    return (major * 10_000 + minor) * 10_000 + patch


def as_text(number: int) -> str:
    """The version of a number: 2_0010_0000 is 2.10.0."""
    rest, patch = divmod(int(number), 10_000)
    return f"{rest // 10_000}.{rest % 10_000}.{patch}"


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
    from moedsl.scalar import evaluate

    return bool(evaluate(e.left, env)) == (e.op == "=>")
