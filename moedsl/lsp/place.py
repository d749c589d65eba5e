"""Analyse the place of a cursor: the word, the statement and the blocks around it."""

from __future__ import annotations

import re
from collections.abc import Callable

from attrs import field, frozen

from moedsl.lang import keywords
from moedsl.lang.tokens import Lexeme, brackets, lexemes
from moedsl.lsp import states
from moedsl.lsp.document import Analysis, Document
from moedsl.rules.check.program import Program
from moedsl.rules.rule import Rule

_PIECE = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"?|#[^\n]*|[(){}\[\];\n]')
_TYPED = re.compile(r"[A-Za-z0-9_.]*$")
_REST = re.compile(r"[A-Za-z0-9_.]*")
_CLAUSE = re.compile(r"(?:\s|#[^\n]*\n)*(?:because|cite|worth|confirm|fix|when)(?![\w.])")
_NOTHING = re.compile(r"(?:\s|#[^\n]*)*")


@frozen
class Block:
    """An open ``{``: the kind of its block, and the name after that."""

    keyword: str
    name: str


@frozen
class Place:
    """The surroundings of a cursor."""

    start: int
    """The start of the word being typed; the cursor if there is none."""
    word: str
    """The part of the word before the cursor."""
    end: int
    """The end of the word."""
    blocks: tuple[Block, ...]
    """The blocks around the cursor, the innermost last."""
    said: tuple[Lexeme, ...]
    """The words of the statement before the cursor."""
    accepts: frozenset[str]
    """The terminals that may follow; none inside a comment or a string."""
    string: str | None = None
    """The text before the cursor in its string, if it is in one."""

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(w.text for w in self.said)

    @property
    def block(self) -> str:
        """The kind of the innermost block; empty at the top."""
        return self.blocks[-1].keyword if self.blocks else ""


class _Scan:
    """One pass over the text before the cursor: the open blocks, and the start of the present statement."""

    def __init__(self, text: str, offset: int) -> None:
        self.text, self.offset = text, offset
        self.unclosed = set(brackets(text).unclosed)
        self.blocks: list[tuple[int, int]] = []
        self.statement = self.before = self.depth = 0
        self.inside: tuple[str, int] | None = None

    def run(self) -> _Scan:
        for match in _PIECE.finditer(self.text, 0, self.offset):
            piece = match.group()
            if piece[0] in '"#':
                self._long(piece, match.start(), match.end())
            else:
                self._short(piece, match.end())
        return self

    def _long(self, piece: str, start: int, end: int) -> None:
        closed = piece[0] == '"' and len(piece) > 1 and piece.endswith('"')
        if end == self.offset and not closed:
            self.inside = piece[0], start

    def _short(self, piece: str, end: int) -> None:
        if piece in "([":
            self.depth += end - 1 not in self.unclosed
        elif piece in ")]":
            self.depth -= self.depth > 0
        elif piece == "{":
            self.blocks.append((self.statement, end))
            self._next(end)
        elif piece == "}":
            self.blocks[-1:] = []
            self._next(end)
        elif piece == ";" or (not self.depth and not _CLAUSE.match(self.text, end)):
            self._next(end)

    def _next(self, at: int) -> None:
        if not _NOTHING.fullmatch(self.text, self.statement, at - 1):
            self.before = self.statement
        self.statement, self.depth = at, 0


def place(text: str, offset: int) -> Place:
    """Analyse the surroundings of an offset."""
    scan = _Scan(text, offset).run()
    typed = _TYPED.search(text, scan.statement, offset)
    start = typed.start() if typed else offset
    rest = _REST.match(text, offset)
    end = rest.end() if rest else offset
    blocks = _blocks(text, scan.blocks)
    said = _said(text[scan.statement : start], scan.statement)
    if scan.inside is not None:
        quote, at = scan.inside
        string = text[at + 1 : offset] if quote == '"' else None
        said = tuple(w for w in said if w.kind != "badstring")
        return Place(offset, "", offset, blocks, said, frozenset(), string)
    return Place(start, text[start:offset], end, blocks, said, _accepts(text, scan, blocks, start))


def _accepts(text: str, scan: _Scan, blocks: tuple[Block, ...], start: int) -> frozenset[str]:
    """The terminals that may follow; on a fresh line, also a clause of the statement before."""
    headers = "".join(f"{_header(b, i)} {{\n" for i, b in enumerate(blocks))
    accepts = states.accepted_after(headers + text[scan.statement : start])
    fresh = scan.statement and text[scan.statement - 1] == "\n" and not text[scan.statement : start].strip()
    if not fresh or _NOTHING.fullmatch(text, scan.before, scan.statement):
        return accepts
    clauses = {c.upper() for c in keywords.keywords().clauses}
    return accepts | (states.accepted_after(headers + text[scan.before : scan.statement].rstrip()) & clauses)


def _header(block: Block, depth: int) -> str:
    """A valid header of a block's kind, which replaces the written one."""
    return block.keyword if depth else f"{block.keyword} x"


def _blocks(text: str, found: list[tuple[int, int]]) -> tuple[Block, ...]:
    blocks: list[Block] = []
    for statement, opened in found:
        said = _said(text[statement : opened - 1], statement)
        first = said[0].text if said else ""
        declared = first in keywords.keywords().declarations
        name = said[1].text if declared and len(said) > 1 else ""
        last = said[-1].text if said else "x"
        blocks.append(Block(first if declared and not blocks else ("run" if not blocks else last), name))
    return tuple(blocks)


def _said(text: str, at: int) -> tuple[Lexeme, ...]:
    """The words of a text from an offset, without spaces and line ends."""
    kinds = ("space", "newline", "comment")
    return tuple(Lexeme(w.kind, w.text, w.start + at) for w in lexemes(text) if w.kind not in kinds)


Doc = Callable[[], str | None]


@frozen
class Offer:
    """One offer. `kind` is a name of LSP's CompletionItemKind."""

    label: str
    kind: str
    detail: str = ""
    doc: Doc | None = field(default=None, repr=False)
    insert: str | None = None
    """The text to insert instead of the label."""
    snippet: str | None = None
    """The text to insert for a client that supports snippets."""


@frozen
class Around:
    """The place, with the analysis of its file."""

    document: Document
    known: Analysis
    at: Place

    @property
    def said(self) -> tuple[str, ...]:
        return self.at.texts

    @property
    def program(self) -> Program | None:
        """The run of the place, as far as it could be read."""
        name = next((b.name for b in self.at.blocks if b.keyword == "run"), "")
        programs = [p for p in self.known.programs if not name or p.name.split(".")[0] == name]
        return programs[0] if programs else None

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Every rule of a run: the stdlib's and the file's own."""
        if self.program is not None:
            return self.program.rules
        return self.known.library.collected.rules if self.known.library.collected else ()
