"""Show the structure of a file: its outline, folds, selections, semantic tokens and formatting.

All but the outline also serve a text that does not parse; such a text is not formatted.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from hashlib import sha256
from itertools import accumulate, groupby
from typing import Any

from attrs import frozen
from lsprotocol import types

from moedsl.lang import ast, formatter
from moedsl.lang.text_edits import Edit, applied
from moedsl.lang.tokens import brackets, lexemes
from moedsl.lsp import analysis, index
from moedsl.lsp.document import TYPES, Document, Lines
from moedsl.lsp.index import word_at
from moedsl.lsp.names import Target
from moedsl.lsp.navigation import location
from moedsl.lsp.place import terminal_words
from moedsl.lsp.workspace import Workspace
from moedsl.support.source import Source, Span

log = logging.getLogger(__name__)

Kind = types.SymbolKind
KINDS = {
    "model": Kind.Class, "hardware": Kind.Struct, "cluster": Kind.Struct, "calibration": Kind.Object,
    "document": Kind.File, "profile": Kind.Module, "run": Kind.Function, "block": Kind.Namespace, "rule": Kind.Event,
    "let": Kind.Constant, "derived": Kind.Property, "env": Kind.Property, "wish": Kind.Event,
}  # fmt: skip
"""The kind under which a client shows a declaration, by the kind of its symbol."""
MOST_SYMBOLS = 200
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


def symbols(document: Document, _: types.DocumentSymbolParams) -> list[Any]:
    """Outline runs, rules, models, hardware and their contents, and the statements at the top level."""
    items = document.module.items if document.module is not None else ()
    entries = tuple(e for item in items if (e := _entry(item, document.text)) is not None)
    if document.client.hierarchical_symbols:
        return [_symbol(e, document) for e in entries]
    return [*_flat(entries, document, None)]


def workspace_symbols(files: Workspace, params: types.WorkspaceSymbolParams) -> list[types.WorkspaceSymbol]:
    """Find declarations whose names have the query's letters in order; the user's own files come first.

    A query with a dot is for whole names: ``mesh.heads``.
    """
    among = [*index.everything(files).values(), *index.on_disk(files), *index.stdlib().values()]
    query = params.query.lower()

    def is_found(name: str) -> bool:
        letters = iter(name.lower())
        return all(c in letters for c in query)

    out: list[types.WorkspaceSymbol] = []
    for file in among:
        for o in file.places:
            container, _, short = o.symbol.name.rpartition(".")
            if o.declares and is_found(o.symbol.name if "." in query else short) and len(out) < MOST_SYMBOLS:
                where = location(files, Target(file.source, o.span))
                out.append(types.WorkspaceSymbol(where, short, KINDS[o.symbol.kind], container_name=container or None))
    return out


def _entry(item: Any, text: str) -> Entry | None:
    """The entry of a declaration or a member; of a statement, with its text as name."""
    handler = next((h for t, h in _ENTRIES.items() if isinstance(item, t)), None)
    if handler is not None:
        return handler(item, text)
    inner = tuple(_binding(b, text) for b in item.bindings) if isinstance(item, ast.PinStmt) else ()
    kind = _STATEMENTS.get(type(item), Kind.Field)
    return Entry(_first_line(item.span, text), kind, item.span, item.span, "", inner if len(inner) > 1 else ())


def _first_line(span: Span, text: str) -> str:
    return text[span.start : span.end].split("\n", 1)[0]


_STATEMENTS: dict[type[Any], types.SymbolKind] = {ast.ModelStmt: Kind.Class, ast.HardwareStmt: Kind.Struct}


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
    if not isinstance(f.value, tuple):
        return Entry(f.name.id, Kind.Property, f.span, f.name.span, text[f.value.span.start : f.value.span.end])
    inner = tuple(_fact(v, text) if isinstance(v, ast.FactEntry) else _binding(v, text) for v in f.value)
    return Entry(f.name.id, Kind.Property, f.span, f.name.span, "", inner)


def _declared(kind: str, inside: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, str], Entry]:
    def entry(d: Any, text: str) -> Entry:
        inner = (_entry(part, text) for part in inside(d))
        detail = f"from {d.base.id}" if getattr(d, "base", None) else kind if kind != "block" else "rules"
        return Entry(d.name.id, KINDS[kind], d.span, d.name.span, detail, tuple(e for e in inner if e is not None))

    return entry


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
    ast.UseDecl: lambda u, _: Entry(u.path.value or "use", Kind.File, u.span, u.path.span, "use"),
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


_LEADS = (
    (re.compile(r"[ \t]*#"), types.FoldingRangeKind.Comment),
    (re.compile(r"[ \t]*use "), types.FoldingRangeKind.Imports),
)


def folding(document: Document, _: types.FoldingRangeParams) -> list[types.FoldingRange]:
    """Folds: blocks and lists over several lines, adjacent lines of comments, and adjacent `use` lines."""
    lines = document.lines
    found: dict[tuple[int, int], types.FoldingRangeKind | None] = {}
    for lead, kind in _LEADS:
        alike = [number for number, at in enumerate(lines.starts) if lead.match(document.text, at)]
        for _gap, run in groupby(enumerate(alike), key=lambda pair: pair[1] - pair[0]):
            numbers = [number for _, number in run]
            if len(numbers) > 1:
                found[numbers[0], numbers[-1]] = kind
    for opened, closed in brackets(document.text).partner.items():
        start, end = lines.line_of(opened), lines.line_of(closed)
        if end - 1 > start:
            found.setdefault((start, end - 1), None)
    return [types.FoldingRange(s, e, kind=kind) for (s, e), kind in sorted(found.items())]


def selections(document: Document, params: types.SelectionRangeParams) -> list[types.SelectionRange]:
    """Selections for each position: the word, then each part of the program around it, its line, and the file."""
    out: list[types.SelectionRange] = []
    for offset in map(document.lines.offset, params.positions):
        nested: list[tuple[int, int]] = []
        for start, end in sorted(_around(document, offset), key=lambda r: r[1] - r[0], reverse=True):
            if not nested or (nested[-1] != (start, end) and nested[-1][0] <= start and end <= nested[-1][1]):
                nested.append((start, end))
        chosen: types.SelectionRange | None = None
        for start, end in nested:
            chosen = types.SelectionRange(document.lines.range(start, end), chosen)
        out += [chosen] if chosen else []
    return out


def _around(document: Document, offset: int) -> Iterator[tuple[int, int]]:
    """The ranges that contain or touch an offset."""
    text, lines = document.text, document.lines
    yield 0, len(text)
    line = lines.line_of(offset)
    yield lines.starts[line], lines.end(line)
    word = word_at(text, offset) or next((x for x in lexemes(text, lines.starts[line]) if x.end >= offset), None)
    if word is not None and word.start <= offset and word.kind not in ("space", "newline"):
        yield word.start, word.end
    for opened, closed in brackets(text).partner.items():
        if opened < offset <= closed:
            yield opened + 1, closed
            yield opened, closed + 1
    for node in ast.walk(document.module):
        if node.span.start <= offset <= node.span.end:
            yield node.span.start, node.span.end


_OF_KIND = {
    "model": "class", "hardware": "struct", "cluster": "type", "calibration": "type", "document": "type",
    "profile": "namespace", "run": "namespace", "block": "namespace", "rule": "event", "wish": "event",
    "let": "variable", "derived": "property", "env": "property", "axis": "variable", "given": "property",
    "fact": "property", "cost": "property", "constant": "property", "function": "function", "word": "enumMember",
    "field": "property",
}  # fmt: skip
_OF_LEXEME = {"comment": "comment", "string": "string", "badstring": "string", "number": "number", "op": "operator"}
Token = tuple[int, int, str, int]
"""Start, end, type, modifiers as bits."""


MOST_KEPT = 32
"""The number of answers that are stored, so that later ones can be sent as differences."""
_kept: OrderedDict[str, list[int]] = OrderedDict()


def semantic_tokens(document: Document, _: types.SemanticTokensParams) -> types.SemanticTokens:
    """The tokens of the whole file."""
    data = _encoded(tokens(document, 0, len(document.text)), document.lines)
    name = sha256(",".join(map(str, data)).encode()).hexdigest()[:16]  # equal numbers have equal ids
    _kept[name] = data
    _kept.move_to_end(name)
    while len(_kept) > MOST_KEPT:
        _kept.popitem(last=False)
    return types.SemanticTokens(data, name)


def semantic_tokens_delta(
    document: Document, params: types.SemanticTokensDeltaParams
) -> types.SemanticTokens | types.SemanticTokensDelta:
    """One edit of an earlier answer; all tokens if that answer is no longer stored."""
    before = _kept.get(params.previous_result_id)
    after = semantic_tokens(document, types.SemanticTokensParams(params.text_document))
    if before is None:
        return after
    start = _alike(before, after.data)
    end = _alike(before[start:][::-1], after.data[start:][::-1])
    changed = after.data[start : len(after.data) - end]
    edit = types.SemanticTokensEdit(start, len(before) - start - end, changed)
    return types.SemanticTokensDelta([edit] if edit.delete_count or changed else [], after.result_id)


def _alike(a: Sequence[int], b: Sequence[int]) -> int:
    """Count the numbers that two answers have in common at their start."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def semantic_tokens_range(document: Document, params: types.SemanticTokensRangeParams) -> types.SemanticTokens:
    """The tokens of the lines of a range."""
    lines = document.lines
    first, last = (min(p.line, len(lines.starts) - 1) for p in (params.range.start, params.range.end))
    return types.SemanticTokens(data=_encoded(tokens(document, lines.starts[first], lines.end(last)), lines))


