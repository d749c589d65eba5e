"""Completion: what may be written at the cursor, in files that are half written too."""

from __future__ import annotations

from lsprotocol import types

from moedsl.lsp import describe
from moedsl.lsp.around import Around, Offer
from moedsl.lsp.document import Document
from moedsl.lsp.offers import offers
from moedsl.lsp.place import Place, place

MOST = 100
"""Items of one answer; with more the client asks again as the word grows."""


def answer(document: Document, params: types.CompletionParams) -> types.CompletionList:
    """The items that fit the word before the cursor."""
    at = place(document.text, document.lines.offset(params.position))
    typed = at.word if at.string is None else at.string.rsplit("/", 1)[-1]
    found = offers(Around(document, document.known or document.analysis, at))
    fitting = [o for o in found if fits(typed, o.label)]
    shown = sorted(fitting, key=lambda o: not o.label.startswith(typed))[:MOST] if typed else fitting[:MOST]
    items = [_item(o, i, at, typed, document) for i, o in enumerate(shown)]
    return types.CompletionList(is_incomplete=len(fitting) > MOST, items=items)


def fits(typed: str, label: str) -> bool:
    """Whether the letters of a word occur in a label in their order, whatever their case."""
    letters = iter(label.lower())
    return all(c in letters for c in typed.lower())


def _item(o: Offer, rank: int, at: Place, typed: str, document: Document) -> types.CompletionItem:
    client = document.client
    snippet = o.snippet if client.snippets else None
    documentation = o.doc() if o.doc is not None else None
    start = at.start if at.string is None else at.start - len(typed)
    return types.CompletionItem(
        label=o.label,
        kind=types.CompletionItemKind[o.kind],
        detail=o.detail or None,
        documentation=_markup(documentation, client.completion_markdown),
        sort_text=f"{rank:04}",
        filter_text=o.label,
        text_edit=_edit(document, start, at, snippet or o.insert or o.label),
        insert_text_format=types.InsertTextFormat.Snippet if snippet else types.InsertTextFormat.PlainText,
    )


def _edit(document: Document, start: int, at: Place, text: str) -> types.TextEdit | types.InsertReplaceEdit:
    """Inserts at the cursor; a client that can is told how to replace the rest of the word too."""
    cursor = at.start + len(at.word)
    before = document.lines.range(start, cursor)
    if not document.client.insert_replace:
        return types.TextEdit(before, text)
    return types.InsertReplaceEdit(text, insert=before, replace=document.lines.range(start, at.end))


def _markup(text: str | None, markdown: bool) -> types.MarkupContent | str | None:
    """A client that names no format takes a string."""
    if text is None:
        return None
    return types.MarkupContent(types.MarkupKind.Markdown, text) if markdown else describe.plain(text)
