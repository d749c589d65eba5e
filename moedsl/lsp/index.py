"""Find symbols over files: the symbol at an offset, its declaration, and every place that names it.

Files in the workspace's folders that no editor has open count too: they may use an open file, or be used by one.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from weakref import WeakKeyDictionary

from attrs import frozen

from moedsl.facts.operators import FUNCTIONS
from moedsl.lang import ast, reader
from moedsl.lang.parse_errors import DECLARATIONS
from moedsl.lang.parser import parse
from moedsl.lang.tokens import Lexeme, lexemes
from moedsl.lsp import analysis, builtin
from moedsl.lsp.document import Analysis, Document
from moedsl.lsp.names import Occurrence, Scope, Symbol, Target, named, occurrences
from moedsl.lsp.workspace import Workspace
from moedsl.rules import library
from moedsl.rules import stdlib as stdlib_files
from moedsl.rules.library import Library
from moedsl.support import resources
from moedsl.support.source import Source, Span, of_stdlib

BUILTIN = ("axis", "given", "fact", "cost", "constant", "function", "word")
"""Kinds that the compiler declares in its Python modules."""


@frozen
class File:
    """The named places of one file, in the order of its text."""

    source: Source
    places: tuple[Occurrence, ...]

    def at(self, offset: int) -> Occurrence | None:
        """The place that contains or touches an offset; of two that touch it, the one that starts there."""
        upto = bisect_right(self.places, offset, key=lambda o: o.span.start)
        touching = (o for o in reversed(self.places[max(0, upto - 2) : upto]) if offset <= o.span.end)
        return next(touching, None)


Files = Mapping[str, File]
_known: WeakKeyDictionary[Analysis, Files] = WeakKeyDictionary()


def files(found: Analysis) -> Files:
    """The file of an analysis and the files that it uses, by name; the stdlib is in `stdlib`."""
    made = _known.get(found)
    if made is None:
        own = {n: s for n, s in found.library.sources.items() if not of_stdlib(n)}
        scope = Scope.of(found.library)
        made = {n: _file(s, scope) for n, s in {**own, found.source.name: found.source}.items()}
        _known[found] = made
    return made


def _file(source: Source, scope: Scope) -> File:
    module, _ = analysis.parse(source)
    return File(source, occurrences(source, module, scope) if module is not None else ())


@cache
def stdlib() -> Files:
    """Every file of the stdlib, except documents."""
    return _kept(analysis.stdlib().sources.values(), stdlib_files.parse)


@cache
def documents() -> Files:
    """The stdlib's documents, which list the rules for a document's claims."""
    return _kept(library.sources(resources.document_files()), parse)


def _kept(sources: Iterable[Source], parse: library.Parse) -> Files:
    scope = Scope.of(analysis.stdlib())
    parsed = ((s, parse(s)[0]) for s in sources)
    return {s.name: File(s, occurrences(s, m, scope)) for s, m in parsed if m is not None}


def symbol_at(document: Document, offset: int) -> tuple[Symbol, Span] | None:
    """The symbol at an offset, also in a statement that does not parse; None if there is none."""
    file = files(document.analysis)[document.source.name]
    place = file.at(offset)
    if place is not None:
        return place.symbol, place.span
    word = word_at(document.text, offset)
    return _by_name(word, document.source.name, document.library) if word is not None else None


def word_at(text: str, offset: int) -> Lexeme | None:
    """The word that contains or touches an offset, outside of strings and comments; none that starts a declaration."""
    start = text.rfind("\n", 0, offset) + 1
    for word in lexemes(text, start):
        if word.start > offset or word.kind == "newline":
            return None
        if word.kind == "word" and offset <= word.end:
            return word if word.text not in DECLARATIONS else None
    return None


def _by_name(word: Lexeme, name: str, known: Library) -> tuple[Symbol, Span] | None:
    """The meaning of a word by its name alone, for a half-written statement."""
    scope, span = Scope.of(known), Span(name, word.start, word.end)
    if word.text in scope.rules:
        dot = word.text.rfind(".") + 1
        return Symbol("rule", scope.rules[word.text]), Span(name, word.start + dot, word.end)
    tables = (
        ("model", scope.models),
        ("hardware", scope.hardware),
        ("profile", scope.profiles),
        ("function", FUNCTIONS),
    )
    kind = next((k for k, names in tables if word.text in names), None)
    symbol = Symbol(kind, word.text) if kind else named(word.text, scope)
    return (symbol, span) if symbol is not None else None


def declarations(document: Document, symbol: Symbol) -> list[Target]:
    """The places that declare a symbol: in a file, in the stdlib, or in the compiler."""
    if symbol.kind == "file":
        source = document.library.sources.get(symbol.name)
        return [Target(source, Span(symbol.name, 0, 0))] if source else []
    if symbol.kind in BUILTIN:
        return [*_stated(document, symbol), *builtin.places(symbol)]
    near = [*files(document.analysis).values()]
    return [*_declared(near, symbol)] or [*_declared(stdlib().values(), symbol)]


def _declared(among: Iterable[File], symbol: Symbol) -> Iterator[Target]:
    return (Target(f.source, o.span) for f in among for o in f.places if o.declares and o.symbol == symbol)


def _stated(document: Document, symbol: Symbol) -> Iterator[Target]:
    """The values of a fact in the models and hardware that the file names."""
    if symbol.kind != "fact":
        return
    known = document.library
    places = files(document.analysis)[document.source.name].places
    for used in dict.fromkeys(o.symbol for o in places if o.symbol.kind in ("model", "hardware")):
        decl = (known.models if used.kind == "model" else known.hardware).get(used.name)
        for fact in decl.facts if decl is not None else ():
            if fact.name.id == symbol.name:
                yield Target(source_of(document, fact.name.span.file), fact.name.span)


def source_of(document: Document, name: str) -> Source:
    """The text of a file that the document's analysis has read."""
    return document.source if name == document.source.name else document.library.sources[name]


