"""Cache parsed modules on disk by the content of their source, so that most starts neither parse nor import Lark."""

from __future__ import annotations

import gc
import hashlib
import pickle
from typing import Any

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
    module = _load(name)
    if module is not None:
        return module, ()
    from moedsl.syntax.parser import parse

    parsed, diagnostics = parse(source)
    if parsed is not None and not diagnostics:
        disk_cache.save(name, pickle.dumps(parsed, pickle.HIGHEST_PROTOCOL))
    return parsed, diagnostics


def key(source: Source) -> str:
    """The name of a source's entry."""
    digest = hashlib.sha256(source.name.encode("utf-8", "surrogatepass") + b"\0")
    digest.update(source.text.encode("utf-8", "surrogatepass"))
    return f"{digest.hexdigest()[:40]}.ast"


def _load(name: str) -> ast.Module | None:
    module = loaded(name)
    return module if isinstance(module, ast.Module) else None


def loaded(name: str) -> Any:
    """Unpickle the entry of a name; None if there is none or it cannot be read."""
    body = disk_cache.load(name)
    if body is None:
        return None
    collecting = gc.isenabled()
    gc.disable()
    try:
        return pickle.loads(body)
    except (pickle.UnpicklingError, AttributeError, ImportError, EOFError, IndexError, TypeError, ValueError):
        return None
    finally:
        if collecting:
            gc.enable()
