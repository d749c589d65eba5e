"""The regular expressions of symptoms, by RE2: its time grows with the length of a line, and it never backtracks."""

from __future__ import annotations

import re
from typing import cast

import re2

OPTIONS = re2.Options()
OPTIONS.log_errors = False
Pattern = re.Pattern[str]
"""A compiled expression: RE2's has the methods of `re` that are used, and no types of its own."""


class UnusablePattern(ValueError):
    """Says why a text is not an expression that RE2 can search for; `help` is the way out."""

    def __init__(self, why: str, help: str) -> None:
        super().__init__(why)
        self.help = help


def compiled(text: str) -> Pattern:
    """Compile an expression; raises UnusablePattern."""
    try:
        return cast(Pattern, re2.compile(text, OPTIONS))
    except re2.error as e:
        said = e.args[0].decode(errors="replace")
    try:
        re.compile(text)
    except re.error as e:
        help = r"write `\\(` for a bracket in the log"
        raise UnusablePattern(f"this is not a regular expression: {e}", help) from None
    raise UnusablePattern(  # only an engine that backtracks takes it
        f"a symptom is searched with RE2, which does not have this: {said}",
        "RE2 has no lookahead, lookbehind or backreference and repeats at most 1000 times: match the words around it, "
        "or write one symptom for each alternative",
    )
