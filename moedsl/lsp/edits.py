"""Convert the compiler's edits to LSP: in the client's positions, with the line endings of its text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lsprotocol import types

from moedsl.lang import reader
from moedsl.lang.text_edits import Edit
from moedsl.lsp.document import Document
from moedsl.lsp.positions import Lines
from moedsl.lsp.workspace import Workspace


def text_edits(document: Document, changes: Iterable[Edit]) -> list[types.TextEdit]:
    """Convert edits of an open file."""
    return [_edit(document.lines, document.newline, e) for e in changes]


def workspace_edit(workspace: Workspace, changes: Mapping[str, Iterable[Edit]]) -> types.WorkspaceEdit:
    """Convert edits by file, named as in the compiler; with versions if the client supports them."""
    edits = {name: _of_file(workspace, name, [*es]) for name, es in changes.items()}
    if not workspace.client.document_changes:
        return types.WorkspaceEdit(changes={workspace.uri_of(name): es for name, es in edits.items()})
    versioned = [types.TextDocumentEdit(_identifier(workspace, name), es) for name, es in edits.items()]
    return types.WorkspaceEdit(document_changes=[*versioned])


def _identifier(workspace: Workspace, name: str) -> types.OptionalVersionedTextDocumentIdentifier:
    uri = workspace.uri_of(name)
    document = workspace.document(uri)
    return types.OptionalVersionedTextDocumentIdentifier(uri, document.version if document else None)


def _of_file(workspace: Workspace, name: str, changes: list[Edit]) -> list[types.TextEdit]:
    """Convert the edits of an open file or of one on disk; an unreadable file has none."""
    document = workspace.document(workspace.uri_of(name))
    if document is not None:
        return text_edits(document, changes)
    source, _ = reader.read(name)
    return [] if source is None else [_edit(workspace.lines_of(source), _newline(name), e) for e in changes]


def _newline(name: str) -> str:
    """The line ending of a file on disk."""
    with open(name, encoding="utf-8", newline="") as f:
        return "\r\n" if f.readline().endswith("\r\n") else "\n"


def _edit(lines: Lines, newline: str, e: Edit) -> types.TextEdit:
    return types.TextEdit(lines.span(e.span), e.text.replace("\n", newline))
