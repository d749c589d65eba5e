"""Link the files of `use`, web addresses, and the lines of NVIDIA's code that rules cite.

Code is linked if its package is installed with moedsl; the package is not imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from lsprotocol import types

from moedsl.lang import ast
from moedsl.lang.tokens import lexemes
from moedsl.lsp.document import Document
from moedsl.lsp.workspace import Workspace
from moedsl.rules.library import used_name

PACKAGES = {
    "core": ("megatron-core", "megatron/core"),
    "bridge": ("megatron-bridge", "megatron/bridge"),
    "training": ("megatron-core", "megatron/training"),
    "te": ("transformer-engine", "transformer_engine"),
}
"""The package of `cite KIND`, and the folder in it at which paths start."""
_URL = re.compile(r"https?://[^\s\"'<>\\)]+[^\s\"'<>\\).,;:]")
_LINE = re.compile(r"(?P<path>[\w./-]+\.\w+):(?P<line>[0-9]+)")


def answer(workspace: Workspace, params: types.DocumentLinkParams) -> list[types.DocumentLink] | None:
    """Every link of a file, in no order."""
    document = workspace.document(params.text_document.uri)
    if document is None or document.refused:
        return None
    return [*_urls(document), *_used(workspace, document), *_cited(document)]


def _urls(document: Document) -> Iterator[types.DocumentLink]:
    """Links of web addresses in strings and comments."""
    for word in lexemes(document.text):
        for match in _URL.finditer(word.text) if word.kind in ("string", "comment") else ():
            range_ = document.lines.range(word.start + match.start(), word.start + match.end())
            yield types.DocumentLink(range_, match.group())


def _used(workspace: Workspace, document: Document) -> Iterator[types.DocumentLink]:
    for item in document.module.items if document.module is not None else ():
        if isinstance(item, ast.UseDecl):
            inner = document.lines.range(item.path.span.start + 1, item.path.span.end - 1)
            yield types.DocumentLink(inner, workspace.uri_of(used_name(document.source, item)))


def _cited(document: Document) -> Iterator[types.DocumentLink]:
    """Link ``cite core "parallel_state.py:822"`` to the line of the installed file."""
    for node in ast.walk(document.module):
        if not isinstance(node, ast.Cite):
            continue
        match = _LINE.search(node.where.value)
        file = _file(node.kind.id, match["path"]) if match else None
        if match and file:
            start = node.where.span.start + 1 + match.start()
            range_ = document.lines.range(start, start + len(match.group()))
            yield types.DocumentLink(range_, f"{file.as_uri()}#L{match['line']}")


@cache
def _file(kind: str, path: str) -> Path | None:
    """The path of an installed file; None if the package or the file is missing."""
    package, folder = PACKAGES.get(kind, ("", ""))
    if not package:
        return None
    try:
        found = Path(str(distribution(package).locate_file(f"{folder}/{path}")))
    except PackageNotFoundError:
        return None
    return found if found.is_file() else None
