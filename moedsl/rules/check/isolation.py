"""Read `isolate AXIS in a, b, c`: each value is a variant, with the codes of the axes that it fixes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moedsl.facts import axes
from moedsl.lang import ast
from moedsl.rules.check.program import Isolation, Variant
from moedsl.support.diagnostics import Diagnostic, error, suggest

Code = Callable[[ast.Name, ast.Expr], "int | None"]
"""Encodes a value of an axis as an integer; returns None, and reports a diagnostic, for an illegal value."""


def read(stmt: ast.IsolateStmt, sizes: Sequence[str], code: Code, diagnostics: list[Diagnostic]) -> Isolation | None:
    """Read the variants of a statement; None for an unknown axis. Diagnostics go to `diagnostics`.

    `sizes` may be isolated besides axes: seq, batch, gpus. Errors: check.unknown_axis, check.unknown_word,
    check.isolate, and those of `code`.
    """
    known = [*axes.COMPOSITES, *axes.BY_NAME, *sizes]
    if stmt.axis.id not in known:
        help = suggest(stmt.axis.id, known) or (f"one of {', '.join(known)}",)
        diagnostics.append(
            error("check.unknown_axis", f"`{stmt.axis.id}` cannot be isolated", stmt.axis.span, help=help)
        )
        return None
    read_one = _composite if stmt.axis.id in axes.COMPOSITES else _single
    variants = [read_one(stmt.axis, value, code, diagnostics) for value in stmt.values]
    distinct = {v.label: v for v in variants if v is not None}
    if len(distinct) < 2 and None not in variants:
        text = f"`isolate {stmt.axis.id}` needs at least two values"
        diagnostics.append(error("check.isolate", text, stmt.span, help="write `isolate overlap in off, on, delayed`"))
    return Isolation(stmt.axis.id, tuple(distinct.values()), stmt.span)


def _composite(axis: ast.Name, value: ast.Expr, _: Code, diagnostics: list[Diagnostic]) -> Variant | None:
    """Read a word that stands for values of several axes."""
    words = axes.COMPOSITES[axis.id]
    if isinstance(value, ast.Name) and value.id in words:
        parts = words[value.id]
        return Variant(value.id, {a: axes.BY_NAME[a].encode(v) for a, v in parts.items()})
    word = value.id if isinstance(value, ast.Name) else ""
    text = f"`{axis.id}` is one of {', '.join(words)}"
    diagnostics.append(error("check.unknown_word", text, value.span, help=suggest(word, [*words])))
    return None


def _single(axis: ast.Name, value: ast.Expr, code: Code, _: list[Diagnostic]) -> Variant | None:
    number = code(axis, value)
    return None if number is None else Variant(_label(axis.id, number), {axis.id: number})


def _label(axis: str, code: int) -> str:
    """Write a value as a part of a run's name."""
    return axes.label(axes.BY_NAME[axis].decode(code) if axis in axes.BY_NAME else code)
