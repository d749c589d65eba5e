"""Find where the compiler's Python modules declare the words of the language, by reading their syntax."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from moedsl.lsp.names import Symbol, Target
from moedsl.support import resources
from moedsl.support.source import Source, Span

_QUOTED = {
    "axis": ("facts/axes",),
    "word": ("facts/axes", "facts/symbols", "rules/check/check"),
    "given": ("facts/symbols",),
    "cost": ("facts/symbols",),
    "function": ("facts/operators",),
    "fact": ("facts/symbols",),
}
"""Kinds whose names are strings, with the modules to search for them, in order."""
_FIELDS = {"fact": "facts/facts", "constant": "facts/calibration"}
"""Kinds whose names are fields of a class."""


def places(symbol: Symbol) -> list[Target]:
    """The place that declares a word of the language; none if no module has it as a literal."""
    class_, _, name = symbol.name.rpartition(".")
    for module in (_FIELDS[symbol.kind],) if symbol.kind in _FIELDS else ():
        span = _fields(module).get((class_.capitalize(), name)) or (None if class_ else _any_field(module, name))
        if span is not None:
            return [Target(source(module), span)]
    for module in _QUOTED.get(symbol.kind, ()):
        span = _strings(module).get(name)
        if span is not None:
            return [Target(source(module), span)]
    return []


@cache
def source(module: str) -> Source:
    """The text of a module of the compiler, by its path."""
    path = resources.PACKAGE / f"{module}.py"
    return Source(str(path), path.read_text(encoding="utf-8"))


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(source(module).text)


@cache
def _strings(module: str) -> dict[str, Span]:
    """The first place of each string that is a whole constant, without its quotes."""
    out: dict[str, Span] = {}
    for node in _in_order(_tree(module)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            span = _span(module, node)
            out.setdefault(node.value, Span(span.file, span.start + 1, span.end - 1))
    return out


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)


@cache
def _fields(module: str) -> dict[tuple[str, str], Span]:
    """The place of each field of each class, by their names."""
    classes = (n for n in _tree(module).body if isinstance(n, ast.ClassDef))
    fields = ((c.name, n) for c in classes for n in c.body if isinstance(n, ast.AnnAssign))
    return {(c, n.target.id): _span(module, n.target) for c, n in fields if isinstance(n.target, ast.Name)}


def _any_field(module: str, name: str) -> Span | None:
    return next((span for (_, field), span in _fields(module).items() if field == name), None)


def _span(module: str, node: ast.expr) -> Span:
    """Convert a column of Python, in bytes of UTF-8, to characters."""
    lines = source(module).text.splitlines(keepends=True)

    def offset(line: int, column: int) -> int:
        before = lines[line - 1].encode()[:column].decode()
        return sum(map(len, lines[: line - 1])) + len(before)

    end = (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
    return Span(source(module).name, offset(node.lineno, node.col_offset), offset(*end))
