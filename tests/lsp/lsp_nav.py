"""What the tests of navigation share: files opened in a workspace, marked places, edits applied as an editor does."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls import uris

from moedsl.lsp.client import Client
from moedsl.lsp.document import Document
from moedsl.lsp.solving import solve
from moedsl.lsp.workspace import Workspace

MARK = "‸"
"""Marks a place in a text."""
ALL = Client(hierarchical_symbols=True, document_changes=False, diagnostic_data=True, related_information=True)


def workspace(files: dict[str, str] | None = None, root: Path = Path("/nowhere"), client: Client = ALL) -> Workspace:
    """A workspace with files open."""
    made = Workspace(client, (str(root),))
    for name, text in (files or {}).items():
        made.open(uri(name, root), 1, text)
    return made


def uri(name: str, root: Path = Path("/nowhere")) -> str:
    return uris.from_fs_path(str(root / name)) or ""


def document(text: str, client: Client = ALL, name: str = "run.moe") -> Document:
    """One open file."""
    found = workspace({name: text}, client=client).document(uri(name))
    assert found is not None
    return found


def marked(text: str) -> tuple[str, int]:
    """A text without its mark, and the mark's offset."""
    assert text.count(MARK) == 1, text
    return text.replace(MARK, ""), text.index(MARK)


def solved(made: Workspace, name: str = "run.moe") -> Document:
    """A file with its plans, as when the solver has answered."""
    found = made.document(uri(name))
    assert found is not None
    assert found.programs, found.diagnostics
    assert made.keep(found, solve(found.analysis))
    again = made.document(uri(name))
    assert again is not None
    return again


def at(found: Document, offset: int) -> types.Position:
    return found.lines.position(offset)


def ident(found: Document) -> types.TextDocumentIdentifier:
    return types.TextDocumentIdentifier(found.uri)


def edited(text: str, edits: Iterable[types.TextEdit]) -> str:
    """A text with LSP's edits made, counted in UTF-16 from scratch and not by the server's own code."""
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)

    def offset(p: types.Position) -> int:
        units, at = 0, 0
        line = lines[p.line] if p.line < len(lines) else ""
        while at < len(line) and units < p.character:
            units += len(line[at].encode("utf-16-le")) // 2
            at += 1
        return min(starts[min(p.line, len(lines))] + at, len(text))

    for e in sorted(edits, key=lambda e: (offset(e.range.start), offset(e.range.end)), reverse=True):
        text = text[: offset(e.range.start)] + e.new_text + text[offset(e.range.end) :]
    return text


def changed(made: Workspace, edit: types.WorkspaceEdit) -> dict[str, str]:
    """The texts after a workspace edit, by URI; of files that are not open, from the disk."""
    out: dict[str, str] = {}
    for where, edits in (edit.changes or {}).items():
        found = made.document(where)
        text = found.text if found is not None else Path(uris.to_fs_path(where) or "").read_text(encoding="utf-8")
        out[where] = edited(text, edits)
    return out


def covered(text: str, range_: types.Range) -> str:
    """What a range covers, in UTF-16 units counted from scratch."""
    lines = text.split("\n")
    assert range_.start.line == range_.end.line
    raw = lines[range_.start.line].encode("utf-16-le")
    return raw[2 * range_.start.character : 2 * range_.end.character].decode("utf-16-le")


def parameters(kind: Any, found: Document, offset: int, **more: Any) -> Any:
    """The parameters of a request about a place."""
    return kind(text_document=ident(found), position=at(found, offset), **more)
