"""Define source text and the spans that point into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from attrs import field, frozen


def of_stdlib(file: str) -> bool:
    """Whether a file, by its name in diagnostics, belongs to the stdlib."""
    return file.startswith("stdlib/")


class Span(NamedTuple):
    """A half-open range of code points, ``[start, end)``, in one source file."""

    file: str
    start: int
    end: int

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a tuple, which unpickles without running Python code."""
        return tuple.__new__, (Span, (self.file, self.start, self.end))

    def to(self, other: Span) -> Span:
        """Return the smallest span that covers both."""
        return Span(self.file, min(self.start, other.start), max(self.end, other.end))


@frozen
class Source:
    """The whole text of one file, with its name in diagnostics."""

    name: str
    text: str = field(repr=False)

    def position(self, offset: int) -> tuple[int, int]:
        """Return the line and column of a code-point offset, both counted from 1."""
        before = self.text[:offset]
        line = before.count("\n") + 1
        return line, offset - (before.rfind("\n") + 1) + 1

    def line(self, number: int) -> str:
        """Return the text of a line, counted from 1, without its newline; empty if there is no such line."""
        lines = self.text.split("\n")
        return lines[number - 1].rstrip("\r") if 0 < number <= len(lines) else ""


def place_of(span: Span, sources: Mapping[str, Source]) -> dict[str, Any]:
    """Convert a span to ``{file, line, text}`` with the text on its first line; line 0 if the source is unknown."""
    source = sources.get(span.file)
    if source is None:
        return {"file": span.file, "line": 0, "text": ""}
    text = source.text[span.start : span.end].partition("\n")[0].strip()
    return {"file": span.file, "line": source.position(span.start)[0], "text": text}
