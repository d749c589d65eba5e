"""Read the events of a JSON trace one by one, in memory that does not grow with the file.

ijson 3.6 with its C backend is no replacement: for 1.25 million events it needs 1.15 times the CPU time, and 3.5 times
with the object's other entries, each of which takes a pass of its own. It refuses control characters in names, and
200,000 brackets in a row use up the machine's memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from attrs import define

CHUNK = 4 << 20
"""Characters to read at once."""
LONGEST = 64 << 20
"""The most characters of one value."""
EXPONENT = len("e+1")
"""The characters after a number that must be read to know that it has ended."""
EVENTS = "traceEvents"
_FILLED = re.compile(r"[^ \t\r\n]").search


class Malformed(ValueError):
    """Raised for a text that is not a valid trace; says what is wrong."""


class Truncated(Malformed):
    """Raised for a text that ends inside a value or before its last bracket."""


@define
class Reader:
    """Reads a trace: an object whose `traceEvents` is a list, or the list itself."""

    stream: TextIO
    text: str = ""
    at: int = 0
    ended: bool = False

    def events(self, about: Callable[[str, Any], object]) -> Iterator[Any]:
        """Yield each event; `about` gets every other entry of the object."""
        if self._peek() == "[":
            yield from self._items()
            return
        self._expect("{", "a trace is a JSON object or a list of events")
        while self._peek() != "}":
            key = self._value()
            self._expect(":", f"no `:` after {str(key)[:40]!r}")
            if key == EVENTS:
                yield from self._items()
            else:
                self._peek()
                about(str(key), self._value())
            self._comma("}")

    def _items(self) -> Iterator[Any]:
        self._expect("[", f"{EVENTS} is no list")
        while self._peek() != "]":
            yield self._value()
            self._comma("]")
        self.at += 1

    def _comma(self, close: str) -> None:
        if self._peek() == ",":
            self.at += 1
        elif self.text[self.at] != close:
            raise Malformed(f"neither `,` nor `{close}` after a value, but {self.text[self.at : self.at + 20]!r}")

    def _expect(self, sign: str, otherwise: str) -> None:
        if self._peek() != sign:
            raise Malformed(otherwise)
        self.at += 1

    def _peek(self) -> str:
        """Return the next character that is not blank."""
        while True:
            found = _FILLED(self.text, self.at)
            if found:
                self.at = found.start()
                return found[0]
            self.at = len(self.text)
            if not self._more():
                raise Truncated("the text ends before its last bracket")

    def _value(self) -> Any:
        """Read the value that begins at the next character, which is not blank."""
        while True:
            try:
                value, end = _DECODER.raw_decode(self.text, self.at)
            except json.JSONDecodeError as e:
                if len(self.text) - self.at <= LONGEST and self._more():
                    continue
                if e.msg.startswith("Unterminated") or e.pos >= len(e.doc.rstrip()):
                    raise Truncated("the text ends inside a value") from None
                raise Malformed(f"not JSON: {e.msg}") from None
            except RecursionError:
                raise Malformed("a value is nested too deep") from None
            except ValueError:
                raise Malformed("a number has too many digits") from None
            if isinstance(value, int | float) and end + EXPONENT > len(self.text) and self._more():
                continue
            self.at = end
            return value

    def _more(self) -> bool:
        """Read the next characters and drop the parsed ones; return whether there were any."""
        found = "" if self.ended else self.stream.read(CHUNK)
        self.ended = not found
        if found:
            self.text, self.at = self.text[self.at :] + found, 0
        return not self.ended


_DECODER = json.JSONDecoder(strict=False)
