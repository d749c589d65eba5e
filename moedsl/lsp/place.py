"""Analyse what is around a cursor: the word, the statement, the blocks, and what the grammar accepts there.

What may follow comes from the parser's own tables, without building a tree. If the text before the cursor does not
parse, it is repaired: a missing word is inserted or a superfluous one is dropped, whichever lets the following words
parse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache

from attrs import field, frozen

from moedsl.lang import keywords, parser
from moedsl.lang.parse_errors import WORDS
from moedsl.lang.parser import Stack
from moedsl.lang.tokens import Lexeme, brackets, lexemes
from moedsl.lsp.document import Analysis, Document
from moedsl.rules.check.program import Program
from moedsl.rules.rule import Rule

_PIECE = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"?|#[^\n]*|[(){}\[\];\n]')
_TYPED = re.compile(r"[A-Za-z0-9_.]*$")
_TYPED_ON = re.compile(r"[A-Za-z0-9_.]*")
_HUB = re.compile(r"(?:\s|#[^\n]*\n)*(?:model[ \t]+)?(?P<typed>\w[\w.-]*/[\w.-]*|\w[\w.]*-[\w.-]*)$")
"""A statement that ends in the id of a model of Hugging Face, or in its start."""
_HUB_ON = re.compile(r"[\w.-]*(?:/[\w.-]*)?")
_CLAUSE = re.compile(r"(?:\s|#[^\n]*\n)*(?:because|cite|worth|confirm|fix|when|since|until)(?![\w.])")
_NOTHING = re.compile(r"(?:\s|#[^\n]*)*")


@frozen
class Block:
    """An open ``{``: the keyword of its block, and the declared name after the keyword."""

    keyword: str
    name: str


@frozen
class Place:
    """The surroundings of a cursor."""

    start: int
    """The start of the word being typed; the cursor if there is none."""
    word: str
    """The word being typed, up to the cursor."""
    end: int
    """The end of the word, which may be after the cursor."""
    blocks: tuple[Block, ...]
    """The blocks around the cursor, the innermost last."""
    said: tuple[Lexeme, ...]
    """The words of the statement before the cursor."""
    accepts: frozenset[str]
    """The terminals that may follow; none inside a comment or a string."""
    string: str | None = None
    """The text between the start of a string and the cursor; None outside of strings."""

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(w.text for w in self.said)

    @property
    def block(self) -> str:
        """The kind of the innermost block; empty at the top."""
        return self.blocks[-1].keyword if self.blocks else ""


class _Scan:
    """One pass over the text before the cursor: the open blocks, and the start of the current statement."""

    def __init__(self, text: str, offset: int) -> None:
        unclosed = set(brackets(text).unclosed)
        self.blocks: list[tuple[int, int]] = []
        self.statement = self.before = self.depth = 0
        self.inside: tuple[str, int] | None = None

        for match in _PIECE.finditer(text, 0, offset):
            piece, end = match.group(), match.end()
            if piece[0] in '"#':
                closed = piece[0] == '"' and len(piece) > 1 and piece.endswith('"')
                if end == offset and not closed:
                    self.inside = piece[0], match.start()
            elif piece in "([":
                self.depth += end - 1 not in unclosed
            elif piece in ")]":
                self.depth -= self.depth > 0
            else:
                if piece == "{":
                    self.blocks.append((self.statement, end))
                elif piece == "}":
                    self.blocks[-1:] = []
                if piece in "{};" or (not self.depth and not _CLAUSE.match(text, end)):
                    if not _NOTHING.fullmatch(text, self.statement, end - 1):
                        self.before = self.statement
                    self.statement, self.depth = end, 0


def place(text: str, offset: int) -> Place:
    """Analyse what is around an offset."""
    scan = _Scan(text, offset)
    hub = _HUB.match(text, scan.statement, offset)
    start = hub.start("typed") if hub else _TYPED.search(text, scan.statement, offset).start()  # type: ignore[union-attr]
    end = (_HUB_ON if hub else _TYPED_ON).match(text, offset).end()  # type: ignore[union-attr]
    blocks: tuple[Block, ...] = ()
    for statement, opened in scan.blocks:
        header = _said(text[statement : opened - 1], statement)
        first = header[0].text if header else ""
        declared = first in keywords.keywords().declarations
        name = header[1].text if declared and len(header) > 1 else ""
        last = header[-1].text if header else "x"
        blocks += (Block(last if blocks else first if declared else "run", name),)
    said = _said(text[scan.statement : start], scan.statement)
    if scan.inside is not None:
        quote, at = scan.inside
        string = text[at + 1 : offset] if quote == '"' else None
        said = tuple(w for w in said if w.kind != "badstring")
        return Place(offset, "", offset, blocks, said, frozenset(), string)
    # What may follow, with a valid header for each block instead of the written one
    headers = "".join(f"{b.keyword} {{\n" if i else f"{b.keyword} x {{\n" for i, b in enumerate(blocks))
    accepts = accepted_after(headers + text[scan.statement : start])
    fresh = scan.statement and text[scan.statement - 1] == "\n" and not text[scan.statement : start].strip()
    if fresh and not _NOTHING.fullmatch(text, scan.before, scan.statement):  # or a clause of the previous statement
        clauses = {c.upper() for c in keywords.keywords().clauses}
        accepts |= accepted_after(headers + text[scan.before : scan.statement].rstrip()) & clauses
    return Place(start, text[start:offset], end, blocks, said, accepts)


def _said(text: str, at: int) -> tuple[Lexeme, ...]:
    """Return the words of a text without spaces, line ends and comments; offsets count from `at`."""
    kinds = ("space", "newline", "comment")
    return tuple(Lexeme(w.kind, w.text, w.start + at) for w in lexemes(text) if w.kind not in kinds)


@frozen
class Offer:
    """One item to offer; `kind` is a name of LSP's CompletionItemKind."""

    label: str
    kind: str
    detail: str = ""
    doc: Callable[[], str | None] | None = field(default=None, repr=False)
    insert: str | None = None
    """The text to insert instead of the label."""
    snippet: str | None = None
    """The text to insert for a client that supports snippets."""


@frozen
class Around:
    """A place in a document, with the analysis of the file."""

    document: Document
    known: Analysis
    at: Place

    @property
    def said(self) -> tuple[str, ...]:
        return self.at.texts

    @property
    def program(self) -> Program | None:
        """The run at the place; the file's first run outside of `run` blocks; None if it could not be read."""
        name = next((b.name for b in self.at.blocks if b.keyword == "run"), "")
        programs = [p for p in self.known.programs if not name or p.name.split(".")[0] == name]
        return programs[0] if programs else None

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Every rule of a run: the stdlib's and the file's own."""
        if self.program is not None:
            return self.program.rules
        return self.known.library.collected.rules if self.known.library.collected else ()


AHEAD = 4
"""Number of words, from the one that does not parse, by which repairs are compared."""
INSERTED = ("NAME", "NUMBER", "STRING", "EQUAL", "COLON", "COMMA", "RBRACKET", "RPAREN", "NEWLINE")
"""The terminals that a repair may insert, the likeliest first."""
_SYMBOLS = {text.strip("`"): name for name, text in WORDS.items() if text.startswith("`")}
_BLANK = ("space", "comment")


@cache
def terminal_words() -> frozenset[str]:
    """Return every word that has its own terminal in the grammar."""
    w = keywords.keywords()
    groups = (w.statements, w.declarations, w.members, w.clauses, w.links, w.operators, w.constants)
    return frozenset(word for group in groups for word in group)


def terminals(word: Lexeme) -> Iterator[str]:
    """Yield the grammar's terminals that a word may be, the likeliest first."""
    if word.kind == "word":
        own = (word.text.upper(),) if word.text in terminal_words() else ()
        yield from (*own, "NAME", "WORD", "VERSION")
    elif word.kind == "number":
        yield from ("NUMBER", "WORD", "VERSION")
    elif word.kind in ("string", "badstring"):
        yield "STRING"
    elif word.kind in ("newline", "semicolon"):
        yield "NEWLINE"
    elif word.text in _SYMBOLS:
        yield _SYMBOLS[word.text]


def accepted_after(prefix: str) -> frozenset[str]:
    """Return the terminals that may follow a text that ends with a whole word, in linear time."""
    found, stack = list(_words(prefix)), parser.start()
    for at, word in enumerate(found):
        after = _take(stack, word)
        if after is not None:
            stack = after
            continue
        # Repair: insert the terminal after which most of the next words parse, or drop the word
        following = found[at + 1 : at + AHEAD]
        best, reached = stack, _length(stack, following) - 1  # a tie goes to the insertion
        for terminal in INSERTED:
            inserted = parser.after(stack, terminal)
            after = _take(inserted, word) if inserted else None
            length = 1 + _length(after, following) if after is not None else 0
            if after is not None and length > reached:
                best, reached = after, length
        stack = best
    return parser.accepts(stack) - {parser.END}


def _words(text: str) -> Iterator[Lexeme]:
    """Yield the words that the parser sees: no spaces, and no newlines inside ( ) and [ ] or before a clause."""
    depth, waiting = 0, None
    for word in lexemes(text):
        if word.kind in _BLANK:
            continue
        if word.kind == "newline":
            waiting = waiting or (word if not depth else None)
            continue
        if waiting is not None and word.text not in keywords.keywords().clauses:
            yield waiting
        waiting = None
        depth = max(0, depth + (word.text in "([") - (word.text in ")]")) if len(word.text) == 1 else depth
        yield word
    if waiting is not None:
        yield waiting


def _take(stack: Stack, word: Lexeme) -> Stack | None:
    taken = (parser.after(stack, t) for t in terminals(word))
    return next((s for s in taken if s is not None), None)


def _length(stack: Stack, found: Iterable[Lexeme]) -> int:
    """Count the words that parse in a row."""
    length = 0
    for word in found:
        after = _take(stack, word)
        if after is None:
            return length
        stack, length = after, length + 1
    return length
