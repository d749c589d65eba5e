"""Compile the regular expressions of symptoms with RE2, which never backtracks: its time is linear in a line's
length."""

from __future__ import annotations

import re
from typing import cast

import re2

OPTIONS = re2.Options()
OPTIONS.log_errors = False
Pattern = re.Pattern[str]
"""A compiled expression. RE2 has no types, but its objects have the methods of `re` that are used here."""


class UnusablePattern(ValueError):
    """Says why RE2 cannot search for a text as an expression; `help` says what to write instead."""

    def __init__(self, why: str, help: str) -> None:
        super().__init__(why)
        self.help = help


def compiled(text: str) -> Pattern:
    """Compile an expression; raises UnusablePattern if RE2 cannot."""
    try:
        return cast(Pattern, re2.compile(text, OPTIONS))
    except re2.error as e:
        said = e.args[0].decode(errors="replace")
    try:
        re.compile(text)
    except re.error as e:
        help = r"write `\\(` for a bracket in the log"
        raise UnusablePattern(f"this is not a regular expression: {e}", help) from None
    raise UnusablePattern(  # only an engine that backtracks supports it
        f"a symptom is searched with RE2, which does not have this: {said}",
        "RE2 has no lookahead, lookbehind or backreference and repeats at most 1000 times: match the words around it, "
        "or write one symptom for each alternative",
    )
