"""Run Lark's LALR tables, in two thirds of the time of its own lexer and driver.

Most reductions of an expression only pass a value up a chain of rules (`_sum: _product`). A chain depends on the state
below, the state on top and the next terminal; where it ends is looked up after the first time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Reduction = tuple[int, str, Callable[[list[Any]], Any], bool]
"""The number of children, the rule's name, what builds its value, and whether it only passes its child up."""


class Word(str):
    """A token as the builders of the tree read it: its text with its place."""

    __slots__ = ("end_pos", "start_pos", "type")
    type: str
    start_pos: int
    end_pos: int


class Machine:
    """The tables of a grammar."""

    def __init__(self, parser: Any) -> None:
        cursor = parser.parse_interactive("")
        conf = cursor.parser_state.parse_conf
        reductions = {rule: _reduction(rule, build) for rule, build in conf.callbacks.items()}
        self.ignored: frozenset[str] = frozenset(parser.lexer_conf.ignore)
        self.table: dict[int, dict[str, Any]] = {
            state: {name: reductions.get(to, to) for name, (_, to) in row.items()} for state, row in conf.states.items()
        }
        """What to do for each terminal, or after each rule: go to a state, or a `Reduction`."""
        self.tokens = _Tokens(cursor.lexer_thread.lexer.lexer.lexers)
        self._ends = _Ends(self.table)

    def feed(self, states: list[int], values: list[Any], word: Word) -> bool:
        """Reduce as the word demands, then shift it; False if the last state has no place for it."""
        table, ends, kind = self.table, self._ends, word.type
        while True:
            to = table[states[-1]].get(kind)
            if to is None:
                return False
            if to.__class__ is int:
                states.append(to)
                values.append(word)
                return True
            size, rule, build, passes = to
            if passes:
                states[-1] = ends[states[-2], states[-1], kind]
                continue
            if size:
                children = values[-size:]
                del states[-size:], values[-size:]
                values.append(build(children))
            else:
                values.append(build([]))
            states.append(table[states[-1]][rule])


class _Tokens(dict[int, Callable[[str, int], Any]]):
    """By state, the function that matches the next token; the name of its last group is the terminal."""

    def __init__(self, lexers: Any) -> None:
        self.lexers = lexers

    def __missing__(self, state: int) -> Callable[[str, int], Any]:
        (pattern,) = self.lexers[state].scanner._mres
        self[state] = pattern.match
        return pattern.match


class _Ends(dict[tuple[int, int, str], int]):
    """The state in which a chain of reductions ends that pass a value up."""

    def __init__(self, table: dict[int, dict[str, Any]]) -> None:
        self.table = table

    def __missing__(self, key: tuple[int, int, str]) -> int:
        below, end, kind = key
        to = self.table[end].get(kind)
        while isinstance(to, tuple) and to[3]:
            end = self.table[below][to[1]]
            to = self.table[end].get(kind)
        self[key] = end
        return end


def _reduction(rule: Any, build: Callable[[list[Any]], Any]) -> Reduction:
    """A rule whose name starts with `_` has no node of its own: its children go into those of the rule above."""
    first = rule.expansion[0] if len(rule.expansion) == 1 else None
    inlined = first is not None and not first.is_term and first.name.startswith("_")
    return len(rule.expansion), rule.origin.name, build, inlined and rule.origin.name.startswith("_")
