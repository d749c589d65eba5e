"""Rename: of what the user's own files declare, in all of them at once, and only where everything still means the same.

Whether it does is asked of the compiler: the edited texts are checked, and every name has to stand for what it did.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from attrs import evolve
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from moedsl.diagnostics.model import Diagnostic
from moedsl.diagnostics.source import Source
from moedsl.lsp import analysis, disk, index
from moedsl.lsp.document import Analysis, Document
from moedsl.lsp.edits import workspace_edit
from moedsl.lsp.features.definition import opened
from moedsl.lsp.names import Occurrence, Scope, Symbol, named
from moedsl.lsp.workspace import Workspace
from moedsl.schema.operators import FUNCTIONS
from moedsl.syntax import reader
from moedsl.syntax.parse_errors import RESERVED
from moedsl.syntax.text_edits import Edit, applied

OWN = ("model", "hardware", "cluster", "profile", "run", "block", "rule", "let", "wish")
"""Kinds whose names are the user's to choose."""
_WHY = {
    "derived": "is the name that Megatron Bridge uses for the value",
    "env": "is the name of an environment variable",
    "field": "is a field of Megatron Bridge",
    "calibration": "is the name of an architecture",
    "file": "is the path of a file",
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FAILED = -32803
"""LSP's RequestFailed: the message is shown to the user."""


class RefusedError(JsonRpcException):
    """A rename that cannot be made; the message says why."""

    CODE = _FAILED
    MESSAGE = "the rename is refused"


def prepare(workspace: Workspace, params: types.PrepareRenameParams) -> types.PrepareRenamePlaceholder | None:
    """The range and the text of what would be renamed; None where nothing is named.

    Raises RefusedError with the reason where the name is not the user's.
    """
    document = opened(workspace, params.text_document.uri)
    found = index.symbol_at(document, document.lines.offset(params.position)) if document else None
    if document is None or found is None:
        return None
    symbol, span = found
    refuse_foreign(document, symbol)
    text = document.text[span.start : span.end]
    return types.PrepareRenamePlaceholder(document.lines.span(span), text)


def answer(workspace: Workspace, params: types.RenameParams) -> types.WorkspaceEdit | None:
    """The edits of every file that names it. Raises RefusedError where it is not the user's or would mean more."""
    document = opened(workspace, params.text_document.uri)
    found = index.symbol_at(document, document.lines.offset(params.position)) if document else None
    if document is None or found is None:
        return None
    symbol, new = found[0], params.new_name.strip()
    refuse_foreign(document, symbol)
    refuse_name(new)
    refuse_taken(document, symbol, new)
    changes: dict[str, list[Edit]] = {}
    for place, _ in index.everywhere(workspace, document, symbol):
        changes.setdefault(place.source.name, []).append(Edit(place.span, new))
    refuse_changed(workspace, document, symbol, new, changes)
    return workspace_edit(workspace, changes)


def refuse_foreign(document: Document, symbol: Symbol) -> None:
    """What the language, the stdlib or Bridge names keeps its name."""
    name = symbol.name.rpartition(".")[2]
    if symbol.kind in _WHY:
        raise RefusedError(f"`{symbol.name}` {_WHY[symbol.kind]}")
    if symbol.kind not in OWN:
        raise RefusedError(f"`{name}` is a keyword")
    if index.is_stdlib(symbol):
        raise RefusedError(f"`{name}` is declared by the stdlib, which cannot be edited here")
    if not index.declarations(document, symbol):
        raise RefusedError(f"no readable file declares `{name}`")


def refuse_name(new: str) -> None:
    """Only what the grammar takes for a name."""
    if not _NAME.fullmatch(new):
        raise RefusedError(f"`{new}` is not a name: letters, digits and _, and no digit first")
    if new in RESERVED:
        raise RefusedError(f"`{new}` is a word of expressions and cannot be a name")


def refuse_taken(document: Document, symbol: Symbol, new: str) -> None:
    """A `let` is read wherever a name may stand, so nothing else may have its name."""
    if symbol.kind == "let" and (new in FUNCTIONS or named(new, Scope.of(document.library)) is not None):
        raise RefusedError(f"`{new}` already means something else")


# ---------------------------------------------------------------- whether everything still means the same


def refuse_changed(
    workspace: Workspace, document: Document, symbol: Symbol, new: str, changes: Mapping[str, list[Edit]]
) -> None:
    """Raises RefusedError where the edited files have a new error, or a name in them stands for something else."""
    after_of = _Renamed(symbol, new)
    texts = {d.source.name: d.source for d in index.readable(workspace)}
    sources = index.group(workspace, document)
    edited = {n: Source(n, applied(sources[n].source.text, es)) for n, es in changes.items()}
    for before in [*(d.analysis for d in index.readable(workspace)), *disk.using(workspace)]:
        if edited.keys() & index.files(before).keys():
            after = _analysed(edited.get(before.source.name, before.source), {**texts, **edited})
            _compare(before, after, after_of)


def _analysed(source: Source, known: Mapping[str, Source]) -> Analysis:
    """A text as if the edits had been made in it and in what it uses."""

    def read(name: str) -> reader.Read:
        return reader.from_text(known[name].text, name) if name in known else reader.read(name)

    return analysis.analyse(source, read)


def _compare(before: Analysis, after: Analysis, after_of: _Renamed) -> None:
    new_ = Counter(d.id for d in after.diagnostics) - Counter(d.id for d in before.diagnostics)
    wrong = next((d for d in after.diagnostics if d.id in new_), None)
    if wrong is not None:
        raise RefusedError(_collision(wrong, after_of.new))
    for name, file in index.files(before).items():
        expected = [after_of(o) for o in file.places]
        if expected != [(o.symbol, o.declares) for o in index.files(after)[name].places]:
            raise RefusedError(f"`{after_of.new}` already means something else here")


def _collision(d: Diagnostic, new: str) -> str:
    return f"`{new}` cannot be the name: {d.message}"


class _Renamed:
    """What each place stands for once a symbol is called `new`."""

    def __init__(self, symbol: Symbol, new: str) -> None:
        self.symbol, self.new = symbol, new

    def __call__(self, o: Occurrence) -> tuple[Symbol, bool]:
        return self.of(o.symbol), o.declares

    def of(self, s: Symbol) -> Symbol:
        if s == self.symbol:
            head, dot, _ = s.name.rpartition(".")
            return evolve(s, name=head + dot + self.new)
        block, run = self.symbol.kind == "block", self.symbol.kind == "run"
        if block and s.kind == "rule" and s.name.startswith(self.symbol.name + "."):
            return evolve(s, name=self._inside(s.name))
        if run and s.kind == "wish" and s.file == self.symbol.file and s.name.startswith(self.symbol.name + "."):
            return evolve(s, name=self._inside(s.name))
        return s

    def _inside(self, name: str) -> str:
        """The name of what the renamed block holds."""
        head, dot, _ = self.symbol.name.rpartition(".")
        return head + dot + self.new + name[len(self.symbol.name) :]
