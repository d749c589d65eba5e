"""Show the structure of a file: its outline, folds, selections, semantic tokens and formatting.

Folds, selections and tokens also work in a text that does not parse; such a text is not formatted.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from hashlib import sha256
from itertools import accumulate, groupby
from typing import Any

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
"""The LSP kind of each kind of declared symbol."""
MOST_SYMBOLS = 200
"""The most answers to a query for symbols of the workspace."""


def symbols(document: Document, _: types.DocumentSymbolParams) -> list[Any]:
    """Outline runs, rules, models, hardware and their contents, and the statements at the top level."""
    entries = [_entry(item, document) for item in (document.module.items if document.module is not None else ())]
    return entries if document.client.hierarchical_symbols else [*_flat(entries, document.uri, None)]


def workspace_symbols(files: Workspace, params: types.WorkspaceSymbolParams) -> list[types.WorkspaceSymbol]:
    """Find declarations whose names contain the query's letters in order; the user's own files come first.

    A query with a dot is compared with full names, such as ``mesh.heads``.
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


def _entry(item: Any, document: Document) -> types.DocumentSymbol:
    """Return the outline entry of a declaration, a rule, a fact, a binding or a statement.

    The name of a statement's entry is the text of the statement.
    """

    def text(node: Any) -> str:
        return document.text[node.span.start : node.span.end]

    word, inner = type(item).__name__.lower(), ()
    name: Any = getattr(item, "name", None)
    first_line = text(item).split("\n", 1)[0]
    match item:
        case ast.UseDecl(path=name):
            entry = name.value or "use", Kind.File, "use"
        case ast.RunDecl() | ast.RulesDecl() | ast.ProfileDecl() | ast.FactsDecl():
            kind = "block" if isinstance(item, ast.RulesDecl) else word.removesuffix("decl")
            base = getattr(item, "base", None)
            entry = name.id, KINDS[kind], f"from {base.id}" if base else word.removesuffix("decl")
            inner = next(getattr(item, part) for part in ("facts", "body", "members") if hasattr(item, part))
        case ast.FactEntry(value=tuple() as inner):
            entry = name.id, Kind.Property, ""
        case ast.FactEntry() | ast.Binding():
            entry = name.id, Kind.Property if isinstance(item, ast.FactEntry) else Kind.Variable, text(item.value)
        case ast.Require() | ast.Prefer():
            entry = (name.id, Kind.Event, word) if name else (first_line, Kind.Event, "")
        case ast.Let() | ast.Conditional() | ast.Symptom() | ast.Effect():
            kind = Kind.Constant if isinstance(item, ast.Let) else Kind.Property
            entry = name.id, kind, f"{word} " + text(item.expr).split("\n", 1)[0]
        case _:
            kinds = {ast.ModelStmt: Kind.Class, ast.HardwareStmt: Kind.Struct}
            entry, name = (first_line, kinds.get(type(item), Kind.Field), ""), None
            inner = item.bindings if isinstance(item, ast.PinStmt) and len(item.bindings) > 1 else ()
    label, kind, detail = entry
    whole, at = document.lines.span(item.span), document.lines.span((name or item).span)
    return types.DocumentSymbol(
        label, kind, whole, at, detail or None, children=[_entry(part, document) for part in inner] or None
    )


def _flat(entries: Iterable[types.DocumentSymbol], uri: str, inside: str | None) -> Iterator[types.SymbolInformation]:
    for e in entries:
        yield types.SymbolInformation(types.Location(uri, e.range), e.name, e.kind, container_name=inside)
        yield from _flat(e.children or (), uri, e.name)


_LEADS = (
    (re.compile(r"[ \t]*#"), types.FoldingRangeKind.Comment),
    (re.compile(r"[ \t]*use "), types.FoldingRangeKind.Imports),
)


def folding(document: Document, _: types.FoldingRangeParams) -> list[types.FoldingRange]:
    """Return the folds: blocks and lists over several lines, adjacent comment lines, and adjacent `use` lines."""
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
    """Return nested selections for each position: the word, each part of the program around it, the line, the file."""
    text, lines, out = document.text, document.lines, list[types.SelectionRange]()
    pairs, nodes = brackets(text).partner.items(), [(n.span.start, n.span.end) for n in ast.walk(document.module)]
    for offset in map(lines.offset, params.positions):
        line = lines.line_of(offset)
        around = [(0, len(text)), (lines.starts[line], lines.end(line))]
        word = word_at(text, offset) or next((x for x in lexemes(text, lines.starts[line]) if x.end >= offset), None)
        if word is not None and word.start <= offset and word.kind not in ("space", "newline"):
            around.append((word.start, word.end))
        within = [(opened, closed) for opened, closed in pairs if opened < offset <= closed]
        around += [place for o, c in within for place in ((o + 1, c), (o, c + 1))]
        around += [(start, end) for start, end in nodes if start <= offset <= end]
        chosen, last = None, (0, len(text))
        for start, end in sorted(dict.fromkeys(around), key=lambda place: place[1] - place[0], reverse=True):
            if last[0] <= start and end <= last[1]:
                chosen, last = types.SelectionRange(lines.range(start, end), chosen), (start, end)
        out += [chosen] if chosen else []
    return out


