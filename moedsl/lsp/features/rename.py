"""Rename a name that the user's files declare, in all of them at once, only if every other name keeps its meaning.

The compiler decides this: the edited texts are checked, and every name must mean the same as before.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from attrs import evolve
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from moedsl.facts.operators import FUNCTIONS
from moedsl.lang import reader
from moedsl.lang.parse_errors import RESERVED
from moedsl.lang.text_edits import Edit, applied
from moedsl.lsp import analysis, index
from moedsl.lsp.document import Analysis, Document
from moedsl.lsp.edits import workspace_edit
from moedsl.lsp.features.definition import opened
from moedsl.lsp.names import Occurrence, Scope, Symbol, named
from moedsl.lsp.workspace import Workspace
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.source import Source

OWN = ("model", "hardware", "cluster", "profile", "run", "block", "rule", "let", "wish")
"""Kinds whose names the user chooses."""
_WHY = {
    "derived": "is the name that Megatron Bridge uses for the value",
    "env": "is the name of an environment variable",
    "field": "is a field of Megatron Bridge",
    "calibration": "is the name of an architecture",
    "file": "is the path of a file",
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FAILED = -32803
"""LSP's RequestFailed; clients show its message to the user."""


class RefusedError(JsonRpcException):
    """Refuses a rename; the message gives the reason."""

    CODE = _FAILED
    MESSAGE = "the rename is refused"


def prepare(workspace: Workspace, params: types.PrepareRenameParams) -> types.PrepareRenamePlaceholder | None:
    """The range and the text to rename; None if there is no name. Raises RefusedError if the name is not the user's."""
    document = opened(workspace, params.text_document.uri)
    found = index.symbol_at(document, document.lines.offset(params.position)) if document else None
    if document is None or found is None:
        return None
    symbol, span = found
    refuse_foreign(document, symbol)
    text = document.text[span.start : span.end]
    return types.PrepareRenamePlaceholder(document.lines.span(span), text)


def answer(workspace: Workspace, params: types.RenameParams) -> types.WorkspaceEdit | None:
    """The edits of every file with the name. Raises RefusedError if it is not the user's or would change a meaning."""
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
    """Refuse names of the language, the stdlib and Bridge."""
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
    """Refuse a text that the grammar does not accept as a name."""
    if not _NAME.fullmatch(new):
        raise RefusedError(f"`{new}` is not a name: letters, digits and _, and no digit first")
    if new in RESERVED:
        raise RefusedError(f"`{new}` is a word of expressions and cannot be a name")


def refuse_taken(document: Document, symbol: Symbol, new: str) -> None:
    """Refuse the name of a `let` if anything else has it, because a `let` is readable wherever a name may be."""
    if symbol.kind == "let" and (new in FUNCTIONS or named(new, Scope.of(document.library)) is not None):
        raise RefusedError(f"`{new}` already means something else")


def refuse_changed(
    workspace: Workspace, document: Document, symbol: Symbol, new: str, changes: Mapping[str, list[Edit]]
) -> None:
    """Raise RefusedError if the edited files have a new error, or a name in them changes its meaning."""
    after_of = _Renamed(symbol, new)
    texts = {d.source.name: d.source for d in index.readable(workspace)}
    sources = index.group(workspace, document)
    edited = {n: Source(n, applied(sources[n].source.text, es)) for n, es in changes.items()}
    for before in [*(d.analysis for d in index.readable(workspace)), *index.using(workspace)]:
        if edited.keys() & index.files(before).keys():
            after = _analysed(edited.get(before.source.name, before.source), {**texts, **edited})
            _compare(before, after, after_of)


def _analysed(source: Source, known: Mapping[str, Source]) -> Analysis:
    """The analysis of a text as if the edits had been made in it and in the files that it uses."""

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
    """The meaning of each place after a symbol is renamed to `new`."""

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
        """The new id of what the renamed block contains."""
        head, dot, _ = self.symbol.name.rpartition(".")
        return head + dot + self.new + name[len(self.symbol.name) :]
