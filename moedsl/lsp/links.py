"""Where a diagnostic, a rule or a declaration is explained: links into the files that moedsl is installed with."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from moedsl import paths


@cache
def page_of(id: str) -> str | None:
    """The page of a diagnostic as a link to its heading; None for what has none, such as a rule."""
    file = paths.PACKAGE / "data" / "pages.md"
    return f"{file.as_uri()}#L{line}" if (line := _headings(file).get(id)) else None


@cache
def _headings(file: Path) -> dict[str, int]:
    """The line, from 1, of each heading ``## ID``."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return {text[3:].strip(): i for i, text in enumerate(lines, 1) if text.startswith("## ")}
