"""Cache parsed modules on disk by the content of their source, so that most starts do not parse."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator
from contextlib import contextmanager

from moedsl.lang import ast
from moedsl.support import disk_cache
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.packed import Packed
from moedsl.support.source import Source

Parsed = tuple[ast.Module | None, tuple[Diagnostic, ...]]
TOGETHER = "together.asts"
MOST_TOGETHER = 400
"""The most modules of the one entry; the oldest go."""


def cached_parse(source: Source) -> Parsed:
    """Parse a source like `parser.parse`, from the cache if it was parsed before without an error.

    The key is the text and the name, because spans contain the name. A damaged or foreign file is ignored.
    """
    name = key(source)
    module = disk_cache.load_value(name)
    if isinstance(module, ast.Module):
        return module, ()
    parsed, diagnostics = _parse(source)
    if parsed is not None and not diagnostics:
        disk_cache.save_value(name, parsed)
    return parsed, diagnostics


@contextmanager
def together() -> Generator[Callable[[Source], Parsed]]:
    """Parse many files like `cached_parse`, but keep them in one entry, which is read and written once."""
    found = disk_cache.load_value(TOGETHER)
    kept: Packed[ast.Module] = found if isinstance(found, Packed) else Packed({})
    made: dict[str, ast.Module] = {}

    def parse(source: Source) -> Parsed:
        name = key(source)
        if name in kept:
            return kept[name], ()
        parsed, diagnostics = _parse(source)
        if parsed is not None and not diagnostics:
            made[name] = parsed
        return parsed, diagnostics

    yield parse
    if made:
        disk_cache.save_value(TOGETHER, kept.with_more(made, MOST_TOGETHER))


def _parse(source: Source) -> Parsed:
    from moedsl.lang.parser import parse

    return parse(source)


def key(source: Source) -> str:
    """The name of a source's entry."""
    digest = hashlib.sha256(source.name.encode("utf-8", "surrogatepass") + b"\0")
    digest.update(source.text.encode("utf-8", "surrogatepass"))
    return f"{digest.hexdigest()[:40]}.ast"
