"""Keep the open files and their newest snapshots, and map file names of the compiler to URIs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from attrs import define, evolve, field
from lsprotocol import types
from pygls import uris

from moedsl.lsp.client import Client
from moedsl.lsp.document import Analysis, Document, Solved
from moedsl.lsp.positions import Lines
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.source import Source, of_stdlib

if TYPE_CHECKING:
    from moedsl.lang.reader import Read

LIMIT = 1 << 18
"""Characters that are kept of a text; a larger one breaks `reader.LIMIT`."""


@define(eq=False)
class Entry:
    """An open file of the client."""

    uri: str
    name: str
    version: int | None
    lines: Lines
    newline: str
    document: Document | None = None
    """The newest snapshot; None if the text is newer."""
    earlier: Analysis | None = None
    last: Solved | None = None


def unified(text: str) -> str:
    """Replace all line endings of a text by newlines."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


@define(eq=False)
class Workspace:
    """Every open file, by the client's URI."""

    client: Client = field(factory=Client)
    roots: tuple[str, ...] = ()
    """The paths of the workspace's folders."""
    entries: dict[str, Entry] = field(factory=dict)

    def open(self, uri: str, version: int | None, text: str) -> None:
        """Open a file, or replace its whole text."""
        bom = text.startswith("\ufeff")
        lines = Lines(unified(text.removeprefix("\ufeff")), self.client.encoding, bom)
        known = self.entries.get(uri)
        earlier = _analysis_of(known) if known else None
        newline = "\r\n" if "\r\n" in text else "\n"
        last = _plan_of(known) if known else None
        self.entries[uri] = Entry(uri, self.name_of(uri), version, lines, newline, earlier=earlier, last=last)

    def change(self, uri: str, version: int | None, changes: Iterable[types.TextDocumentContentChangeEvent]) -> None:
        """Apply edits in the order of the notification; each counts in the text after the one before."""
        entry = self.entries.get(uri)
        if entry is None:
            return
        lines = entry.lines
        for change in changes:
            if not isinstance(change, types.TextDocumentContentChangePartial):
                self.open(uri, version, change.text)
                entry = self.entries[uri]
                lines = entry.lines
                continue
            start, end = lines.offsets(change.range)
            lines = Lines(lines.text[:start] + unified(change.text) + lines.text[end:], lines.encoding, lines.bom)
        self.entries[uri] = _anew(evolve(entry, version=version, lines=lines))

    def close(self, uri: str) -> None:
        """Forget a file; from then on the text on disk counts."""
        self.entries.pop(uri, None)

    def document(self, uri: str) -> Document | None:
        """The newest snapshot of an open file, or None. Making one costs nothing, because it parses when first read."""
        entry = self.entries.get(uri)
        if entry is None:
            return None
        if entry.document is None:
            entry.document = self._snapshot(entry)
        return entry.document

    def documents(self) -> list[Document]:
        """The newest snapshots of all open files."""
        return [d for d in map(self.document, list(self.entries)) if d is not None]

    def dependents(self, uri: str) -> list[str]:
        """The other open files that use a file, directly or not."""
        name = self.name_of(uri)
        known = ((d.uri, d.known) for d in self.documents() if d.uri != uri)
        return [other for other, analysis in known if analysis is not None and name in analysis.reads]

    def keep(self, document: Document, plan: Solved | None) -> bool:
        """Store the solver's result for a snapshot; False if the text has changed since."""
        entry = self.entries.get(document.uri)
        if entry is None or entry.document is not document:
            return False
        entry.document = document.solved(plan)
        return True

    def forget(self, uris_: Iterable[str]) -> None:
        """Make new snapshots of files whose used files changed."""
        for uri in uris_:
            entry = self.entries.get(uri)
            if entry is not None:
                self.entries[uri] = _anew(entry)

    def name_of(self, uri: str) -> str:
        """The compiler's name of a file: its path. A file without a path counts as one of the first folder."""
        path = uris.to_fs_path(uri)
        if path:
            return os.path.normpath(path)
        root = self.roots[0] if self.roots else os.getcwd()
        return os.path.join(root, uri.replace("/", "_"))

    def uri_of(self, name: str) -> str:
        """The URI of a file of the compiler: an open file's own, else that of the path."""
        path = self.path_of(name)
        for entry in self.entries.values():
            if entry.name == path:
                return entry.uri
        return uris.from_fs_path(path) or name

    def path_of(self, name: str) -> str:
        """The path of a file; ``stdlib/...`` is in moedsl's installation."""
        from moedsl.support import resources

        return str(resources.stdlib_dir().parent / name) if of_stdlib(name) else name

    def lines_of(self, source: Source) -> Lines:
        """The lines of another file's text, in the client's encoding."""
        return Lines(source.text, self.client.encoding)

    def _snapshot(self, entry: Entry) -> Document:
        refused = _refused(entry)
        lines = Lines("", entry.lines.encoding) if refused else entry.lines
        return Document(
            entry.uri,
            entry.version,
            Source(entry.name, lines.text),
            lines,
            self.client,
            entry.newline,
            refused,
            entry.earlier,
            last=entry.last,
            analyse=self._analyse,
        )

    def _analyse(self, source: Source) -> Analysis:
        from moedsl.lsp.analysis import analyse

        return analyse(source, self._read)

    def _read(self, name: str) -> Read:
        """Read a used file, from an editor or from the disk."""
        from moedsl.lang import reader

        for entry in self.entries.values():
            if entry.name == name:
                return reader.from_text(entry.lines.text, name)
        return reader.read(name)


def _anew(entry: Entry) -> Entry:
    """Copy an entry without its snapshot."""
    return evolve(entry, document=None, earlier=_analysis_of(entry), last=_plan_of(entry))


def _plan_of(entry: Entry) -> Solved | None:
    return entry.document.last if entry.document else entry.last


def _analysis_of(entry: Entry) -> Analysis | None:
    known = entry.document.known if entry.document else None
    return known or entry.earlier


def _refused(entry: Entry) -> tuple[Diagnostic, ...]:
    """Why a text is refused: it is not a .moe file, whatever its name."""
    if len(entry.lines.text) <= LIMIT and "\0" not in entry.lines.text:
        return ()
    from moedsl.lang import reader

    return reader.from_text(entry.lines.text, entry.name)[1]
