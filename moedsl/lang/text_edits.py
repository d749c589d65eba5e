"""Turn a `Fix` into edits of a text, and apply them.

Statements are added and removed as a person would do it: with their line, or with the adjacent `;`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from attrs import frozen

from moedsl.lang import ast
from moedsl.lang.tokens import brackets
from moedsl.support.diagnostics import ADD, DROP, REPLACE, Fix
from moedsl.support.source import Source, Span

_TO_SEMICOLON = re.compile(r"[ \t]*;[ \t]*(?=[^\s#])")
_REST = re.compile(r"[ \t]*(?:;[ \t]*)*(?:#[^\n]*)?(?=\n|$)")
Statements = Sequence[Any]


@frozen
class Edit:
    """A replacement of the span's text by `text`; an empty span inserts."""

    span: Span
    text: str


def edits(fix: Fix, source: Source, module: ast.Module | None) -> tuple[Edit, ...]:
    """Return the edits for a fix in its file, `source`; none if the fix's span matches nothing there."""
    if fix.kind == REPLACE:
        return (Edit(fix.span, fix.text),)
    if module is None:
        return ()
    if fix.kind == ADD:
        return (added(fix.text, fix.run, source, module),)
    # Find the smallest statement, declaration, member, binding or option that covers a span
    places = (p for p in _places(module.items) if p.span.start <= fix.span.start and fix.span.end <= p.span.end)
    place = min(places, key=lambda p: p.span.end - p.span.start, default=None)
    if fix.kind == DROP:
        whole = place.owner if isinstance(place, _Part) and place.alone else place
        return () if whole is None else (_dropped(whole, source),)
    value: Any = getattr(place, "value", None)
    return (Edit(value.span, fix.text),) if hasattr(value, "span") else ()


def applied(text: str, changes: Iterable[Edit]) -> str:
    """Apply edits that do not overlap."""
    for e in sorted(changes, key=lambda e: (e.span.start, e.span.end), reverse=True):
        text = text[: e.span.start] + e.text + text[e.span.end :]
    return text


def disjoint(changes: Iterable[tuple[Edit, ...]]) -> list[Edit]:
    """Return the edits of all groups that do not overlap an earlier group, in order."""
    out: list[Edit] = []
    for group in changes:
        if not any((e.span.start <= o.span.end and o.span.start <= e.span.end) for e in group for o in out):
            out += group
    return out


@frozen
class _Part:
    """A binding of a statement with options, or an option of `vlm`.

    `alone`: whether it is the only binding of a `pin`.
    """

    node: Any
    owner: Any
    alone: bool

    @property
    def span(self) -> Span:
        return self.node.span

    @property
    def value(self) -> Any:
        return getattr(self.node, "value", None)


def _places(items: Statements) -> Iterator[Any]:
    """Yield statements, declarations and members, each before its bindings or options."""
    for item in items:
        yield item
        yield from _places(getattr(item, "body", None) or getattr(item, "members", ()))
        if isinstance(item, ast.PinStmt | ast.AdapterStmt | ast.DataStmt | ast.ResilienceStmt | ast.FieldsStmt):
            alone = isinstance(item, ast.PinStmt) and len(item.bindings) == 1
            yield from (_Part(b, item, alone) for b in item.bindings)
        elif isinstance(item, ast.VlmStmt):
            yield from (_Part(o, item, False) for o in item.options)


def _dropped(place: Any, source: Source) -> Edit:
    text, start, end = source.text, place.span.start, place.span.end
    if isinstance(place, _Part):
        return Edit(Span(source.name, len(text[:start].rstrip(" \t")), end), "")
    semicolon = _TO_SEMICOLON.match(text, end)
    if semicolon:
        return Edit(Span(source.name, start, semicolon.end()), "")
    before = text[:start].rstrip(" \t")
    if before.endswith(";"):
        return Edit(Span(source.name, len(before) - 1, end), "")
    rest = _REST.match(text, end)
    if rest and "#" not in rest.group() and (not before or before.endswith("\n")):
        return Edit(Span(source.name, len(before), min(rest.end() + 1, len(text))), "")
    return Edit(Span(source.name, start, end), "")


def added(statement: str, run: str, source: Source, module: ast.Module) -> Edit:
    """Return the edit that adds a statement at the end of a run's block, or of the top level if it has no block."""
    block = run_block(module, run)
    body = block.body if block is not None else [i for i in module.items if isinstance(i, ast.Stmt)]
    if body:
        # Insert on the next line, or on the same line if other text follows there
        end = body[-1].span.end
        start = body[-1].span.start
        text = source.text
        rest = _REST.match(text, end)
        if rest is None:
            return Edit(Span(source.name, end, end), f"; {statement}")
        line = text.rfind("\n", 0, start) + 1
        indent = text[line : line + len(text[line:]) - len(text[line:].lstrip(" \t"))]
        return Edit(Span(source.name, rest.end(), rest.end()), f"\n{indent}{statement}")
    if block is not None:
        # Insert after the brace that opens an empty block
        opened = next(o for o, closed in brackets(source.text).partner.items() if closed == block.span.end - 1)
        return Edit(Span(source.name, opened + 1, opened + 1), f" {statement} ")
    end = len(source.text)
    newline = "" if not source.text or source.text.endswith("\n") else "\n"
    return Edit(Span(source.name, end, end), f"{newline}{statement}\n")


def run_block(module: ast.Module | None, run: str) -> ast.RunDecl | None:
    """Return a run's block, also for a variant `RUN.VARIANT`; None if it has no block."""
    blocks = [i for i in (module.items if module else ()) if isinstance(i, ast.RunDecl)]
    return next((b for b in blocks if b.name.id == run.split(".")[0]), None)