def is_stdlib(symbol: Symbol) -> bool:
    """Whether the stdlib declares a symbol."""
    return symbol in _of_stdlib()


@cache
def _of_stdlib() -> frozenset[Symbol]:
    return frozenset(o.symbol for f in stdlib().values() for o in f.places if o.declares)


def everywhere(workspace: Workspace, document: Document, symbol: Symbol) -> list[tuple[Target, Occurrence]]:
    """Every place that names a symbol: in the file and the files connected with it, open or used.

    A symbol of the stdlib or of the language has places in all open files and in the stdlib; an open file of the stdlib
    counts with its open text.
    """
    shared = symbol.kind in BUILTIN or symbol.kind == "field" or is_stdlib(symbol)
    among = everything(workspace) if shared else group(workspace, document)
    kept = {**stdlib(), **documents()} if shared else {}
    found = [*among.values(), *(f for n, f in kept.items() if workspace.path_of(n) not in among)]
    return [(Target(f.source, o.span), o) for f in found for o in f.places if o.symbol == symbol]


def on_disk(workspace: Workspace) -> Iterator[File]:
    """The declarations of files in the workspace's folders that are not open."""
    scope = Scope.of(analysis.stdlib())
    parsed = ((s, parse(s)[0]) for s in closed(workspace))
    return (File(s, occurrences(s, m, scope)) for s, m in parsed if m is not None)


def everything(workspace: Workspace) -> dict[str, File]:
    """Every open file and the files that they use; each file is read once."""
    out: dict[str, File] = {}
    for d in readable(workspace):
        out |= files(d.analysis)
    return out


def group(workspace: Workspace, document: Document) -> dict[str, File]:
    """The files that share names with a document, open or not: what it uses, what uses it, and so on."""
    out = dict(files(document.analysis))
    waiting = [d.analysis for d in readable(workspace) if d.uri != document.uri] + using(workspace)
    while True:
        joined = [a for a in waiting if out.keys() & files(a).keys()]
        if not joined:
            return out
        waiting = [a for a in waiting if a not in joined]
        for a in joined:
            out = {**files(a), **out}


def readable(workspace: Workspace) -> list[Document]:
    """The open files that are not refused."""
    return [d for d in workspace.documents() if not d.refused and isinstance(d.module, ast.Module)]


MOST = 500
"""The most files to read, over all folders."""
MOST_FOLDERS = 2000
"""The depth of folders to read below each of the workspace's."""
_LEFT_OUT = ("node_modules", "__pycache__")


def closed(workspace: Workspace) -> Iterator[Source]:
    """The names of the readable files, folder by folder in alphabetical order, without hidden folders."""
    opened = {e.name for e in workspace.entries.values()}
    for i, name in enumerate(_names(workspace.roots)):
        if i >= MOST:
            return
        source = None if name in opened else reader.read(name)[0]
        if source is not None:
            yield source


def _names(roots: tuple[str, ...]) -> Iterator[str]:
    for root in roots:
        for folder, inner, files in islice(os.walk(root), MOST_FOLDERS):
            inner[:] = sorted(d for d in inner if not d.startswith(".") and d not in _LEFT_OUT)
            yield from (os.path.join(folder, f) for f in sorted(files) if f.endswith(".moe"))


def using(workspace: Workspace) -> list[Analysis]:
    """The analyses of those files that use another file, with the editors' texts of open files."""
    opened = {e.name: e.lines.text for e in workspace.entries.values()}

    def read(name: str) -> reader.Read:
        return reader.from_text(opened[name], name) if name in opened else reader.read(name)

    return [analysis.analyse(s, read) for s in closed(workspace) if 'use "' in s.text]