def tokens(document: Document, start: int, end: int) -> Iterator[Token]:
    """The tokens between two offsets at line ends; no token crosses a line end."""
    places = index.files(document.analysis)[document.source.name].places
    starts = [o.span.start for o in places]
    for word in lexemes(document.text, start):
        if word.start >= end:
            return
        if word.kind != "word":
            if word.kind in _OF_LEXEME:
                yield word.start, word.start + len(word.text.rstrip()), _OF_LEXEME[word.kind], 0
            continue
        here = places[bisect_left(starts, word.start) : bisect_left(starts, word.end)]
        named = [o for o in here if not o.keyword]  # such as the block and the rule in a rule's id
        for o in named:
            kind = o.symbol.kind
            library = kind in index.BUILTIN or index.is_stdlib(o.symbol)
            yield o.span.start, o.span.end, _OF_KIND[kind], o.declares | library << 1 | (kind == "let") << 2
        if not named and (here or word.text in terminal_words()):
            yield word.start, word.end, "keyword", 0


def _encoded(found: Iterator[Token], lines: Lines) -> list[int]:
    """Encode tokens as five numbers each: lines and columns from the one before, length, type, modifiers."""
    out: list[int] = []
    line = column = 0
    for start, end, kind, bits in found:
        at, stop = lines.position(start), lines.position(end)
        out += [at.line - line, at.character - column if at.line == line else at.character]
        out += [stop.character - at.character, TYPES.index(kind), bits]
        line, column = at.line, at.character
    return out


