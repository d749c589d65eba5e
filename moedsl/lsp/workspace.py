"""Store the open files, map the compiler's file names to URIs, and convert edits of several files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, evolve, field
from lsprotocol import types
from pygls import uris

from moedsl.lsp.document import Analysis, Client, Document, Lines, Solved
from moedsl.support.source import Source, of_stdlib

if TYPE_CHECKING:  # the compiler is imported once the client has its answer to `initialize`
    from moedsl.lang.reader import Read
    from moedsl.lang.text_edits import Edit

LIMIT = 1 << 18
"""Most characters of a text that is read; a longer text also exceeds `reader.LIMIT`."""


@define(eq=False)
class Workspace:
    """Every open file, by the client's URI."""

    client: Client = field(factory=Client)
    roots: tuple[str, ...] = ()
    """The paths of the workspace's folders."""
    documents: dict[str, Document] = field(factory=dict)
    """The newest snapshot of each open file."""

    def open(self, uri: str, version: int | None, text: str) -> None:
        """Open a file, or replace its whole text."""
        self._keep_text(uri, version, Lines.read(text, self.client.encoding))

    def change(self, uri: str, version: int | None, changes: Iterable[types.TextDocumentContentChangeEvent]) -> None:
        """Apply edits in order; positions of an edit refer to the text after the previous edit."""
        if uri in self.documents:
            self._keep_text(uri, version, reduce(Lines.changed, changes, self.documents[uri].lines))

    def _keep_text(self, uri: str, version: int | None, lines: Lines) -> None:
        """Store a snapshot of a new text, which is parsed when first read."""
        before = self.documents.get(uri)
        name, refused = before.source.name if before else self.name_of(uri), ()
        if len(lines.text) > LIMIT or "\0" in lines.text:  # it is not a .moe file, whatever its name
            from moedsl.lang import reader

            refused = reader.from_text(lines.text, name)[1]
        source = Source(name, "" if refused else lines.text)
        earlier, last = (before.known, before.last) if before else (None, None)
        self.documents[uri] = Document(
            uri, version, source, lines, self.client, refused, earlier, last=last, analyse=self._analyse
        )

    def _analyse(self, source: Source) -> Analysis:
        from moedsl.lsp.analysis import analyse

        return analyse(source, self.read)

    def read(self, name: str) -> Read:
        """Read a used file, from an editor or from the disk."""
        from moedsl.lang import reader

        opened = next((d for d in self.documents.values() if d.source.name == name), None)
        return reader.from_text(opened.lines.text, name) if opened else reader.read(name)

    def close(self, uri: str) -> None:
        """Forget a file; from then on, its text on disk is used."""
        self.documents.pop(uri, None)

    def document(self, uri: str) -> Document | None:
        """Return the newest snapshot of an open file; None if the file is not open."""
        return self.documents.get(uri)

    def readable(self, uri: str) -> Document | None:
        """Return the newest snapshot of an open file; None if the file is not open or its text is refused."""
        document = self.documents.get(uri)
        return None if document is None or document.refused else document

    def dependents(self, uri: str) -> list[str]:
        """Return the URIs of the other open files that use a file, directly or not."""
        name = self.name_of(uri)
        known = ((d.uri, d.known) for d in self.documents.values() if d.uri != uri)
        return [other for other, analysis in known if analysis is not None and name in analysis.reads]

    def keep(self, document: Document, plan: Solved | None) -> bool:
        """Store the solver's result for a snapshot; False if the text has changed since."""
        if self.documents.get(document.uri) is not document:
            return False
        self.documents[document.uri] = document.solved(plan)
        return True

    def forget(self, uris_: Iterable[str]) -> None:
        """Replace the snapshots of files whose used files changed by new ones without results."""
        for uri in uris_:
            document = self.documents.get(uri)
            if document is not None:
                self.documents[uri] = evolve(document, plan=None, earlier=document.known)

    def name_of(self, uri: str) -> str:
        """Return the compiler's name of a file, which is its path; a URI without a path gets one in the first root."""
        path = uris.to_fs_path(uri)
        if path:
            return os.path.normpath(path)
        root = self.roots[0] if self.roots else os.getcwd()
        return os.path.join(root, uri.replace("/", "_"))

    def uri_of(self, name: str) -> str:
        """Return the URI of a file by the compiler's name: the client's URI of an open file, else the path's URI."""
        path = self.path_of(name)
        opened = next((d.uri for d in self.documents.values() if d.source.name == path), None)
        return opened or uris.from_fs_path(path) or name

    def path_of(self, name: str) -> str:
        """Return the path of a file by the compiler's name; ``stdlib/...`` is in moedsl's installation."""
        from moedsl.support import resources

        return str(resources.stdlib_dir().parent / name) if of_stdlib(name) else name

    def lines_of(self, source: Source) -> Lines:
        """Return the lines of another file's text, in the client's encoding."""
        return Lines(source.text, self.client.encoding)

    def edit(self, changes: Mapping[str, Iterable[Edit]]) -> types.WorkspaceEdit:
        """Convert edits by file name, of open files or others; with versions if the client supports them."""
        by_uri: dict[str, list[types.TextEdit]] = {}
        for name, edits in changes.items():
            document = self.document(uri := self.uri_of(name))
            text = document.lines if document else Lines.read(Path(name).read_bytes().decode(), self.client.encoding)
            by_uri[uri] = text.edits(edits)
        if not self.client.document_changes:
            return types.WorkspaceEdit(changes=by_uri)
        versions = {uri: document.version if (document := self.document(uri)) else None for uri in by_uri}
        identifiers = {u: types.OptionalVersionedTextDocumentIdentifier(u, v) for u, v in versions.items()}
        return types.WorkspaceEdit(
            document_changes=[types.TextDocumentEdit(identifiers[u], [*edits]) for u, edits in by_uri.items()]
        )
