"""Text -> Analysis by the compiler's own stages: reading, parsing, `use`, checking."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache

from attrs import evolve

from moedsl import ast, compiler, library, parser, reader
from moedsl.diagnostics import Diagnostic
from moedsl.library import Library
from moedsl.lsp.document import Analysis
from moedsl.source import Source

Read = Callable[[str], reader.Read]


@cache
def stdlib() -> Library:
    """The stdlib, loaded once; nobody adds to it."""
    return compiler.load_stdlib()


def fresh() -> Library:
    """A library to add a file to."""
    base = stdlib()
    return evolve(
        base,
        models={**base.models},
        hardware={**base.hardware},
        clusters={**base.clusters},
        calibrations={**base.calibrations},
        documents={**base.documents},
        profiles={**base.profiles},
        own_rules=[*base.own_rules],
        sources={**base.sources},
        diagnostics=[*base.diagnostics],
    )


@lru_cache(maxsize=32)
def parse(source: Source) -> tuple[ast.Module | None, tuple[Diagnostic, ...]]:
    """`parser.parse`, with the last texts kept: those of used files, and of a file whose used files change."""
    return parser.parse(source)


def analyse(source: Source, read: Read) -> Analysis:
    """The stages up to the check. `read` gives the text of a used file by its path: an editor's, or the disk's."""
    reads: set[str] = set()

    def reading(name: str) -> reader.Read:
        reads.add(name)
        return read(name)

    result = compiler.Result(source, library=fresh())
    _, empty = reader.from_text(source.text, source.name)
    result.module, found = parse(source)
    if result.module is not None:
        library.use(result.library, source, result.module, parse, reading)
    if empty and empty[0].id == "parse.empty":
        return Analysis(source, result.module, result.library, (), empty, frozenset(reads))
    result.diagnostics.extend(found)
    compiler.advance(result, ("check",))
    return Analysis(source, result.module, result.library, result.programs, tuple(result.diagnostics), frozenset(reads))


def warm_up() -> None:
    """Loads what the first edit needs, the grammar and the stdlib, and then what the first plan needs."""
    source = Source("warm-up.moe", "qwen3_30b_a3b; h100 x 8; pin tp=1 pp=1\n")
    parse(source)
    stdlib()
    compiler.compile_source(source)