MOST_PAIRS = 4_000_000
"""The most pairs of lines to compare."""


def formatting(document: Document, _: types.DocumentFormattingParams) -> list[types.TextEdit]:
    """The edits that format the file as `moedsl fmt` does; none if it is formatted already or does not parse."""
    return document.text_edits(format_edits(document.source))


def range_formatting(document: Document, params: types.DocumentRangeFormattingParams) -> list[types.TextEdit]:
    """The edits that touch the lines of a range."""
    first, last = params.range.start.line, params.range.end.line
    if params.range.end.character == 0 and last > first:
        last -= 1
    source, line_of = document.source, document.lines.line_of
    # an insertion changes the line before which it is made
    touched = ((e, line_of(e.span.start), line_of(max(e.span.start, e.span.end - 1))) for e in format_edits(source))
    inside = [e for e, start, end in touched if start <= last and end >= first]
    text = applied(source.text, inside)
    before, after = (analysis.parse(s)[0] for s in (source, Source(source.name, text)))
    is_same = before == after and formatter.comments(text) == formatter.comments(source.text)
    return document.text_edits(inside if is_same else ())


def format_edits(source: Source) -> list[Edit]:
    """The edits that format a text: one for each group of changed lines, in order. If the texts are too long to
    compare, one edit replaces everything.
    """
    module, found = analysis.parse(source)
    if module is None or any(d.is_error for d in found):
        return []
    try:
        text = formatter.format(module, source)
    except ValueError:
        log.exception("formatting would change %s", source.name)
        return []
    before, after = ([line for line in re.split(r"(?<=\n)", t) if line] for t in (source.text, text))
    starts = [0, *accumulate(map(len, before))]
    if len(before) * len(after) > MOST_PAIRS:
        return [Edit(Span(source.name, 0, starts[-1]), text)]
    codes = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    differing = (lines for tag, *lines in codes if tag != "equal")
    return [Edit(Span(source.name, starts[i], starts[j]), "".join(after[k:m])) for i, j, k, m in differing]
