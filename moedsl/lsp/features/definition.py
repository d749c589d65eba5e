"""Go to the definition of a name: in a file, in the stdlib, or for words of the language in the compiler."""

from __future__ import annotations

from lsprotocol import types

from moedsl.lsp import index
from moedsl.lsp.document import Document
from moedsl.lsp.names import Target
from moedsl.lsp.workspace import Workspace


def answer(workspace: Workspace, params: types.DefinitionParams) -> list[types.Location] | None:
    """The places that declare the name at a position; None if there is no name."""
    document = opened(workspace, params.text_document.uri)
    found = index.symbol_at(document, document.lines.offset(params.position)) if document else None
    if document is None or found is None:
        return None
    return [location(workspace, p) for p in index.declarations(document, found[0])]


def opened(workspace: Workspace, uri: str) -> Document | None:
    """The newest snapshot of an open file that is not refused."""
    document = workspace.document(uri)
    return None if document is None or document.refused else document


def location(workspace: Workspace, place: Target) -> types.Location:
    """Convert a place to the client's positions."""
    uri = workspace.uri_of(place.source.name)
    document = workspace.document(uri)
    lines = document.lines if document is not None else workspace.lines_of(place.source)
    return types.Location(uri, lines.span(place.span))
