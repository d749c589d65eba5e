"""Go to the definition of a name, find and rename its places, and link to files, web addresses and cited lines.

A rename edits all of the user's files that contain the name, but only if every other name keeps its meaning. The
compiler decides this: it checks the edited texts, and every name must mean the same as before.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from attrs import evolve
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from moedsl.facts.operators import FUNCTIONS
from moedsl.lang import ast, reader
from moedsl.lang.parse_errors import RESERVED
from moedsl.lang.text_edits import Edit, applied
from moedsl.lang.tokens import lexemes
from moedsl.lsp import analysis, index
from moedsl.lsp.document import Document
from moedsl.lsp.names import Scope, Symbol, Target, named
from moedsl.lsp.workspace import Workspace
from moedsl.rules.library import used_name
from moedsl.support.source import Source, Span


def definition(workspace: Workspace, params: types.DefinitionParams) -> list[types.Location] | None:
    """Return the places that declare the name at a position; None if there is no name."""
    found = _named_at(workspace, params)
    return [location(workspace, p) for p in index.declarations(found[0], found[1])] if found else None


def references(workspace: Workspace, params: types.ReferenceParams) -> list[types.Location] | None:
    """Return the places that name the symbol at a position, and its declaration if requested."""
    found = _named_at(workspace, params)
    if found is None:
        return None
    document, symbol, _ = found
    places = [place for place, o in index.everywhere(workspace, document, symbol) if not o.declares]
    declared = index.declarations(document, symbol) if params.context.include_declaration else []
    return [location(workspace, p) for p in (*declared, *places)]


def highlight(document: Document, params: types.DocumentHighlightParams) -> list[types.DocumentHighlight] | None:
    """Return the places in this file that name the symbol at a position; a declaration counts as a write."""
    found = index.symbol_at(document, document.lines.offset(params.position))
    if found is None:
        return None
    kinds = {True: types.DocumentHighlightKind.Write, False: types.DocumentHighlightKind.Read}
    places = index.files(document.analysis)[document.source.name].places
    same = (o for o in places if o.symbol == found[0])
    return [types.DocumentHighlight(document.lines.span(o.span), kinds[o.declares]) for o in same]


def location(workspace: Workspace, place: Target) -> types.Location:
    """Convert a place to the client's positions."""
    uri = workspace.uri_of(place.source.name)
    document = workspace.document(uri)
    lines = document.lines if document is not None else workspace.lines_of(place.source)
    return types.Location(uri, lines.span(place.span))


def _named_at(workspace: Workspace, params: Any) -> tuple[Document, Symbol, Span] | None:
    """Return the open file of a request, the symbol at the position, and the span of the name there."""
    document = workspace.readable(params.text_document.uri)
    found = index.symbol_at(document, document.lines.offset(params.position)) if document else None
    return (document, *found) if document and found else None


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


def prepare_rename(workspace: Workspace, params: types.PrepareRenameParams) -> types.PrepareRenamePlaceholder | None:
    """Return the range and the text to rename; None if there is no name.

    Raises RefusedError if the name is not the user's.
    """
    found = _named_at(workspace, params)
    if found is None:
        return None
    document, symbol, span = found
    refuse_foreign(document, symbol)
    return types.PrepareRenamePlaceholder(document.lines.span(span), document.text[span.start : span.end])


def rename(workspace: Workspace, params: types.RenameParams) -> types.WorkspaceEdit | None:
    """Return the edits of every file that contains the name; None if there is no name at the position.

    Raises RefusedError if the name is not the user's or the new name would change a meaning.
    """
    found = _named_at(workspace, params)
    if found is None:
        return None
    document, symbol, _ = found
    new = params.new_name.strip()
    refuse_foreign(document, symbol)
    if not _NAME.fullmatch(new):
        raise RefusedError(f"`{new}` is not a name: letters, digits and _, and no digit first")
    if new in RESERVED:
        raise RefusedError(f"`{new}` is a word of expressions and cannot be a name")
    # a `let` is readable wherever a name may be
    if symbol.kind == "let" and (new in FUNCTIONS or named(new, Scope.of(document.library)) is not None):
        raise RefusedError(f"`{new}` already means something else")
    changes: dict[str, list[Edit]] = {}
    for place, _ in index.everywhere(workspace, document, symbol):
        changes.setdefault(place.source.name, []).append(Edit(place.span, new))
    refuse_changed(workspace, document, symbol, new, changes)
    return workspace.edit(changes)


