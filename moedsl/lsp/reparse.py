"""Parse like `parser.parse`, but faster if most of a file's text was parsed before.

Statements of the file's last text are moved to their new places; the parser reads the others, each alone, inside the
header of its block. If a statement alone could differ from the same statement in the file, the whole file is parsed:
with unpaired braces, with brackets that pair differently, and with errors or words that do not end.
"""

from __future__ import annotations

import re
from functools import cache, cached_property, lru_cache
from typing import Any, TypeVar

import attrs
from attrs import define, field, frozen

from moedsl.lang import ast, parser
from moedsl.lang.limits import MAX_DEPTH
from moedsl.lang.tokens import Brackets, brackets
from moedsl.lsp import pieces
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.source import Source, Span

T = TypeVar("T")
_PLAIN = frozenset((str, int, float, bool, type(None)))
Parsed = tuple[ast.Module | None, tuple[Diagnostic, ...]]
_INSIDE: dict[type, str] = {
    ast.RulesDecl: "members", ast.RunDecl: "body", ast.ProfileDecl: "body", ast.HardwareDecl: "facts",
    ast.ModelDecl: "facts", ast.ClusterDecl: "facts", ast.CalibrationDecl: "facts", ast.DocumentDecl: "facts",
}  # fmt: skip
"""The field with the content of a declaration's braces."""
_WORDS = re.compile(r"\w+|[^\w ]")


@frozen(eq=False)
class Piece:
    """The result of parsing one range alone, with spans as if it started at `start`."""

    start: int
    nodes: tuple[Any, ...]
    found: tuple[Diagnostic, ...]
    odd: tuple[int, ...]
    """Brackets without a partner, relative to its start."""
    whole: bool = True
    """Whether the range parses alone."""


@define(eq=False)
class _File:
    """The pieces of a file's last text, by the header of their block and their own text."""

    known: dict[tuple[str, str], Piece] = field(factory=dict)


@lru_cache(maxsize=32)
def _file(name: str) -> _File:
    return _File()


def parse(source: Source) -> Parsed:
    """Parse a text with the results of `parser.parse`: tree, spans and diagnostics."""
    pairs = brackets(source.text)
    if pairs.depth > MAX_DEPTH or _is_long(source.text) or _is_lost(source, pairs):
        return parser.parse(source)
    file = _file(source.name)
    reading = _Reading(source, pairs, file.known)
    module = reading.module()
    file.known = reading.used
    if not reading.whole or len(reading.found) >= parser.MAX_ERRORS:
        return parser.parse(source)
    return module, tuple(reading.found)


def _is_long(text: str) -> bool:
    """Whether there may be more words than are read; a word of the grammar is hardly ever split here."""
    return len(text) > parser.MAX_WORDS and 2 * sum(1 for _ in _WORDS.finditer(text)) > parser.MAX_WORDS


def _is_lost(source: Source, pairs: Brackets) -> bool:
    """Whether blocks are not what they seem, or too much is wrong."""
    return any(source.text[at] == "{" for at in pairs.unclosed) or len(_odd(pairs)) >= parser.MAX_ERRORS


@define(eq=False, slots=False)
class _Reading:
    """The parsing of one text."""

    source: Source
    pairs: Brackets
    known: dict[tuple[str, str], Piece]
    used: dict[tuple[str, str], Piece] = field(factory=dict)
    found: list[Diagnostic] = field(factory=list)
    whole: bool = True
    """Whether every statement means the same alone as in the file."""

    @cached_property
    def odd(self) -> list[int]:
        return _odd(self.pairs)

    def module(self) -> ast.Module:
        text = self.source.text
        items = tuple(
            n for start, end in pieces.statements(text, self.pairs, 0, len(text)) for n in self.of(start, end)
        )
        return ast.Module(items, Span(self.source.name, 0, len(text)))

    def of(self, start: int, end: int) -> tuple[Any, ...]:
        """The items of a range at the top level."""
        block = pieces.block(self.source.text, self.pairs, start, end)
        if block is None:
            return self.piece("\n", start, end)
        shell = self.shell(block)
        return self.piece("\n", start, end) if shell is None else (self.filled(shell, block),)

    def shell(self, block: pieces.Block) -> Any | None:
        """A declaration with empty braces; None if even that does not parse."""
        text = self.source.text
        made = self.made("\n", text[block.start : block.opened] + text[block.closed : block.end], block.start)
        whole = not made.found and len(made.nodes) == 1 and type(made.nodes[0]) in _INSIDE
        return made.nodes[0] if whole else None

    def filled(self, shell: Any, block: pieces.Block) -> Any:
        """The declaration with all its statements."""
        text = self.source.text
        inside = [*pieces.members(text, self.pairs, block)]
        fresh = "\n" if inside and "\n" in text[block.opened : inside[0][0]] else ""
        nodes: list[Any] = []
        for start, end in inside:
            nodes += self.piece(text[block.start : block.opened] + fresh, start, end)
            fresh = "\n"
        span = Span(self.source.name, shell.span.start, block.closed + 1)
        return attrs.evolve(shell, **{_INSIDE[type(shell)]: tuple(nodes), "span": span})

    def piece(self, header: str, start: int, end: int) -> tuple[Any, ...]:
        """The nodes of a range; parsing stops after too many errors."""
        if len(self.found) >= parser.MAX_ERRORS:
            return ()
        made = self.made(header, self.source.text[start:end], start)
        self.whole &= made.whole and made.odd == tuple(at - start for at in self.odd if start <= at < end)
        self.found += made.found
        return made.nodes

    def made(self, head: str, text: str, start: int) -> Piece:
        """The range at an offset: moved there if it was parsed before, else parsed."""
        head = head if start else ""
        piece = self.known.get((head, text)) or _parsed(self.source.name, head, text)
        by = start - piece.start
        if by:
            piece = attrs.evolve(piece, start=start, nodes=moved(piece.nodes, by), found=moved(piece.found, by))
        self.used[head, text] = piece
        return piece


def _parsed(name: str, head: str, text: str) -> Piece:
    """Parse a range alone after a newline, in a block of its own if it is in one."""
    inside = len(head) > 1
    whole = f"{head}{text}}}\n" if inside else head + text
    module, found = parser.parse(Source(name, whole))
    nodes = module.items if module is not None else None
    if inside and nodes is not None:
        nodes = _inside(nodes)
    odd = tuple(at - len(head) for at in _odd(brackets(whole))) if found else ()  # each is an error
    return Piece(len(head), nodes or (), found, odd, nodes is not None)


def _inside(items: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The content of the only block; None if there is something else."""
    if len(items) != 1 or type(items[0]) not in _INSIDE:
        return None
    return getattr(items[0], _INSIDE[type(items[0])])


def _odd(pairs: Brackets) -> list[int]:
    """Brackets without a partner."""
    return sorted((*pairs.unclosed, *pairs.stray))


def moved(value: T, by: int) -> T:
    """Move a node, a diagnostic, or a tuple of them by some characters."""
    return _moved(value, by) if by else value


def _moved(value: Any, by: int) -> Any:
    kind = type(value)
    if kind is Span:
        return Span(value.file, value.start + by, value.end + by)
    if kind is tuple:
        return tuple([_moved(v, by) for v in value])
    names = _names(kind)
    if not names:
        return value
    parts = [getattr(value, n) for n in names]
    return kind(*[v if type(v) in _PLAIN else _moved(v, by) for v in parts])


@cache
def _names(kind: type) -> tuple[str, ...]:
    """The fields of an attrs class in the order of its arguments; none for other classes."""
    return tuple(f.name for f in attrs.fields(kind)) if attrs.has(kind) else ()
