"""Go to definition: to the file that declares a name, in the stdlib too; words of the language to the compiler."""

from __future__ import annotations

from lsprotocol import types

from moedsl.lsp import index
from moedsl.lsp.document import Document
from moedsl.lsp.names import Target
from moedsl.lsp.workspace import Workspace


def answer(workspace: Workspace, params: types.DefinitionParams) -> list[types.Location] | None:
    """The places that declare what stands at a position; None where nothing is named."""
    document = opened(workspace, params.text_document.uri)
    found = index.symbol_at(document, document.lines.offset(params.position)) if document else None
    if document is None or found is None:
        return None
    return [location(workspace, p) for p in index.declarations(document, found[0])]


def opened(workspace: Workspace, uri: str) -> Document | None:
    """The newest snapshot of a file that is open and looked at."""
    document = workspace.document(uri)
    return None if document is None or document.refused else document


def location(workspace: Workspace, place: Target) -> types.Location:
    """A place as the client counts; of an open file in its lines."""
    uri = workspace.uri_of(place.source.name)
    document = workspace.document(uri)
    lines = document.lines if document is not None else workspace.lines_of(place.source)
    return types.Location(uri, lines.span(place.span))
