"""Analyse a text with the compiler's own stages: reading, parsing, `use`, checking."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, lru_cache

from attrs import evolve

from moedsl import compiler
from moedsl.lang import ast, parser, reader
from moedsl.lsp.document import Analysis
from moedsl.rules import library
from moedsl.rules import stdlib as stdlib_files
from moedsl.rules.library import Library
from moedsl.support import resources
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.source import Source

Read = Callable[[str], reader.Read]


@cache
def stdlib() -> Library:
    """The stdlib, loaded once, with the facts of its models; nothing is added to it."""
    loaded = compiler.load_stdlib()
    for name in loaded.models:
        loaded.model(name)
    return loaded


@lru_cache(maxsize=4)
def without(name: str) -> Library:
    """The stdlib without one of its files, for editing that file."""
    others = [p for p in resources.stdlib_files() if str(p) != name]
    return library.load(others, stdlib_files.parse)


def fresh(name: str) -> Library:
    """The library to which a file of that name is added."""
    base = without(name) if name.startswith(f"{resources.stdlib_dir()}{os.sep}") else stdlib()
    return evolve(
        base,
        models={**base.models},
        hardware={**base.hardware},
        clusters={**base.clusters},
        calibrations={**base.calibrations},
        replaced={**base.replaced},
        documents={**base.documents},
        profiles={**base.profiles},
        own=[],
        own_rules=[*base.own_rules],
        sources={**base.sources},
        diagnostics=[*base.diagnostics],
        made={**base.made},
    )


@lru_cache(maxsize=32)
def parse(source: Source) -> tuple[ast.Module | None, tuple[Diagnostic, ...]]:
    """Parse a text like `parser.parse`, with a cache for used files and for files whose used files change."""
    return parser.parse(source)


def analyse(source: Source, read: Read) -> Analysis:
    """Run the stages up to the check. `read` gives the text of a used file by its path, from an editor or the disk."""
    reads: set[str] = set()

    def reading(name: str) -> reader.Read:
        reads.add(name)
        return read(name)

    result = compiler.Result(source, library=fresh(source.name))
    result.module, found = parse(source)
    if result.module is not None:
        library.use(result.library, source, result.module, parse, reading)
    if result.module is not None and not result.module.items and not found:
        _, empty = reader.from_text(source.text, source.name)
        return Analysis(source, result.module, result.library, (), empty, frozenset(reads))
    result.diagnostics.extend(found)
    compiler.advance(result, ("check",))
    if declares_only(result.module):
        result.diagnostics = [d for d in result.diagnostics if d.id not in compiler.ABSENT]
    return Analysis(source, result.module, result.library, result.programs, tuple(result.diagnostics), frozenset(reads))


def declares_only(module: ast.Module | None) -> bool:
    """Whether a file is only for `use`: it declares something and has no statement of a run."""
    return module is not None and bool(module.items) and module.run is None
