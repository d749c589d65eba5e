"""Outline a file, and search declarations over the workspace and the stdlib."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from attrs import frozen
from lsprotocol import types

from moedsl.lang import ast
from moedsl.lsp import index
from moedsl.lsp.document import Document
from moedsl.lsp.features.definition import location
from moedsl.lsp.names import Target
from moedsl.lsp.workspace import Workspace
from moedsl.support.source import Span

Kind = types.SymbolKind
KINDS = {
    "model": Kind.Class, "hardware": Kind.Struct, "cluster": Kind.Struct, "calibration": Kind.Object,
    "document": Kind.File, "profile": Kind.Module, "run": Kind.Function, "block": Kind.Namespace, "rule": Kind.Event,
    "let": Kind.Constant, "derived": Kind.Property, "env": Kind.Property, "wish": Kind.Event,
}  # fmt: skip
"""The kind under which a client shows a declaration, by the kind of its symbol."""
MOST = 200
"""The most answers to a query over the workspace."""


@frozen
class Entry:
    """A line of the outline."""

    name: str
    kind: types.SymbolKind
    span: Span
    at: Span
    """The place of its name, which the client selects."""
    detail: str = ""
    inner: tuple[Entry, ...] = ()


def answer(document: Document, _: types.DocumentSymbolParams) -> list[Any]:
    """Outline runs, rules, models, hardware and their contents, and the statements at the top level."""
    entries = tuple(outline(document))
    if document.client.hierarchical_symbols:
        return [_symbol(e, document) for e in entries]
    return [*_flat(entries, document, None)]


def workspace(files: Workspace, params: types.WorkspaceSymbolParams) -> list[types.WorkspaceSymbol]:
    """Find declarations whose names have the query's letters in order; the user's own files come first.

    A query with a dot is for whole names: ``mesh.heads``.
    """
    among = [*index.everything(files).values(), *index.on_disk(files), *index.stdlib().values()]
    query = params.query.lower()
    out: list[types.WorkspaceSymbol] = []
    for file in among:
        for o in file.places:
            container, _, short = o.symbol.name.rpartition(".")
            matched = o.symbol.name if "." in query else short
            if o.declares and _has_letters(matched.lower(), query) and len(out) < MOST:
                where = location(files, Target(file.source, o.span))
                out.append(types.WorkspaceSymbol(where, short, KINDS[o.symbol.kind], container_name=container or None))
    return out


def _has_letters(name: str, query: str) -> bool:
    letters = iter(name)
    return all(c in letters for c in query)


def outline(document: Document) -> Iterator[Entry]:
    """The entries of a file, in order."""
    items = document.module.items if document.module is not None else ()
    return (e for item in items if (e := _entry(item, document.text)) is not None)


def _entry(item: Any, text: str) -> Entry | None:
    handler = next((h for t, h in _ENTRIES.items() if isinstance(item, t)), None)
    return handler(item, text) if handler else _statement(item, text)


def _first_line(span: Span, text: str) -> str:
    return text[span.start : span.end].split("\n", 1)[0]


_STATEMENTS: dict[type[Any], types.SymbolKind] = {ast.ModelStmt: Kind.Class, ast.HardwareStmt: Kind.Struct}


def _statement(s: Any, text: str) -> Entry:
    """Make the entry of a statement, with its text as name."""
    inner = tuple(_binding(b, text) for b in s.bindings) if isinstance(s, ast.PinStmt) else ()
    kind = _STATEMENTS.get(type(s), Kind.Field)
    return Entry(_first_line(s.span, text), kind, s.span, s.span, "", inner if len(inner) > 1 else ())


def _binding(b: ast.Binding, text: str) -> Entry:
    return Entry(b.name.id, Kind.Variable, b.span, b.name.span, text[b.value.span.start : b.value.span.end])


def _claim(m: Any, text: str) -> Entry:
    """Make the entry of `require` or `prefer`, in a run or in a block of rules."""
    word = type(m).__name__.lower()
    at = m.name.span if m.name else m.span
    name = m.name.id if m.name else _first_line(m.span, text)
    return Entry(name, Kind.Event, m.span, at, word if m.name else "")


def _member(m: Any, text: str) -> Entry:
    """Make the entry of another member of a block of rules."""
    value = text[m.expr.span.start : m.expr.span.end].split("\n", 1)[0]
    kind = Kind.Constant if isinstance(m, ast.Let) else Kind.Property
    return Entry(m.name.id, kind, m.span, m.name.span, f"{type(m).__name__.lower()} {value}")


def _fact(f: ast.FactEntry, text: str) -> Entry:
    inner: tuple[Entry, ...] = ()
    detail = ""
    if isinstance(f.value, tuple):
        inner = tuple(_fact(v, text) if isinstance(v, ast.FactEntry) else _binding(v, text) for v in f.value)
    else:
        detail = text[f.value.span.start : f.value.span.end]
    return Entry(f.name.id, Kind.Property, f.span, f.name.span, detail, inner)


def _declared(kind: str, inside: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, str], Entry]:
    def entry(d: Any, text: str) -> Entry:
        inner = (_entry(part, text) for part in inside(d))
        detail = f"from {d.base.id}" if getattr(d, "base", None) else kind if kind != "block" else "rules"
        return Entry(d.name.id, KINDS[kind], d.span, d.name.span, detail, tuple(e for e in inner if e is not None))

    return entry


def _use(u: ast.UseDecl, _: str) -> Entry:
    return Entry(u.path.value or "use", Kind.File, u.span, u.path.span, "use")


_ENTRIES: dict[type[Any] | tuple[type[Any], ...], Callable[[Any, str], Entry]] = {
    ast.ModelDecl: _declared("model", lambda d: d.facts),
    ast.HardwareDecl: _declared("hardware", lambda d: d.facts),
    ast.ClusterDecl: _declared("cluster", lambda d: d.facts),
    ast.CalibrationDecl: _declared("calibration", lambda d: d.facts),
    ast.DocumentDecl: _declared("document", lambda d: d.facts),
    ast.ProfileDecl: _declared("profile", lambda d: d.body),
    ast.RunDecl: _declared("run", lambda d: d.body),
    ast.RulesDecl: _declared("block", lambda d: d.members),
    ast.FactEntry: _fact,
    (ast.Require, ast.Prefer): _claim,
    (ast.Let, ast.Conditional, ast.Symptom, ast.Effect): _member,
    ast.UseDecl: _use,
}


def _symbol(e: Entry, document: Document) -> types.DocumentSymbol:
    inner = [_symbol(i, document) for i in e.inner]
    whole, at = document.lines.span(e.span), document.lines.span(e.at)
    return types.DocumentSymbol(e.name, e.kind, whole, at, e.detail or None, children=inner or None)


def _flat(entries: tuple[Entry, ...], document: Document, inside: str | None) -> Iterator[types.SymbolInformation]:
    for e in entries:
        where = types.Location(document.uri, document.lines.span(e.span))
        yield types.SymbolInformation(where, e.name, e.kind, container_name=inside)
        yield from _flat(e.inner, document, e.name)
