"""Convert between an editor's positions (lines and code units) and the compiler's offsets (code points)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import cached_property

from attrs import field, frozen
from lsprotocol import types

from moedsl.support.source import Span

UTF8, UTF16, UTF32 = (k.value for k in (types.PositionEncodingKind.Utf8, types.PositionEncodingKind.Utf16,
                                        types.PositionEncodingKind.Utf32))  # fmt: skip


def _utf8(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _utf16(text: str) -> int:
    return len(text) + sum(c > "\uffff" for c in text)


_UNITS: dict[str, Callable[[str], int]] = {UTF8: _utf8, UTF16: _utf16, UTF32: len}
"""The code units of a text in the encoding that client and server agreed on."""


@frozen(slots=False, eq=False)
class Lines:
    """The lines of a text that end in newlines, and positions in it as a client counts them.

    The byte-order mark is removed from the text; the client still counts it on its first line.
    """

    text: str = field(repr=False)
    encoding: str = UTF16
    bom: bool = False

    @cached_property
    def starts(self) -> list[int]:
        """The offset at which each line starts."""
        starts, at = [0], self.text.find("\n")
        while at >= 0:
            starts.append(at + 1)
            at = self.text.find("\n", at + 1)
        return starts

    @cached_property
    def plain(self) -> bool:
        """Whether every character is one unit: then columns need no counting."""
        return self.encoding == UTF32 or self.text.isascii()

    @property
    def count(self) -> int:
        return len(self.starts)

    def end(self, line: int) -> int:
        """The offset of the newline that ends a line, or of the end of the text."""
        return self.starts[line + 1] - 1 if line + 1 < len(self.starts) else len(self.text)

    def line_of(self, offset: int) -> int:
        """The line of an offset, from 0."""
        return bisect_right(self.starts, offset) - 1

    def position(self, offset: int) -> types.Position:
        """Convert an offset to a position; offsets after the text are its end."""
        offset = min(max(offset, 0), len(self.text))
        line = self.line_of(offset)
        start = self.starts[line]
        units = offset - start if self.plain else _UNITS[self.encoding](self.text[start:offset])
        return types.Position(line, units + self._mark(line))

    def offset(self, position: types.Position) -> int:
        """Convert a position to an offset; after a line it is the line's end, after the text the text's end."""
        line = position.line
        if line < 0 or line >= len(self.starts):
            return 0 if line < 0 else len(self.text)
        start, end = self.starts[line], self.end(line)
        units = max(0, position.character - self._mark(line))
        return min(start + units, end) if self.plain else start + self._characters(self.text[start:end], units)

    def range(self, start: int, end: int) -> types.Range:
        """The half-open range between two offsets."""
        return types.Range(self.position(start), self.position(end))

    def span(self, span: Span) -> types.Range:
        """The range of a span of this text."""
        return self.range(span.start, span.end)

    def offsets(self, range: types.Range) -> tuple[int, int]:
        """The offsets of a range, in order."""
        start, end = self.offset(range.start), self.offset(range.end)
        return min(start, end), max(start, end)

    def _mark(self, line: int) -> int:
        return _UNITS[self.encoding]("\ufeff") if self.bom and line == 0 else 0

    def _characters(self, text: str, units: int) -> int:
        """Count the characters of a line before a number of units; a position inside a character is before it."""
        count, used = _UNITS[self.encoding], 0
        for i, char in enumerate(text):
            used += count(char)
            if used > units:
                return i
        return len(text)
