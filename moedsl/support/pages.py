"""Read `pages.md`, which declares each diagnostic once: its id, its severity and its page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from attrs import frozen

FILE = Path(__file__).with_name("pages.md")
_HEADING = re.compile(r"## (\S+) \((.+)\)")


@frozen
class Page:
    """The page of a diagnostic: its meaning, why it is refused, what to write instead."""

    severities: tuple[str, ...]
    """One severity, or several if it depends on the case."""
    line: int
    """The line of the heading in `pages.md`, from 1."""
    text: str
    """Several lines of plain text; an indented line is an example of the language."""


@cache
def pages() -> Mapping[str, Page]:
    """Read the page of each id under its heading ``## ID (SEVERITY)``, when the first diagnostic is made."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("## ")]
    out: dict[str, Page] = {}
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        heading = _HEADING.fullmatch(lines[start])
        if heading is None or heading[1] in out:
            raise ValueError(f"{FILE.name}:{start + 1}: expected `## ID (SEVERITY)`, each id once: {lines[start]}")
        text = "\n".join(lines[start + 1 : end]).strip()
        out[heading[1]] = Page(tuple(heading[2].split(" or ")), start + 1, text)
    return out


def require_declared(id: str, severity: str) -> None:
    """Raise for an id that no page declares with this severity; an id with two dots names a rule and has no page."""
    if id.count(".") > 1:
        return
    page = pages().get(id)
    if page is None or severity not in page.severities:
        raise ValueError(f"{FILE.name} declares no {severity} `{id}`")