_OF_KIND = {
    "model": "class", "hardware": "struct", "cluster": "type", "calibration": "type", "document": "type",
    "profile": "namespace", "run": "namespace", "block": "namespace", "rule": "event", "wish": "event",
    "let": "variable", "derived": "property", "env": "property", "axis": "variable", "given": "property",
    "fact": "property", "cost": "property", "constant": "property", "function": "function", "word": "enumMember",
    "field": "property",
}  # fmt: skip
_OF_LEXEME = {"comment": "comment", "string": "string", "badstring": "string", "number": "number", "op": "operator"}
Token = tuple[int, int, str, int]
"""Start and end offsets, type, and modifiers as bits."""


MOST_KEPT = 32
"""Number of answers that are stored, so that a later answer can be sent as a difference to one of them."""
_kept: dict[str, list[int]] = {}


def semantic_tokens(document: Document, _: types.SemanticTokensParams) -> types.SemanticTokens:
    """Return the tokens of the whole file."""
    data = _encoded(tokens(document, 0, len(document.text)), document.lines)
    name = sha256(",".join(map(str, data)).encode()).hexdigest()[:16]  # equal numbers have equal ids
    _kept.pop(name, None)
    _kept[name] = data
    if len(_kept) > MOST_KEPT:
        del _kept[next(iter(_kept))]
    return types.SemanticTokens(data, name)


def semantic_tokens_delta(
    document: Document, params: types.SemanticTokensDeltaParams
) -> types.SemanticTokens | types.SemanticTokensDelta:
    """Return the difference to an earlier answer as one edit; all tokens if that answer is no longer stored."""
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
    """Count the numbers that are equal at the start of two answers."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def semantic_tokens_range(document: Document, params: types.SemanticTokensRangeParams) -> types.SemanticTokens:
    """Return the tokens of the lines in a range."""
    lines = document.lines
    first, last = (min(p.line, len(lines.starts) - 1) for p in (params.range.start, params.range.end))
    return types.SemanticTokens(data=_encoded(tokens(document, lines.starts[first], lines.end(last)), lines))


def tokens(document: Document, start: int, end: int) -> Iterator[Token]:
    """Yield the tokens between two offsets at line boundaries; no token crosses a line end."""
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
        named = [o for o in here if not o.keyword]  # several in a rule's id: the block and the rule
        for o in named:
            kind = o.symbol.kind
            library = kind in index.BUILTIN or o.symbol in index.of_stdlib()
            yield o.span.start, o.span.end, _OF_KIND[kind], o.declares | library << 1 | (kind == "let") << 2
        if not named and (here or word.text in terminal_words()):
            yield word.start, word.end, "keyword", 0


def _encoded(found: Iterator[Token], lines: Lines) -> list[int]:
    """Encode each token as five numbers: line and column relative to the previous token, length, type, modifiers."""
    out: list[int] = []
    line = column = 0
    for start, end, kind, bits in found:
        at, stop = lines.position(start), lines.position(end)
        out += [at.line - line, at.character - column if at.line == line else at.character]
        out += [stop.character - at.character, TYPES.index(kind), bits]
        line, column = at.line, at.character
    return out


MOST_PAIRS = 4_000_000
"""The most pairs of lines to compare; longer texts are replaced whole."""


def formatting(document: Document, _: types.DocumentFormattingParams) -> list[types.TextEdit]:
    """Return the edits that format the file as `moedsl fmt` does; none if it is already formatted or does not parse."""
    return document.lines.edits(format_edits(document.source))


def range_formatting(document: Document, params: types.DocumentRangeFormattingParams) -> list[types.TextEdit]:
    """Return the formatting edits that touch the lines of a range; none if they alone would change the program."""
    first, last = params.range.start.line, params.range.end.line
    if params.range.end.character == 0 and last > first:
        last -= 1
    source, line_of = document.source, document.lines.line_of
    # an insertion counts as a change of the line after it
    touched = ((e, line_of(e.span.start), line_of(max(e.span.start, e.span.end - 1))) for e in format_edits(source))
    inside = [e for e, start, end in touched if start <= last and end >= first]
    text = applied(source.text, inside)
    before, after = (analysis.parse(s)[0] for s in (source, Source(source.name, text)))
    is_same = before == after and formatter.comments(text) == formatter.comments(source.text)
    return document.lines.edits(inside if is_same else ())


def format_edits(source: Source) -> list[Edit]:
    """Return the edits that format a text, one for each group of changed lines, in order.

    If the texts are too long to compare, one edit replaces everything.
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
