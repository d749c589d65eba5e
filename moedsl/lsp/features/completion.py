"""Complete at the cursor, also in half-written files."""

from __future__ import annotations

from collections.abc import Callable

from lsprotocol import types

from moedsl.lsp import describe
from moedsl.lsp.client import Client
from moedsl.lsp.document import Document
from moedsl.lsp.offers import offers
from moedsl.lsp.place import Around, Offer, Place, place

Written = Callable[[str], types.TextEdit | types.InsertReplaceEdit]
MOST = 300
"""The most items of one answer; if there are more, the client asks again as the word grows."""


def answer(document: Document, params: types.CompletionParams) -> types.CompletionList:
    """The items that match the word before the cursor."""
    at = place(document.text, document.lines.offset(params.position))
    typed = at.word if at.string is None else at.string.rsplit("/", 1)[-1]
    found = offers(Around(document, document.known or document.analysis, at))
    word = typed.lower()
    fitting = [o for o in found if fits(word, o.label)]
    shown = sorted(fitting, key=lambda o: not o.label.startswith(typed))[:MOST] if typed else fitting[:MOST]
    written = _written(document, at.start if at.string is None else at.start - len(typed), at)
    items = [_item(o, i, written, document.client) for i, o in enumerate(shown)]
    return types.CompletionList(is_incomplete=len(fitting) > MOST, items=items)


def fits(typed: str, label: str) -> bool:
    """Whether the letters of a word, in lower case, occur in a label in their order, whatever its case."""
    label, at = label.lower(), 0
    for c in typed:
        at = label.find(c, at) + 1
        if not at:
            return False
    return True


def _item(o: Offer, rank: int, written: Written, client: Client) -> types.CompletionItem:
    snippet = o.snippet if client.snippets else None
    documentation = o.doc() if o.doc is not None else None
    return types.CompletionItem(
        label=o.label,
        kind=types.CompletionItemKind[o.kind],
        detail=o.detail or None,
        documentation=_markup(documentation, client.completion_markdown),
        sort_text=f"{rank:04}",
        text_edit=written(snippet or o.insert or o.label),
        insert_text_format=types.InsertTextFormat.Snippet if snippet else None,
    )


def _written(document: Document, start: int, at: Place) -> Written:
    """The edit that inserts a text at the cursor; a client that supports it may also replace the rest of the word."""
    cursor = at.start + len(at.word)
    before = document.lines.range(start, cursor)
    if not document.client.insert_replace or at.end == cursor:
        return lambda text: types.TextEdit(before, text)
    whole = document.lines.range(start, at.end)
    return lambda text: types.InsertReplaceEdit(text, insert=before, replace=whole)


def _markup(text: str | None, markdown: bool) -> types.MarkupContent | str | None:
    """Plain text, for a client that names no format."""
    if text is None:
        return None
    return types.MarkupContent(types.MarkupKind.Markdown, text) if markdown else describe.plain(text)
