"""Fold blocks and expand selections, also in a text that does not parse."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lsprotocol import types

from moedsl.lang import ast
from moedsl.lang.tokens import Lexeme, brackets, lexemes
from moedsl.lsp.document import Document
from moedsl.lsp.index import word_at

_BLANK = re.compile(r"[ \t]*")


def answer(document: Document, _: types.FoldingRangeParams) -> list[types.FoldingRange]:
    """Folds: blocks and lists over several lines, adjacent lines of comments, and adjacent `use` lines."""
    found: dict[tuple[int, int], types.FoldingRangeKind | None] = {}
    found |= {(s, e): kind for s, e, kind in (*_lines(document, "comment"), *_lines(document, "use"))}
    lines = document.lines
    for opened, closed in brackets(document.text).partner.items():
        start, end = lines.line_of(opened), lines.line_of(closed)
        if end - 1 > start:
            found.setdefault((start, end - 1), None)
    return [types.FoldingRange(s, e, kind=kind) for (s, e), kind in sorted(found.items())]


_KINDS = {"comment": types.FoldingRangeKind.Comment, "use": types.FoldingRangeKind.Imports}


def _lines(document: Document, what: str) -> Iterator[tuple[int, int, types.FoldingRangeKind]]:
    """Runs of at least two lines that start with a comment, or with `use`."""
    lines, text = document.lines, document.text
    start: int | None = None
    for number in range(lines.count + 1):
        begins = number < lines.count and _begins(text, lines.starts[number], "#" if what == "comment" else "use ")
        if begins and start is None:
            start = number
        elif not begins and start is not None:
            if number - 1 > start:
                yield start, number - 1, _KINDS[what]
            start = None


def _begins(text: str, at: int, what: str) -> bool:
    blank = _BLANK.match(text, at)
    return text.startswith(what, blank.end() if blank else at)


def selection(document: Document, params: types.SelectionRangeParams) -> list[types.SelectionRange]:
    """Selections for each position: the word, then each part of the program around it, its line, and the file."""
    return [_grown(document, document.lines.offset(p)) for p in params.positions]


def _grown(document: Document, offset: int) -> types.SelectionRange:
    nested: list[tuple[int, int]] = []
    for start, end in sorted(_around(document, offset), key=lambda r: r[1] - r[0], reverse=True):
        if not nested or (nested[-1] != (start, end) and nested[-1][0] <= start and end <= nested[-1][1]):
            nested.append((start, end))
    out: types.SelectionRange | None = None
    for start, end in nested:
        out = types.SelectionRange(document.lines.range(start, end), out)
    return out or types.SelectionRange(document.lines.range(offset, offset))


def _around(document: Document, offset: int) -> Iterator[tuple[int, int]]:
    """The ranges that contain or touch an offset."""
    text, lines = document.text, document.lines
    yield 0, len(text)
    line = lines.line_of(offset)
    yield lines.starts[line], lines.end(line)
    word = word_at(text, offset) or _lexeme(text, lines.starts[line], offset)
    if word is not None:
        yield word.start, word.end
    for opened, closed in brackets(text).partner.items():
        if opened < offset <= closed:
            yield opened + 1, closed
            yield opened, closed + 1
    for node in ast.walk(document.module):
        if node.span.start <= offset <= node.span.end:
            yield node.span.start, node.span.end


def _lexeme(text: str, start: int, offset: int) -> Lexeme | None:
    """The word, string, number or comment at an offset."""
    inside = (x for x in lexemes(text, start) if x.end >= offset)
    found = next(inside, None)
    return found if found is not None and found.start <= offset and found.kind not in ("space", "newline") else None
