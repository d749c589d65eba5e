"""Format like `moedsl fmt`, as edits of the lines that change. A file that does not parse stays unchanged."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from difflib import SequenceMatcher

from lsprotocol import types

from moedsl.lang import formatter
from moedsl.lang.text_edits import Edit, applied
from moedsl.lsp import analysis
from moedsl.lsp.document import Document
from moedsl.lsp.edits import text_edits
from moedsl.support.source import Source, Span

log = logging.getLogger(__name__)

MOST = 4_000_000
"""The most pairs of lines to compare."""


def whole(document: Document, _: types.DocumentFormattingParams) -> list[types.TextEdit]:
    """The edits that format the file; none if it is formatted already or does not parse."""
    return text_edits(document, edits(document.source))


def ranged(document: Document, params: types.DocumentRangeFormattingParams) -> list[types.TextEdit]:
    """The edits that touch the lines of a range."""
    first, last = params.range.start.line, params.range.end.line
    if params.range.end.character == 0 and last > first:
        last -= 1
    lines, every = document.lines, edits(document.source)
    inside = [e for e in every if lines.line_of(e.span.start) <= last and _last_line(document, e) >= first]
    return text_edits(document, inside if _same(document.source, inside) else ())


def _last_line(document: Document, e: Edit) -> int:
    """The last line that an edit changes; an insertion changes the line before which it is made."""
    return document.lines.line_of(max(e.span.start, e.span.end - 1))


def _same(source: Source, some: list[Edit]) -> bool:
    """Whether a part of the edits leaves the program and its comments as they are."""
    text = applied(source.text, some)
    before, after = (analysis.parse(s)[0] for s in (source, Source(source.name, text)))
    return before == after and formatter.comments(text) == formatter.comments(source.text)


def edits(source: Source) -> list[Edit]:
    """The edits from a text to its formatted form: whole lines that differ, in order."""
    module, found = analysis.parse(source)
    if module is None or any(d.is_error for d in found):
        return []
    try:
        return [*_differing(source, formatter.format(module, source))]
    except ValueError:
        log.exception("formatting would change %s", source.name)
        return []


def _differing(source: Source, text: str) -> Iterator[Edit]:
    before, after = _lines(source.text), _lines(text)
    starts = [0]
    for line in before:
        starts.append(starts[-1] + len(line))
    for i1, i2, j1, j2 in _hunks(before, after):
        yield Edit(Span(source.name, starts[i1], starts[i2]), "".join(after[j1:j2]))


def _lines(text: str) -> list[str]:
    """The lines with their newlines; only newlines end a line."""
    return [line for line in re.split(r"(?<=\n)", text) if line]


def _hunks(before: list[str], after: list[str]) -> Iterator[tuple[int, int, int, int]]:
    """The ranges of lines that differ; for two long texts, one range that contains all differences."""
    if len(before) * len(after) > MOST:
        yield 0, len(before), 0, len(after)
        return
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            yield i1, i2, j1, j2
