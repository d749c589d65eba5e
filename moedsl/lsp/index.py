"""Find symbols across files: the symbol at an offset, its declaration, and every place that names it.

Files in the workspace's folders that are not open are included, because they may use an open file or be used by one. A
name of the language is declared in the compiler's Python source, which is searched for it.
"""

from __future__ import annotations

import gc
import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from weakref import WeakKeyDictionary

from attrs import frozen

from moedsl import compiler
from moedsl.facts.operators import FUNCTIONS
from moedsl.lang import ast, reader
from moedsl.lang.parse_errors import DECLARATIONS
from moedsl.lang.parser import parse
from moedsl.lang.tokens import Lexeme, lexemes
from moedsl.lsp import analysis
from moedsl.lsp.document import Analysis, Document
from moedsl.lsp.names import Occurrence, Scope, Symbol, Target, named, occurrences
from moedsl.lsp.workspace import Workspace
from moedsl.rules import library
from moedsl.rules import stdlib as stdlib_files
from moedsl.support import resources
from moedsl.support.source import Source, Span
from moedsl.support.source import of_stdlib as is_stdlib

BUILTIN = ("axis", "given", "fact", "cost", "constant", "function", "word")
"""The kinds of symbols that the compiler declares in its Python modules."""


@frozen
class File:
    """One file with its named places, in text order."""

    source: Source
    places: tuple[Occurrence, ...]

    def at(self, offset: int) -> Occurrence | None:
        """Return the place that contains or touches an offset; if two touch it, the one that starts there."""
        upto = bisect_right(self.places, offset, key=lambda o: o.span.start)
        touching = (o for o in reversed(self.places[max(0, upto - 2) : upto]) if offset <= o.span.end)
        return next(touching, None)


Files = Mapping[str, File]
_known: WeakKeyDictionary[Analysis, Files] = WeakKeyDictionary()


def files(found: Analysis) -> Files:
    """Return the analysed file and the files that it uses, by name, except those of the stdlib (see `stdlib`)."""
    made = _known.get(found)
    if made is None:
        own = {n: s for n, s in found.library.sources.items() if not is_stdlib(n)}
        scope = Scope.of(found.library)
        parsed = ((n, s, analysis.parse(s)[0]) for n, s in {**own, found.source.name: found.source}.items())
        made = {n: File(s, occurrences(s, module, scope) if module else ()) for n, s, module in parsed}
        _known[found] = made
    return made


@cache
def stdlib() -> Files:
    """Return every file of the stdlib by name, except documents."""
    return {f.source.name: f for f in _parsed(analysis.stdlib().sources.values(), stdlib_files.parse)}


@cache
def documents() -> Files:
    """Return the stdlib's documents by name; a document lists the rules for each of its claims."""
    return {f.source.name: f for f in _parsed(library.sources(resources.document_files()), parse)}


def _parsed(sources: Iterable[Source], parse: library.Parse) -> Iterator[File]:
    scope = Scope.of(analysis.stdlib())
    parsed = ((s, parse(s)[0]) for s in sources)
    return (File(s, occurrences(s, m, scope)) for s, m in parsed if m is not None)


def symbol_at(document: Document, offset: int) -> tuple[Symbol, Span] | None:
    """Return the symbol at an offset with its span, even in a statement that does not parse; None if there is none."""
    place = files(document.analysis)[document.source.name].at(offset)
    if place is not None:
        return place.symbol, place.span
    word = word_at(document.text, offset)
    if word is None:
        return None
    # in a half-written statement, a word's meaning follows from its name alone
    scope, span = Scope.of(document.library), Span(document.source.name, word.start, word.end)
    if word.text in scope.rules:
        dot = word.text.rfind(".") + 1
        return Symbol("rule", scope.rules[word.text]), Span(span.file, word.start + dot, word.end)
    tables = {"model": scope.models, "hardware": scope.hardware, "profile": scope.profiles, "function": FUNCTIONS}
    kind = next((k for k, names in tables.items() if word.text in names), None)
    symbol = Symbol(kind, word.text) if kind else named(word.text, scope)
    return (symbol, span) if symbol is not None else None


def word_at(text: str, offset: int) -> Lexeme | None:
    """Return the word that contains or touches an offset, outside of strings and comments.

    None for a keyword that starts a declaration.
    """
    start = text.rfind("\n", 0, offset) + 1
    for word in lexemes(text, start):
        if word.start > offset or word.kind == "newline":
            return None
        if word.kind == "word" and offset <= word.end:
            return word if word.text not in DECLARATIONS else None
    return None


