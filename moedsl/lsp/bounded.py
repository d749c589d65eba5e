"""Read the client's messages, and end where a header announces more than a message can have.

Where the next message begins is not known then, and a part of a change would be another text.
"""

from __future__ import annotations

from typing import BinaryIO

MOST = 64_000_000
"""The bytes of a message. An editor's largest, an open file of a megabyte, has a sixtieth."""
LONGEST = 1_000
"""The bytes of a line of a header."""


class TooLargeError(Exception):
    """A header cannot be followed. Its message says what to do."""


class Bounded:
    """A client's stream, as pygls reads it: lines of headers, then a body."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def readline(self) -> bytes:
        line = self._stream.readline(LONGEST + 1)
        if len(line) > LONGEST:
            raise TooLargeError(_text(f"a header of more than {LONGEST:,} bytes"))
        return line

    def read(self, n: int) -> bytes:
        if n > MOST:
            raise TooLargeError(_text(f"a message of {n:,} bytes, and the most is {MOST:,}"))
        return self._stream.read(n)


def _text(what: str) -> str:
    return f"moedsl's language server ended: the client announced {what}; start the server again"
