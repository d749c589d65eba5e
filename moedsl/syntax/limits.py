"""Limits on nesting, so that no stage recurses without end. Checked in linear time, before and after the parse."""

from __future__ import annotations

from typing import Any

from moedsl.diagnostics.model import Diagnostic, error
from moedsl.diagnostics.source import Source, Span
from moedsl.syntax import ast
from moedsl.syntax.tokens import Brackets

MAX_DEPTH = 64
"""Brackets of any kind inside each other."""
MAX_HEIGHT = 150
"""Nodes of the syntax tree on one path: ``- - - 1`` and ``a + b + c`` are tall without a bracket."""


def too_deep(source: Source, pairs: Brackets) -> Diagnostic | None:
    """An error where brackets nest deeper than `MAX_DEPTH`."""
    if pairs.depth <= MAX_DEPTH:
        return None
    span = Span(source.name, pairs.deepest, pairs.deepest + 1)
    message = f"brackets are nested {pairs.depth} deep; {MAX_DEPTH} is the limit"
    return error("parse.nested", message, span, help="move parts into a `let` or into several statements")


def too_tall(module: ast.Module) -> Diagnostic | None:
    """An error where a path through the syntax tree is longer than `MAX_HEIGHT`."""
    level: list[Any] = [*module.items]
    for _ in range(MAX_HEIGHT):
        level = [child for node in level for child in ast.children(node)]
        if not level:
            return None
    message = f"an expression is nested more than {MAX_HEIGHT} deep"
    return error("parse.nested", message, level[0].span, help="move parts into a `let` or into several statements")
