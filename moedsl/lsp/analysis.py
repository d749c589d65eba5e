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
_TABLES = (
    "models", "hardware", "clusters", "calibrations", "replaced", "documents", "profiles", "sources", "made",
)  # fmt: skip
"""The fields of `Library` to which a file's declarations are added."""


@cache
def stdlib() -> Library:
    """Return the stdlib, loaded once, with the facts of its models; callers must not add to it."""
    loaded = compiler.load_stdlib()
    for name in loaded.models:
        loaded.model(name)
    return loaded


@lru_cache(maxsize=4)
def without(name: str) -> Library:
    """Return the stdlib without the file that is being edited."""
    others = [p for p in resources.stdlib_files() if str(p) != name]
    return library.load(others, stdlib_files.parse)


def fresh(name: str) -> Library:
    """Return a new library, to which the file with that name can be added."""
    base = without(name) if name.startswith(f"{resources.stdlib_dir()}{os.sep}") else stdlib()
    tables = {name: {**getattr(base, name)} for name in _TABLES}
    return evolve(base, **tables, own=[], unused=[], own_rules=[*base.own_rules], diagnostics=[*base.diagnostics])


@lru_cache(maxsize=32)
def parse(source: Source) -> tuple[ast.Module | None, tuple[Diagnostic, ...]]:
    """Parse a text like `parser.parse`, with a cache: a file is parsed again when a file that it uses changes."""
    return parser.parse(source)


def analyse(source: Source, read: Read) -> Analysis:
    """Run the stages up to the check; `read` returns a used file's text by path, from an editor or the disk."""
    reads: set[str] = set()

    def reading(name: str) -> reader.Read:
        reads.add(name)
        return read(name)

    result = compiler.Result(source, library=fresh(source.name), asks="diagnostics")
    module, found = parse(source)
    result.module = module
    if module is not None:
        library.use(result.library, source, module, parse, reading)
        if not module.items and not found:
            _, empty = reader.from_text(source.text, source.name)
            return Analysis(source, module, result.library, (), empty, frozenset(reads))
    result.diagnostics.extend(found)
    compiler.advance(result, ("check",))
    return Analysis(source, module, result.library, result.programs, tuple(result.diagnostics), frozenset(reads))
