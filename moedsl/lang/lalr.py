"""Run the LALR tables of grammar/tables.json: read words, reduce them to values, and tell what may follow.

`tools/make_grammar.py` makes the tables of grammar/moe.lark with Lark, so that parsing needs neither the grammar nor
Lark. As in Lark, a state reads only the terminals that it can take.

Most reductions of an expression only pass a value up a chain of rules (`_sum: _product`). A chain depends on the state
below, the state on top and the next terminal; where it ends is looked up after the first time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from moedsl.support.resources import tables_file

ALWAYS = ("NEWLINE",)
"""The terminals that every state reads."""
END = "$END"
Stack = tuple[int, ...]
Build = Callable[[list[Any]], Any]
Reduction = tuple[int, str, Build, bool]
"""The number of children, the rule's name, what makes its value, and whether that is the value of its only child."""


class Word(str):
    """A token: its text with its place."""

    __slots__ = ("end_pos", "start_pos", "type")
    type: str
    start_pos: int
    end_pos: int


def make_word(text: str, kind: str, start: int, end: int) -> Word:
    """Make a token."""
    made = Word(text)
    made.type, made.start_pos, made.end_pos = kind, start, end
    return made


class Machine:
    """The tables with what makes the values: `build` for each rule, and a list of them for a rule named `_rule`, which
    has no node of its own."""

    def __init__(self, build: Mapping[str, Build]) -> None:
        tables = json.loads(tables_file().read_text(encoding="utf-8"))
        reductions = [_reduction(name, symbols, build) for name, *symbols in tables["rules"]]
        self.terminals: dict[str, str] = dict(tables["terminals"])
        """The regular expression of each terminal; an earlier one is tried first."""
        self.ignored = frozenset[str](tables["ignored"])
        self.rows: list[dict[str, Any]] = [
            {name: to if to >= 0 else reductions[~to] for name, to in row.items()} for row in tables["rows"]
        ]
        """What to do in each state for a terminal, or after a rule: go to a state, or a `Reduction`."""
        self.matches = _Matches(self)
        self._ends = _Ends(self.rows)

    def feed(self, states: list[int], values: list[Any], word: Word) -> bool:
        """Reduce as the word demands, then shift it; False if the last state has no place for it."""
        rows, ends, kind = self.rows, self._ends, word.type
        while True:
            to = rows[states[-1]].get(kind)
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
            states.append(rows[states[-1]][rule])

    def after(self, states: Stack, kind: str) -> Stack | None:
        """The states after a terminal; None if it cannot be here."""
        while True:
            to = self.rows[states[-1]].get(kind)
            if to is None or isinstance(to, int):
                return None if to is None else (*states, to)
            size, rule, _, _ = to
            states = states[: len(states) - size]
            states = (*states, self.rows[states[-1]][rule])

    def accepts(self, states: Sequence[int]) -> frozenset[str]:
        """The terminals that may be next."""
        kinds = (kind for kind in self.rows[states[-1]] if kind.isupper())
        return frozenset(kind for kind in kinds if self.after((*states,), kind) is not None)


class _Matches(dict[int, Callable[[str, int], Any]]):
    """By state, the function that matches the next token or white space; the name of the last group is the terminal."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def __missing__(self, state: int) -> Callable[[str, int], Any]:
        read = {*self.machine.rows[state], *self.machine.ignored, *ALWAYS}
        found = (f"(?P<{name}>{regex})" for name, regex in self.machine.terminals.items() if name in read)
        self[state] = re.compile("|".join(found)).match
        return self[state]


class _Ends(dict[tuple[int, int, str], int]):
    """The state in which a chain of reductions ends that pass a value up."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.rows = rows

    def __missing__(self, key: tuple[int, int, str]) -> int:
        below, end, kind = key
        to = self.rows[end].get(kind)
        while isinstance(to, tuple) and to[3]:
            end = self.rows[below][to[1]]
            to = self.rows[end].get(kind)
        self[key] = end
        return end


def _reduction(name: str, symbols: Sequence[str], build: Mapping[str, Build]) -> Reduction:
    lists = frozenset(i for i, symbol in enumerate(symbols) if symbol.startswith("_"))
    make = _same if name.startswith("_") else build[name]
    passes = make is _same and len(symbols) == len(lists) == 1
    return len(symbols), name, _joined(lists, make) if lists else make, passes


def _same(children: list[Any]) -> list[Any]:
    return children


def _joined(lists: frozenset[int], make: Build) -> Build:
    """`make` with the children of rules without a node among its own; the list of the first one grows in place."""

    def joined(children: list[Any]) -> Any:
        out: list[Any] = []
        for i, child in enumerate(children):
            if i not in lists:
                out.append(child)
            elif out:
                out += child
            else:
                out = child
        return make(out)

    return joined