def declarations(document: Document, symbol: Symbol) -> list[Target]:
    """Return the places that declare a symbol: in a file, in the stdlib, or in the compiler.

    For a fact, these include its values in the models and hardware that the file names.
    """
    known, own = document.library, files(document.analysis)
    if symbol.kind == "file":
        source = known.sources.get(symbol.name)
        return [Target(source, Span(symbol.name, 0, 0))] if source else []
    if symbol.kind not in BUILTIN:
        for among in (own, stdlib()):
            found = [
                Target(f.source, o.span) for f in among.values() for o in f.places if o.declares and o.symbol == symbol
            ]
            if found:
                return found
        return []
    used = dict.fromkeys(o.symbol for o in own[document.source.name].places) if symbol.kind == "fact" else ()
    tables = {"model": known.models, "hardware": known.hardware}
    declared = [tables[s.kind].get(s.name) for s in used if s.kind in tables]
    facts = [f.name.span for d in declared if d is not None for f in d.facts if f.name.id == symbol.name]
    sources = {**known.sources, document.source.name: document.source}
    return [*(Target(sources[span.file], span) for span in facts), *_places(symbol)]


@cache
def of_stdlib() -> frozenset[Symbol]:
    """Return the symbols that the stdlib declares."""
    return frozenset(o.symbol for f in stdlib().values() for o in f.places if o.declares)


def everywhere(workspace: Workspace, document: Document, symbol: Symbol) -> list[tuple[Target, Occurrence]]:
    """Return every place that names a symbol: in the file and the files connected with it, open or used.

    A symbol of the stdlib or of the language is searched in all open files and the stdlib; for an open file of the
    stdlib, the editor's text is used.
    """
    shared = symbol.kind in BUILTIN or symbol.kind == "field" or symbol in of_stdlib()
    among = everything(workspace) if shared else group(workspace, document)
    kept = {**stdlib(), **documents()} if shared else {}
    found = [*among.values(), *(f for n, f in kept.items() if workspace.path_of(n) not in among)]
    return [(Target(f.source, o.span), o) for f in found for o in f.places if o.symbol == symbol]


def on_disk(workspace: Workspace) -> Iterator[File]:
    """Yield the files in the workspace's folders that are not open, with their named places."""
    return _parsed(closed(workspace), parse)


def everything(workspace: Workspace) -> dict[str, File]:
    """Return every open file and the files that they use, by name."""
    out: dict[str, File] = {}
    for d in readable(workspace):
        out |= files(d.analysis)
    return out


def group(workspace: Workspace, document: Document) -> dict[str, File]:
    """Return the files that share names with a document, open or not: those it uses, those that use it, and so on."""
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
    """Return the open files that are not refused."""
    return [d for d in workspace.documents.values() if not d.refused and isinstance(d.module, ast.Module)]


MOST = 500
"""The most files to read, over all folders."""
MOST_FOLDERS = 2000
"""The most folders to read in each folder of the workspace."""
_LEFT_OUT = ("node_modules", "__pycache__")


def closed(workspace: Workspace) -> Iterator[Source]:
    """Yield the readable .moe files that are not open, by folder in alphabetical order, without hidden folders."""
    opened = {d.source.name for d in workspace.documents.values()}
    walked = (folder for root in workspace.roots for folder in islice(os.walk(root), MOST_FOLDERS))
    left = MOST
    for folder, inner, names in walked:
        if not left:
            return
        inner[:] = sorted(d for d in inner if not d.startswith(".") and d not in _LEFT_OUT)
        for name in [os.path.join(folder, n) for n in sorted(names) if n.endswith(".moe")][:left]:
            left -= 1
            source = None if name in opened else reader.read(name)[0]
            if source is not None:
                yield source


def using(workspace: Workspace) -> list[Analysis]:
    """Return the analyses of the files on disk that use another file; for open files, the editor's text is used."""
    return [analysis.analyse(s, workspace.read) for s in closed(workspace) if 'use "' in s.text]


def warm_up() -> None:
    """Prepare the first answers while the client shows the file.

    This loads the grammar, the stdlib with its names, and the solver.
    """
    compiler.compile_source(Source("warm-up.moe", WARM_UP))
    stdlib()
    gc.collect()
    gc.freeze()  # later collections skip what is loaded now


WARM_UP = "qwen3_30b_a3b; h100 x 8; pin tp=1 pp=1\n"


_MODULES = {
    "axis": ("facts/axes",),
    "word": ("facts/axes", "facts/symbols", "rules/check/check"),
    "given": ("facts/symbols",),
    "cost": ("facts/symbols",),
    "function": ("facts/operators",),
    "fact": ("facts/facts", "facts/symbols"),
    "constant": ("facts/calibration",),
}
"""The modules that declare the names of each kind, in search order."""


def _places(symbol: Symbol) -> Iterator[Target]:
    """Yield the place that declares a name of the language: a class's field or a string; nothing if there is none."""
    class_, _, name = symbol.name.rpartition(".")
    class_ = class_.capitalize() or r"\w+"
    field = rf"(?ms)^class {class_}\b(?:(?!^class ).)*?^    ({re.escape(name)}):"
    string = rf'(?<![\w"])"({re.escape(name)})"(?!")'
    for module in _MODULES[symbol.kind]:
        path = resources.PACKAGE / f"{module}.py"
        source = Source(str(path), path.read_text(encoding="utf-8"))
        pattern = field if module in ("facts/facts", "facts/calibration") else string
        found = re.search(pattern, source.text)
        if found is not None:
            yield Target(source, Span(source.name, *found.span(1)))
            return
