"""Cache parsed modules on disk by the content of their source, so that most starts neither parse nor import Lark."""

from __future__ import annotations

import hashlib

from moedsl.diagnostics.model import Diagnostic
from moedsl.diagnostics.source import Source
from moedsl.support import disk_cache
from moedsl.syntax import ast

Parsed = tuple[ast.Module | None, tuple[Diagnostic, ...]]


def cached_parse(source: Source) -> Parsed:
    """Parse a source like `parser.parse`, from the cache if it was parsed before without an error.

    The key is the text and the name, because spans contain the name. A damaged or foreign file is ignored.
    """
    name = key(source)
    module = disk_cache.load_value(name)
    if isinstance(module, ast.Module):
        return module, ()
    from moedsl.syntax.parser import parse

    parsed, diagnostics = parse(source)
    if parsed is not None and not diagnostics:
        disk_cache.save_value(name, parsed)
    return parsed, diagnostics


def key(source: Source) -> str:
    """The name of a source's entry."""
    digest = hashlib.sha256(source.name.encode("utf-8", "surrogatepass") + b"\0")
    digest.update(source.text.encode("utf-8", "surrogatepass"))
    return f"{digest.hexdigest()[:40]}.ast"
