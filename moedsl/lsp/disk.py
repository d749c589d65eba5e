"""Read .moe files in the workspace's folders that no editor has open: they may use an open file, or be used by one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice

from moedsl.lang import reader
from moedsl.lsp import analysis
from moedsl.lsp.document import Analysis
from moedsl.lsp.workspace import Workspace
from moedsl.support.source import Source

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
