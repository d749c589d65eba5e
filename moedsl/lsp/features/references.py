"""Find every place with the same name: in this file, in files connected with it by `use`, in the stdlib."""

from __future__ import annotations

from lsprotocol import types

from moedsl.lsp import index
from moedsl.lsp.document import Document
from moedsl.lsp.features.definition import location, opened
from moedsl.lsp.workspace import Workspace


def answer(workspace: Workspace, params: types.ReferenceParams) -> list[types.Location] | None:
    """The places that name the symbol at a position, with its declaration if requested."""
    document = opened(workspace, params.text_document.uri)
    found = index.symbol_at(document, document.lines.offset(params.position)) if document else None
    if document is None or found is None:
        return None
    symbol = found[0]
    places = index.everywhere(workspace, document, symbol)
    out = [location(workspace, p) for p, o in places if not o.declares]
    declared = index.declarations(document, symbol) if params.context.include_declaration else []
    return [*(location(workspace, p) for p in declared), *out]


def highlight(document: Document, params: types.DocumentHighlightParams) -> list[types.DocumentHighlight] | None:
    """The places of this file that name the symbol at a position; a declaration counts as a write."""
    found = index.symbol_at(document, document.lines.offset(params.position))
    if found is None:
        return None
    places = index.files(document.analysis)[document.source.name].places
    return [
        types.DocumentHighlight(document.lines.span(o.span), types.DocumentHighlightKind.Write if o.declares else _READ)
        for o in places
        if o.symbol == found[0]
    ]


_READ = types.DocumentHighlightKind.Read
