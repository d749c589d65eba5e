"""Define source text and the spans that point into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from attrs import field, frozen


def of_stdlib(file: str) -> bool:
    """Whether a file is one of the stdlib, by its name in diagnostics."""
    return file.startswith("stdlib/")


class Span(NamedTuple):
    """A half-open range of code points, ``[start, end)``, in one source file."""

    file: str
    start: int
    end: int

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a tuple, which is read back without a call of Python."""
        return tuple.__new__, (Span, (self.file, self.start, self.end))

    def to(self, other: Span) -> Span:
        """The smallest span that covers both."""
        return Span(self.file, min(self.start, other.start), max(self.end, other.end))


@frozen
class Source:
    """The whole text of one file, with its name in diagnostics."""

    name: str
    text: str = field(repr=False)

    def position(self, offset: int) -> tuple[int, int]:
        """The line and column of a code-point offset, both counted from 1."""
        before = self.text[:offset]
        line = before.count("\n") + 1
        return line, offset - (before.rfind("\n") + 1) + 1

    def line(self, number: int) -> str:
        """The text of a line counted from 1, without its newline."""
        lines = self.text.split("\n")
        return lines[number - 1].rstrip("\r") if 0 < number <= len(lines) else ""


def place_of(span: Span, sources: Mapping[str, Source]) -> dict[str, Any]:
    """Write a place as ``{file, line, text}`` with the text of its first line; line 0 if the source is unknown."""
    source = sources.get(span.file)
    if source is None:
        return {"file": span.file, "line": 0, "text": ""}
    text = source.text[span.start : span.end].partition("\n")[0].strip()
    return {"file": span.file, "line": source.position(span.start)[0], "text": text}
