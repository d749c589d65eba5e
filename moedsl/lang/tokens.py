"""Split a source text into words without the grammar: for brackets, error recovery and the formatter.

A number includes its unit, as in the grammar's NUMBER, so that `2%` and `seq % 4` differ here too. Time is linear in
the text; every character belongs to exactly one lexeme. Nesting is limited, so that no stage recurses too deeply.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from attrs import field, frozen

from moedsl.facts.units import SCALES
from moedsl.lang import ast
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.source import Source, Span

CLAUSES = ("because", "cite", "worth", "when", "confirm", "fix", "since", "until")
"""Words that may start a line and still belong to the previous statement."""
_UNITS = "|".join(unit for unit in SCALES if unit != "%")
_LEXEME = re.compile(
    rf"""
    (?P<space>[ \t\r\f]+)
  | (?P<newline>\n)
  | (?P<comment>\#[^\n]*)
  | (?P<string>"(?:[^"\\\n]|\\[^\n])*")
  | (?P<badstring>"[^\n]*)
  | (?P<open>[({{\[])
  | (?P<close>[)}}\]])
  | (?P<semicolon>;)
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)
  | (?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?[kMG]?(?:[ \t]*(?:{_UNITS})(?![\w.])
      | %(?![\w("\[])|[ \t]+%(?=[ \t\r\f]*(?:$|[\n\#;}}\]),]|(?:{"|".join(CLAUSES)})(?![\w.]))))
      | [0-9][A-Za-z0-9_.]*(?:(?<=[eE])[+-][0-9]+)?)
  | (?P<op>=>|==|!=|<=|>=|//|[=<>+\-*/%,:])
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_BRACKET = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"?|#[^\n]*|[(){}\[\]]')
_CLOSER = {"(": ")", "[": "]", "{": "}"}


class Lexeme(NamedTuple):
    """A lexeme: `kind` is a group of the pattern above; `text` is as written, ``[start, end)`` its code points. A named
    tuple for speed, as a text has many."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def lexemes(text: str, start: int = 0) -> Iterator[Lexeme]:
    """Split a text into lexemes from an offset on, white space and comments included."""
    for match in _LEXEME.finditer(text, start):
        yield Lexeme(match.lastgroup or "other", match.group(), match.start())


def lexeme_at(text: str, offset: int) -> Lexeme | None:
    """Return the first lexeme at or after an offset that is no white space, newline or comment; None at the end."""
    return next((x for x in lexemes(text, offset) if x.kind not in ("space", "newline", "comment")), None)


@frozen
class Brackets:
    """The pairs of brackets in a text, outside strings and comments."""

    partner: dict[int, int]
    """Each opening bracket's offset -> its closing bracket's offset."""
    unclosed: tuple[int, ...]
    """Offsets of opening brackets that nothing closes, in order."""
    stray: frozenset[int]
    """Offsets of closing brackets that close nothing."""
    depth: int
    """The deepest nesting."""
    deepest: int = field(default=0)
    """Offset of the first bracket at that depth."""


def brackets(text: str) -> Brackets:
    """Pair brackets in one pass; when a bracket closes, those still open inside it are unclosed.

    A block starts a new frame, so ``)`` never closes a ``(`` from outside the block.
    """
    frames: list[list[tuple[str, int]]] = [[]]
    """The open ( and [ of each open block, each with its closer and its offset."""
    counts: list[dict[str, int]] = [{")": 0, "]": 0}]
    """How many of each closing bracket each frame still needs."""
    blocks: list[int] = []
    partner: dict[int, int] = {}
    unclosed: list[int] = []
    stray: list[int] = []
    size = depth = deepest = 0
    for match in _BRACKET.finditer(text):
        char, at = match.group(), match.start()
        if char in _CLOSER:
            if char == "{":
                blocks.append(at)
                frames.append([])
                counts.append({")": 0, "]": 0})
            else:
                frames[-1].append((_CLOSER[char], at))
                counts[-1][_CLOSER[char]] += 1
            size += 1
            if size > depth:
                depth, deepest = size, at
        elif char == "}" and blocks:
            left = frames.pop()
            counts.pop()
            unclosed += [opened for _, opened in left]
            partner[blocks.pop()] = at
            size -= len(left) + 1
        elif char in ")]" and counts[-1][char]:
            while True:
                closer, opened = frames[-1].pop()
                counts[-1][closer] -= 1
                size -= 1
                if closer == char:
                    partner[opened] = at
                    break
                unclosed.append(opened)
        elif char in ")]}":
            stray.append(at)
    unclosed += [at for frame in frames for _, at in frame] + blocks
    return Brackets(partner, tuple(sorted(unclosed)), frozenset(stray), depth, deepest)


MAX_DEPTH = 64
"""The deepest nesting of brackets of any kind."""
MAX_HEIGHT = 150
"""The most nodes on one path of the syntax tree: ``- - - 1`` and ``a + b + c`` are deep without a bracket."""


def too_deep(source: Source, pairs: Brackets) -> Diagnostic | None:
    """Report brackets that nest deeper than `MAX_DEPTH`."""
    if pairs.depth <= MAX_DEPTH:
        return None
    span = Span(source.name, pairs.deepest, pairs.deepest + 1)
    return error("parse.nested:brackets", span, depth=pairs.depth, max_depth=MAX_DEPTH)


def too_tall(module: ast.Module) -> Diagnostic | None:
    """Report a path through the syntax tree that is longer than `MAX_HEIGHT`."""
    level: list[Any] = [*module.items]
    for _ in range(MAX_HEIGHT):
        level = [child for node in level for child in ast.children(node)]
        if not level:
            return None
    return error("parse.nested:expression", level[0].span, max_height=MAX_HEIGHT)
