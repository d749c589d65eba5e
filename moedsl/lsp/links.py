"""Where a diagnostic, a rule or a declaration is explained: links into the files that moedsl is installed with."""

from __future__ import annotations

from moedsl.diagnostics import pages
from moedsl.lsp.document import Document
from moedsl.support import resources


def page_of(id: str) -> str | None:
    """The page of a diagnostic as a link to its heading; None for what has none, such as a rule."""
    return f"{pages.FILE.as_uri()}#L{page.line}" if (page := pages.pages().get(id)) else None


def rule_at(id: str, document: Document) -> str | None:
    """A rule of the stdlib as a link to the line that declares it."""
    kept = document.library.collected if id.startswith("std.") and not document.refused else None
    found = next((r for r in kept.rules if r.id == id), None) if kept else None
    if found is None:
        return None
    line, _ = document.library.sources[found.span.file].position(found.span.start)
    return f"{(resources.stdlib_dir().parent / found.span.file).as_uri()}#L{line}"
