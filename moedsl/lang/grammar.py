"""The parser that Lark makes of grammar/moe.lark, and which terminals may follow.

A stack of Lark's LALR states stands for a prefix of a text. Lark's own `accepts` would copy the values too; here it is
asked for prefixes without values, as completion does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import lark
from lark import Lark

from moedsl.lang.tree_builder import RULES, Builder
from moedsl.support import compiled
from moedsl.support.resources import grammar_file

END = "$END"
Stack = tuple[int, ...]
builder = Builder()
"""Makes the nodes of the syntax tree, of one parse at a time."""


@cache
def parser() -> Lark:
    """Lark with the builders of the syntax tree; it reads newlines in every state, and keeps its tables in a file."""
    tables = compiled.FOLDER / f"grammar-lark{lark.__version__}-py{sys.version_info[0]}{sys.version_info[1]}"
    tables.parent.mkdir(parents=True, exist_ok=True)
    return Lark(
        grammar_file().read_text(encoding="utf-8"), parser="lalr", start="module", keep_all_tokens=True,
        maybe_placeholders=False, cache=str(tables),
        transformer=SimpleNamespace(**{name: partial(make, builder) for name, make in RULES.items()}),
        postlex=SimpleNamespace(always_accept=("NEWLINE",), process=lambda stream: stream),
    )  # fmt: skip


@cache
def _tables() -> Any:
    return parser().parse_interactive("").parser_state.parse_conf


def start() -> Stack:
    """The stack before the first word."""
    return (_tables().start_state,)


def after(stack: Stack, terminal: str) -> Stack | None:
    """The stack after a terminal; None if it cannot be here."""
    states, end = _tables().states, _tables().end_state
    while stack[-1] != end:
        found = states[stack[-1]].get(terminal)
        if found is None:
            return None
        _, to = found
        if isinstance(to, int):
            return (*stack, to)
        stack = stack[: len(stack) - len(to.expansion)]
        stack = (*stack, states[stack[-1]][to.origin.name][1])
    return stack if terminal == END else None


def accepts(stack: Sequence[int]) -> frozenset[str]:
    """The terminals that may be next."""
    kinds = (kind for kind in _tables().states[stack[-1]] if kind.isupper())
    return frozenset(kind for kind in kinds if after((*stack,), kind) is not None)
