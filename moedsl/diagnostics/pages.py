"""The page of every diagnostic: what it means, why it is refused, what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

_FILE = Path(__file__).with_name("pages.md")


class _Pages(Mapping[str, str]):
    """Reads `pages.md` when a page is first asked for: a heading ``## ID`` and the text under it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pages: dict[str, str] | None = None

    def _read(self) -> dict[str, str]:
        if self._pages is None:
            _, *parts = re.split(r"^## ", self._path.read_text(encoding="utf-8"), flags=re.MULTILINE)
            split = (part.partition("\n") for part in parts)
            self._pages = {head.strip(): text.strip() for head, _, text in split}
        return self._pages

    def __getitem__(self, id: str) -> str:
        return self._read()[id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())


PAGES: Mapping[str, str] = _Pages(_FILE)
"""Diagnostic id to its page, several lines of plain text; an indented line is an example of the language."""
