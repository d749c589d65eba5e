"""`isolate AXIS in a, b, c` read: each value as a variant, with the codes of the axes that it fixes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moedsl.checker.program import Isolation, Variant
from moedsl.diagnostics.model import Diagnostic, error, suggest
from moedsl.schema import axes
from moedsl.syntax import ast

Code = Callable[[ast.Name, ast.Expr], "int | None"]
"""The integer that a value of an axis is written as; None, and a diagnostic, for a value that it does not take."""


def read(stmt: ast.IsolateStmt, sizes: Sequence[str], code: Code, found: list[Diagnostic]) -> Isolation | None:
    """The variants of a statement; None, and diagnostics in `found`, where it names nothing or compares nothing.

    `sizes` are what may be isolated besides axes: seq, batch, gpus. Errors: check.unknown_axis, check.unknown_word,
    check.isolate, and what `code` reports.
    """
    known = [*axes.COMPOSITES, *axes.BY_NAME, *sizes]
    if stmt.axis.id not in known:
        help = suggest(stmt.axis.id, known) or (f"one of {', '.join(known)}",)
        found.append(error("check.unknown_axis", f"`{stmt.axis.id}` cannot be isolated", stmt.axis.span, help=help))
        return None
    read_one = _composite if stmt.axis.id in axes.COMPOSITES else _single
    variants = [read_one(stmt.axis, value, code, found) for value in stmt.values]
    distinct = {v.label: v for v in variants if v is not None}
    if len(distinct) < 2 and None not in variants:
        text = f"isolating `{stmt.axis.id}` compares at least two values"
        found.append(error("check.isolate", text, stmt.span, help="write `isolate overlap in off, on, delayed`"))
    return Isolation(stmt.axis.id, tuple(distinct.values()), stmt.span)


def _composite(axis: ast.Name, value: ast.Expr, _: Code, found: list[Diagnostic]) -> Variant | None:
    """A word that stands for values of several axes."""
    words = axes.COMPOSITES[axis.id]
    if isinstance(value, ast.Name) and value.id in words:
        parts = words[value.id]
        return Variant(value.id, {a: axes.BY_NAME[a].encode(v) for a, v in parts.items()})
    said = value.id if isinstance(value, ast.Name) else ""
    text = f"`{axis.id}` is one of {', '.join(words)}"
    found.append(error("check.unknown_word", text, value.span, help=suggest(said, [*words])))
    return None


def _single(axis: ast.Name, value: ast.Expr, code: Code, _: list[Diagnostic]) -> Variant | None:
    number = code(axis, value)
    return None if number is None else Variant(_label(axis.id, number), {axis.id: number})


def _label(axis: str, code: int) -> str:
    """A value as a part of a run's name."""
    return axes.label(axes.BY_NAME[axis].decode(code) if axis in axes.BY_NAME else code)
