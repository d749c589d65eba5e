"""Find the literal words that every match of a regular expression contains, to search a log for them first.

Searching megabytes for a word is far cheaper than trying expressions line by line.
"""

from __future__ import annotations

import re
from functools import lru_cache

from attrs import define

SHORTEST = 4
"""The length of the shortest useful word; shorter ones occur everywhere."""
_QUANTIFIER = re.compile(r"[*+?]\??|\{[0-9]*,?[0-9]*\}\??")
_NAMED = re.compile(r"\?P<\w+>")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")
_CLASSES = "dDsSwWbBA"
"""The letters that mean the same after a backslash whatever follows; `\\x41` and `\\pL` read on."""

Words = frozenset[str]


@lru_cache(maxsize=1024)
def needles(pattern: str) -> Words | None:
    """Words of which every match contains one; None if there are none, so that every line must be tried."""
    reader = _Reader(pattern)
    words = reader.alternatives()
    usable = words is not None and not reader.unknown and reader.at == len(pattern)
    return words if usable and words and min(map(len, words)) >= SHORTEST else None


@define
class _Reader:
    """Reads an expression once and keeps what every match must contain. `unknown` is set by what it does not read."""

    text: str
    at: int = 0
    unknown: bool = False

    def alternatives(self) -> Words | None:
        """Read branches up to a closing bracket or the end; returns the words of all, None if one has none."""
        branches = [self._branch()]
        while self._next() == "|":
            self.at += 1
            branches.append(self._branch())
        found = [b for b in branches if b]
        return frozenset().union(*found) if len(found) == len(branches) else None

    def _branch(self) -> Words | None:
        """The words of the best part: the one whose shortest word is the longest."""
        parts: list[Words] = []
        run = ""
        while self._next() not in ("", "|", ")"):
            literal, words = self._part()
            repeated = self._quantifier()
            optional = repeated[:1] in ("*", "?", "{")
            kept = literal if literal and not optional else ""
            run += kept
            if not kept or repeated:
                parts += [frozenset({run})] if run else []
                run = ""
            parts += [words] if words and not optional else []
        parts += [frozenset({run})] if run else []
        return max(parts, key=lambda words: min(map(len, words)), default=None)

    def _part(self) -> tuple[str, Words | None]:
        """One literal character, or the words that a group must contain; neither for anything else."""
        c = self.text[self.at]
        self.at += 1
        if c == "(":
            return "", self._group()
        if c == "[":
            found = _CLASS.match(self.text, self.at - 1)
            self.unknown |= found is None or "[:" in found[0]
            self.at = found.end() if found else len(self.text)
            return "", None
        if c == "\\":
            c = self._next()
            self.at += 1
            self.unknown |= c.isalnum() and c not in _CLASSES
            return ("", None) if c.isalnum() else (c, None)
        return ("", None) if c in ".^$" else (c, None)

    def _group(self) -> Words | None:
        if self.text.startswith("?:", self.at):
            self.at += 2
        elif named := _NAMED.match(self.text, self.at):
            self.at = named.end()
        elif self._next() == "?":
            self.unknown = True
        words = self.alternatives()
        self.at += 1
        return words

    def _quantifier(self) -> str:
        found = _QUANTIFIER.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found[0] if found else ""

    def _next(self) -> str:
        return self.text[self.at : self.at + 1]
