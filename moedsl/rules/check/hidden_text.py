"""Warn of characters in a program that a reader does not see: they reorder or hide text, or control a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from moedsl.rules.library import Library
from moedsl.support.diagnostics import Diagnostic, warning
from moedsl.support.source import Source, Span, of_stdlib
from moedsl.support.visible import HIDDEN, visible

MOST = 5
"""The most places of a file to show."""


def hidden(library: Library) -> Iterator[Diagnostic]:
    """Warn once of each of the user's files that has such characters."""
    for source in library.sources.values():
        if not of_stdlib(source.name) and HIDDEN.search(source.text):
            yield _warning(source)


def _warning(source: Source) -> Diagnostic:
    found = [*HIDDEN.finditer(source.text)]
    codes = ", ".join(sorted({visible(m[0]) for m in found}))
    places = (Span(source.name, *m.span()) for m in found[:MOST])
    text = f"the text has characters that an editor or a terminal does not show: {codes}"
    return warning("check.hidden_text", text, *places, help="remove them, and read the lines again")
