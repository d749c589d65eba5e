"""Limit nesting, so that no stage recurses without end. Checked in linear time, before and after the parse."""

from __future__ import annotations

from typing import Any

from moedsl.lang import ast
from moedsl.lang.tokens import Brackets
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.source import Source, Span

MAX_DEPTH = 64
"""The most brackets of any kind inside each other."""
MAX_HEIGHT = 150
"""The most nodes of the syntax tree on one path: ``- - - 1`` and ``a + b + c`` are deep without a bracket."""


def too_deep(source: Source, pairs: Brackets) -> Diagnostic | None:
    """Report brackets that nest deeper than `MAX_DEPTH`."""
    if pairs.depth <= MAX_DEPTH:
        return None
    span = Span(source.name, pairs.deepest, pairs.deepest + 1)
    message = f"brackets are nested {pairs.depth} deep; {MAX_DEPTH} is the limit"
    return error("parse.nested", message, span, help="move parts into a `let` or into several statements")


def too_tall(module: ast.Module) -> Diagnostic | None:
    """Report a path through the syntax tree that is longer than `MAX_HEIGHT`."""
    level: list[Any] = [*module.items]
    for _ in range(MAX_HEIGHT):
        level = [child for node in level for child in ast.children(node)]
        if not level:
            return None
    message = f"an expression is nested more than {MAX_HEIGHT} deep"
    return error("parse.nested", message, level[0].span, help="move parts into a `let` or into several statements")
