"""Give semantic tokens: the kind of each word of a file, by the grammar and by the meaning of names."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256

from lsprotocol import types

from moedsl.lang.keywords import keywords
from moedsl.lang.tokens import Lexeme, lexemes
from moedsl.lsp import index
from moedsl.lsp.document import Document
from moedsl.lsp.legend import TYPES
from moedsl.lsp.names import Occurrence
from moedsl.lsp.positions import Lines

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


MOST = 32
"""The number of answers that are stored, so that later ones can be sent as differences."""
_kept: OrderedDict[str, list[int]] = OrderedDict()


def full(document: Document, _: types.SemanticTokensParams) -> types.SemanticTokens:
    """The tokens of the whole file."""
    data = _encoded(tokens(document, 0, len(document.text)), document.lines)
    return types.SemanticTokens(data, _keep(data))


def delta(
    document: Document, params: types.SemanticTokensDeltaParams
) -> types.SemanticTokens | types.SemanticTokensDelta:
    """One edit of an earlier answer; all tokens if that answer is no longer stored."""
    before, after = (
        _kept.get(params.previous_result_id),
        full(document, types.SemanticTokensParams(params.text_document)),
    )
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


def _keep(data: list[int]) -> str:
    """The id of an answer; equal numbers have equal ids."""
    name = sha256(",".join(map(str, data)).encode()).hexdigest()[:16]
    _kept[name] = data
    _kept.move_to_end(name)
    while len(_kept) > MOST:
        _kept.popitem(last=False)
    return name


def ranged(document: Document, params: types.SemanticTokensRangeParams) -> types.SemanticTokens:
    """The tokens of the lines of a range."""
    lines = document.lines
    first, last = min(params.range.start.line, lines.count - 1), min(params.range.end.line, lines.count - 1)
    return types.SemanticTokens(data=_encoded(tokens(document, lines.starts[first], lines.end(last)), lines))


def tokens(document: Document, start: int, end: int) -> Iterator[Token]:
    """The tokens between two offsets at line ends; no token crosses a line end."""
    places = index.files(document.analysis)[document.source.name].places
    starts = [o.span.start for o in places]
    for word in lexemes(document.text, start):
        if word.start >= end:
            return
        if word.kind == "word":
            at = bisect_left(starts, word.start)
            upto = bisect_left(starts, word.end)
            yield from _word(word, places[at:upto])
        elif word.kind in _OF_LEXEME:
            yield word.start, word.start + len(word.text.rstrip()), _OF_LEXEME[word.kind], 0


def _word(word: Lexeme, places: Sequence[Occurrence]) -> Iterator[Token]:
    """The tokens of a word: a keyword, or the names that it contains, such as the block and the rule in a rule's id."""
    named = [o for o in places if not o.keyword]
    if named:
        yield from ((o.span.start, o.span.end, _OF_KIND[o.symbol.kind], _bits(o)) for o in named)
    elif places or word.text in _keywords():
        yield word.start, word.end, "keyword", 0


@cache
def _keywords() -> frozenset[str]:
    known = keywords()
    groups = (known.statements, known.declarations, known.members, known.clauses, known.links, known.operators)
    return frozenset(w for group in (*groups, known.constants) for w in group)


def _bits(o: Occurrence) -> int:
    kind = o.symbol.kind
    library = kind in index.BUILTIN or index.is_stdlib(o.symbol)
    return o.declares | library << 1 | (kind == "let") << 2


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
