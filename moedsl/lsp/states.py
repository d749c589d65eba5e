"""Find what the grammar accepts after a prefix, by the parser's own tables over the words, without building a tree.

A prefix that does not parse is repaired: a missing word is inserted or a superfluous one is dropped, whichever lets the
following words parse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from moedsl.lang import keywords, parser
from moedsl.lang.parse_errors import WORDS
from moedsl.lang.parser import Stack
from moedsl.lang.tokens import Lexeme, lexemes

AHEAD = 4
"""The number of words that must parse after a repair."""
INSERTED = ("NAME", "NUMBER", "STRING", "EQUAL", "COLON", "COMMA", "RBRACKET", "RPAREN", "NEWLINE")
"""The terminals that a repair may insert, the likeliest first."""
_SYMBOLS = {text.strip("`"): name for name, text in WORDS.items() if text.startswith("`")}
_BLANK = ("space", "comment")


@cache
def terminal_words() -> frozenset[str]:
    """Every word with a terminal of its own."""
    w = keywords.keywords()
    groups = (w.statements, w.declarations, w.members, w.clauses, w.links, w.operators, w.constants)
    return frozenset(word for group in groups for word in group)


def terminals(word: Lexeme) -> Iterator[str]:
    """The terminals that a word may be, the likeliest first."""
    if word.kind == "word":
        yield from (word.text.upper() for _ in [0] if word.text in terminal_words())
        yield from ("NAME", "WORD", "VERSION")
    elif word.kind == "number":
        yield from ("NUMBER", "WORD", "VERSION")
    elif word.kind in ("string", "badstring"):
        yield "STRING"
    elif word.kind in ("newline", "semicolon"):
        yield "NEWLINE"
    elif word.text in _SYMBOLS:
        yield _SYMBOLS[word.text]


def accepted_after(prefix: str) -> frozenset[str]:
    """The terminals that may follow a text that ends with a whole word, in linear time."""
    found = list(_words(prefix))
    stack = parser.start()
    at = 0
    while at < len(found):
        after = _take(stack, found[at])
        if after is None:
            after, at = _repaired(stack, found, at)
        stack, at = after, at + 1
    return parser.accepts(stack) - {parser.END}


def _words(text: str) -> Iterator[Lexeme]:
    """The words that the parser sees: without spaces, and without newlines inside ( ) and [ ] or before a clause."""
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


def _repaired(stack: Stack, found: Sequence[Lexeme], at: int) -> tuple[Stack, int]:
    """The stack after an insertion before the word at `at`, or after dropping the word, and the next position."""
    best, reached = stack, 0
    for terminal in INSERTED:
        inserted = parser.after(stack, terminal)
        after = _take(inserted, found[at]) if inserted else None
        if after is not None:
            length = 1 + _length(after, found[at + 1 : at + AHEAD])
            best, reached = (after, length) if length > reached else (best, reached)
    dropped = _length(stack, found[at + 1 : at + AHEAD])
    return (stack if dropped > reached else best), at


def _length(stack: Stack, found: Iterable[Lexeme]) -> int:
    """Count the words that parse."""
    length = 0
    for word in found:
        after = _take(stack, word)
        if after is None:
            return length
        stack, length = after, length + 1
    return length
