"""List what the page starts from: the examples that need no other file, and the words to colour."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from moedsl import compiler
from moedsl.facts import axes
from moedsl.lang.keywords import keywords
from moedsl.support.resources import example_files

FIRST = "qwen3_235b_gb200_128k"
"""The example that the page opens with."""


@cache
def start() -> dict[str, Any]:
    """`examples` with name, title and text, the first one first; `words` by the class of their colour."""
    known, library = keywords(), compiler.load_stdlib()
    groups = (known.statements, known.declarations, known.members, known.clauses, known.links, known.operators)
    words = {
        "keyword": sorted({w for group in groups for w in group} | {*axes.PHASES}),
        "model": [*library.models],
        "hardware": [*library.hardware],
        "axis": [a.name for a in axes.AXES],
    }
    return {"examples": sorted(_examples(), key=lambda e: e["name"] != FIRST), "words": words}


def _examples() -> Iterator[dict[str, str]]:
    for path in example_files():
        text = path.read_text(encoding="utf-8")
        if not any(line.startswith("use ") for line in text.splitlines()):
            title = next((line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#")), "")
            yield {"name": path.stem, "title": title, "text": text}