def refuse_foreign(document: Document, symbol: Symbol) -> None:
    """Raise RefusedError for names of the language, the stdlib and Bridge."""
    name = symbol.name.rpartition(".")[2]
    if symbol.kind in _WHY:
        raise RefusedError(f"`{symbol.name}` {_WHY[symbol.kind]}")
    if symbol.kind not in OWN:
        raise RefusedError(f"`{name}` is a keyword")
    if symbol in index.of_stdlib():
        raise RefusedError(f"`{name}` is declared by the stdlib, which cannot be edited here")
    if not index.declarations(document, symbol):
        raise RefusedError(f"no readable file declares `{name}`")


def refuse_changed(
    workspace: Workspace, document: Document, old: Symbol, new: str, changes: Mapping[str, list[Edit]]
) -> None:
    """Raise RefusedError if the edited files have a new error, or a name in them changes its meaning."""
    sources = index.group(workspace, document)
    edited = {n: Source(n, applied(sources[n].source.text, es)) for n, es in changes.items()}

    def read(name: str) -> reader.Read:
        return reader.from_text(edited[name].text, name) if name in edited else workspace.read(name)

    for before in [*(d.analysis for d in index.readable(workspace)), *index.using(workspace)]:
        if not edited.keys() & index.files(before).keys():
            continue
        after = analysis.analyse(edited.get(before.source.name, before.source), read)
        errors = Counter(d.id for d in after.diagnostics) - Counter(d.id for d in before.diagnostics)
        wrong = next((d for d in after.diagnostics if d.id in errors), None)
        if wrong is not None:
            raise RefusedError(f"`{new}` cannot be the name: {wrong.message}")
        for name, file in index.files(before).items():
            expected = [(renamed(o.symbol, old, new), o.declares) for o in file.places]
            if expected != [(o.symbol, o.declares) for o in index.files(after)[name].places]:
                raise RefusedError(f"`{new}` already means something else here")


def renamed(s: Symbol, old: Symbol, new: str) -> Symbol:
    """Return a symbol after `old` is renamed: it changes if it is `old`, or inside the renamed block or run."""
    in_block = old.kind == "block" and s.kind == "rule"
    in_run = old.kind == "run" and s.kind == "wish" and s.file == old.file
    if s == old or ((in_block or in_run) and s.name.startswith(old.name + ".")):
        head, dot, _ = old.name.rpartition(".")
        return evolve(s, name=head + dot + new + s.name[len(old.name) :])
    return s


PACKAGES = {
    "core": ("megatron-core", "megatron/core"),
    "bridge": ("megatron-bridge", "megatron/bridge"),
    "training": ("megatron-core", "megatron/training"),
    "te": ("transformer-engine", "transformer_engine"),
}
"""The package to which `cite KIND` refers, and its folder in which cited paths start."""
_URL = re.compile(r"https?://[^\s\"'<>\\)]+[^\s\"'<>\\).,;:]")
_LINE = re.compile(r"(?P<path>[\w./-]+\.\w+):(?P<line>[0-9]+)")


def links(workspace: Workspace, params: types.DocumentLinkParams) -> list[types.DocumentLink] | None:
    """Return every link of a file, in no order: web addresses in strings and comments, files of `use`, cited lines."""
    document = workspace.readable(params.text_document.uri)
    if document is None:
        return None
    out: list[types.DocumentLink] = []
    for word in lexemes(document.text):
        for match in _URL.finditer(word.text) if word.kind in ("string", "comment") else ():
            place = document.lines.range(word.start + match.start(), word.start + match.end())
            out.append(types.DocumentLink(place, match.group()))
    for item in document.module.items if document.module is not None else ():
        if isinstance(item, ast.UseDecl):
            inner = document.lines.range(item.path.span.start + 1, item.path.span.end - 1)
            out.append(types.DocumentLink(inner, workspace.uri_of(used_name(document.source, item))))
    for cite in (n for n in ast.walk(document.module) if isinstance(n, ast.Cite)):
        # ``cite core "parallel_state.py:822"`` links to the line of the installed file
        match = _LINE.search(cite.where.value)
        file = installed(cite.kind.id, match["path"]) if match else None
        if match and file:
            start = cite.where.span.start + 1 + match.start()
            place = document.lines.range(start, start + len(match.group()))
            out.append(types.DocumentLink(place, f"{file.as_uri()}#L{match['line']}"))
    return out


@cache
def installed(kind: str, path: str) -> Path | None:
    """Return the path of a file that a rule cites; None if its package is not installed with moedsl, or lacks the file.

    The package is not imported.
    """
    package, folder = PACKAGES.get(kind, ("", ""))
    if not package:
        return None
    try:
        found = Path(str(distribution(package).locate_file(f"{folder}/{path}")))
    except PackageNotFoundError:
        return None
    return found if found.is_file() else None
