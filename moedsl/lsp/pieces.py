"""Split a text into ranges that parse alone, independent of the text around them.

A range ends at a newline outside of all brackets that no clause (`because`, `cite`, ...) follows. There, the parser is
in the same state as at the start of a text or of a block, so the result depends only on the range.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from attrs import frozen

from moedsl.lang.parser import CLAUSES
from moedsl.lang.tokens import Brackets

_MARK = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"?|#[^\n]*|[({\[\n]')
_BLANK = re.compile(r"(?:[ \t\r\f\n]|#[^\n]*\n)*")
_CLAUSE = re.compile(rf"{_BLANK.pattern}(?:{'|'.join(CLAUSES)})")
_TAIL = re.compile(r"\}[ \t\r\f]*(?:#[^\n]*)?\n?")
LONG = 1000
"""Characters of the longest declaration that is one range; a longer one is split into its statements."""


@frozen
class Block:
    """A declaration on lines of its own, in offsets: ``[start, opened)`` is its header with the opening brace."""

    start: int
    opened: int
    closed: int
    """The offset of the closing brace."""
    end: int


def statements(text: str, pairs: Brackets, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The ranges between two offsets, in order; between them are only spaces and comments."""
    at = start
    while found := _MARK.search(text, at, end):
        at = pairs.partner.get(found.start(), found.end() - 1) + 1
        if text[found.start()] == "\n" and not _CLAUSE.match(text, at, end):
            yield start, at
            start = at = _behind_blank(text, at, end)
    if start < end:
        yield start, end


def _behind_blank(text: str, at: int, end: int) -> int:
    found = _BLANK.match(text, at, end)
    return found.end() if found else at


def block(text: str, pairs: Brackets, start: int, end: int) -> Block | None:
    """The long declaration of a range, or None if the range is something else."""
    opened = text.find("{", start, end) if end - start > LONG else -1
    closed = pairs.partner.get(opened)
    if closed is None or any(c in text[start:opened] for c in ";\n") or not _TAIL.fullmatch(text, closed, end):
        return None
    return Block(start, opened + 1, closed, end)


def members(text: str, pairs: Brackets, of: Block) -> Iterator[tuple[int, int]]:
    """The ranges inside a block."""
    return statements(text, pairs, _behind_blank(text, of.opened, of.closed), of.closed)
