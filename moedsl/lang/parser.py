"""Parse a Source to an ast.Module.

Lark runs token by token. If a statement does not parse, the parser reports one error, returns to its state at the
statement's start, and continues after the statement; three wrong statements give three errors.

For completion, the functions at the end list the terminals that may follow a prefix of a text, represented by a stack
of Lark's LALR states. Lark's own `accepts` would also copy the values, which these prefixes do not have.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, cast

import lark
from lark import Lark, Token, Tree, UnexpectedCharacters, UnexpectedToken

from moedsl.lang import ast
from moedsl.lang.parse_errors import DECLARATIONS, Stop, stray, unclosed, unexpected
from moedsl.lang.tokens import CLAUSES, MAX_HEIGHT, Brackets, brackets, lexeme_at, lexemes, too_deep, too_tall
from moedsl.lang.tree_builder import RULES, Builder
from moedsl.support import compiled
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.resources import grammar_file
from moedsl.support.source import Source, Span

MAX_ERRORS = 50
"""The most errors to report; then the rest of a file is not read."""
MAX_WORDS = 20_000
"""The most tokens of a file, ten times those of the largest document; more would take too long."""

_lock = threading.Lock()


class Unexpected(Exception):
    """The text at an offset cannot stand there."""

    def __init__(self, offset: int) -> None:
        self.offset = offset


@cache
def _other_words() -> dict[str, re.Pattern[str]]:
    """Return the other terminals that a keyword or number may be, with their patterns, likeliest first."""
    patterns = {t.name: t.pattern.to_regexp() for t in lark_parser().terminals}
    return {name: re.compile(patterns[name]) for name in ("NAME", "WORD", "VERSION")}


def parse(source: Source) -> tuple[ast.Module | None, tuple[Diagnostic, ...]]:
    """Parse a source; return the module and the diagnostics in the order of the text.

    With errors, the module has the statements that parse; it is None if the text is nested too deeply or has too many
    errors or words.
    """
    pairs = brackets(source.text)
    deep = too_deep(source, pairs)
    if deep is not None:
        return None, (deep,)
    with _lock:
        builder.start(source.name)
        parsing = _Parse(source, pairs)
        module, diagnostics = parsing.run()
    tall = too_tall(module) if module is not None and parsing.longest > MAX_HEIGHT else None
    return (None, (*diagnostics, tall)) if tall else (module, diagnostics)


class _Parse:
    """One parse. `mark` has the parser's stacks at the start of the current statement."""

    def __init__(self, source: Source, pairs: Brackets) -> None:
        self.source, self.pairs = source, pairs
        self.open = set(pairs.unclosed)
        self.cursor = lark_parser().parse_interactive(source.text)
        state = self.cursor.parser_state
        self.states, self.values = state.state_stack, state.value_stack
        self.errors: list[Diagnostic] = []
        self.at = self.last = self.statement = self.longest = self.words = 0
        self.set_mark()

    def run(self) -> tuple[ast.Module | None, tuple[Diagnostic, ...]]:
        module: ast.Module | None = None
        while module is None and len(self.errors) < MAX_ERRORS and self.words <= MAX_WORDS:
            try:
                if self.feed_tokens():
                    end = len(self.source.text)
                    items = self.feed(Token(END, "", end, end_pos=end)).items
                    module = ast.Module(items, Span(self.source.name, 0, end))
            except Unexpected as e:
                self.recover(e)
        found = sorted(self.errors + builder.problems, key=lambda d: d.labels[0].span.start)
        here = Span(self.source.name, self.last, self.last)
        if module is None and self.words > MAX_WORDS:
            found.append(error("parse.too_large:words", here, max_words=MAX_WORDS))
        elif module is None:
            found.append(error("parse.too_many", here, max_errors=MAX_ERRORS))
        return module, tuple(found)

    def feed_tokens(self) -> bool:
        """Feed the remaining tokens to the parser, without newlines inside ( ) and [ ]; False if there are too many."""
        depth, started = 0, self.words
        for token in self.tokens():
            kind = token.type
            if kind == "NEWLINE" and depth:
                continue
            if kind in ("LPAREN", "LBRACKET"):
                depth += token.start_pos not in self.open
            elif kind in ("RPAREN", "RBRACKET"):
                depth -= depth > 0
            self.feed(token)
            self.last = self.at = cast(int, token.end_pos)
            self.words += 1
            if self.words > MAX_WORDS:
                return False
            if kind in ("NEWLINE", "SEMICOLON", "LBRACE", "RBRACE"):
                self.longest, started = max(self.longest, self.words - started), self.words
                self.statement = self.last
                self.set_mark()
        self.longest, self.at = max(self.longest, self.words - started), len(self.source.text)
        return True

    def tokens(self) -> Iterator[Token]:
        """Yield the remaining tokens; the kind of each depends on the parser's state."""
        lexer: Any = self.cursor.lexer_thread
        lexer.state.line_ctr.char_pos = self.at
        try:
            yield from lexer.lex(self.cursor.parser_state)
        except UnexpectedToken as e:
            raise Unexpected(cast(int, e.token.start_pos)) from None
        except UnexpectedCharacters as e:
            raise Unexpected(e.pos_in_stream) from None

    def feed(self, token: Token) -> Any:
        """Feed one token to the parser; a keyword that cannot be here (``seq`` in a model's facts) is a plain word."""
        try:
            return self.cursor.feed_token(token)
        except UnexpectedToken:
            taken = self.cursor.choices()
            kind = next((k for k, pattern in _other_words().items() if k in taken and pattern.fullmatch(token)), None)
        try:
            if kind is not None:
                return self.cursor.feed_token(token.update(type=kind))
        except UnexpectedToken:
            pass
        raise Unexpected(cast(int, token.start_pos))

    def set_mark(self) -> None:
        self.mark = [*self.states], [*self.values]
        self.sizes = [(v.children, len(v.children)) for v in self.values if isinstance(v, Tree)]

    def recover(self, e: Unexpected) -> None:
        """Report the current statement's error and continue after it, or close an unclosed block."""
        stop = self.stop(e)
        builder.problems[:] = [p for p in builder.problems if p.labels[0].span.start < self.statement]
        opened = self.unclosed_block(stop)
        if opened is not None:
            self.errors.append(unclosed(self.source, opened, stop.statement))
            self.open.discard(opened)
            for kind, text in (("RBRACE", "}"), ("NEWLINE", "\n")):  # as if the block were closed here
                self.feed(Token(kind, text, self.last, end_pos=self.last))
            self.set_mark()
            self.last = self.at = stop.statement if stop.offset < len(self.source.text) else stop.offset
            return
        self.errors.append(self.diagnose(stop))
        self.last = self.at = self.boundary(stop.offset)

    def stop(self, e: Unexpected) -> Stop:
        """Return where the parser stopped, and reset the parser to the mark."""
        possible = accepts(self.states)
        self.states[:], self.values[:] = self.mark
        for children, size in self.sizes:  # Lark extends the list of a repeated rule in place
            del children[size:]
        text = self.source.text
        first = lexeme_at(text, self.statement)
        offset, word = e.offset, lexeme_at(text, e.offset)
        if text.startswith("\n", offset) and word and word.text in CLAUSES:
            offset = word.start  # the wrong clause itself, not the newline before it
        statement = first.start if first else len(text)
        return Stop(self.source, statement, offset, self.last, possible, accepts(self.states))

    def unclosed_block(self, stop: Stop) -> int | None:
        """Return the innermost unclosed `{` if the text ends in its block or a declaration starts there."""
        text = self.source.text
        blocks = [at for at in self.pairs.unclosed if at < self.statement and at in self.open and text[at] == "{"]
        first = lexeme_at(self.source.text, stop.statement)
        if not blocks or "RBRACE" not in stop.starters:
            return None
        ends = stop.offset >= len(self.source.text) or (first is not None and first.text in DECLARATIONS)
        return blocks[-1] if ends else None

    def diagnose(self, stop: Stop) -> Diagnostic:
        brackets = [at for at in self.pairs.unclosed if stop.statement <= at < stop.offset and at in self.open]
        if brackets:
            return unclosed(self.source, brackets[0], stop.last)
        return stray(self.source, stop.offset) if stop.offset in self.pairs.stray else unexpected(stop)

    def boundary(self, offset: int) -> int:
        """Return the statement's end: the first newline, ``;`` or ``}`` at or after the error, outside brackets."""
        text, at = self.source.text, self.statement
        while at < len(text):
            for word in lexemes(text, at):
                if word.start in self.pairs.partner:
                    at = self.pairs.partner[word.start] + 1
                    break
                if word.start >= offset and self.ends_statement(word):
                    return word.start
            else:
                return len(text)
        return len(text)

    def ends_statement(self, word: Any) -> bool:
        if word.kind == "newline":
            following = lexeme_at(self.source.text, word.start)
            return following is None or following.text not in CLAUSES
        return word.kind == "semicolon" or (word.text == "}" and word.start not in self.pairs.stray)


END = "$END"
Stack = tuple[int, ...]
builder = Builder()
"""Builds the nodes of the syntax tree, for one parse at a time."""


@cache
def lark_parser() -> Lark:
    """Return Lark with the tree builders; it accepts newlines in every state and keeps its tables in a file.

    If the package's folder is not writable, each process rebuilds the tables.
    """
    tables = compiled.FOLDER / f"grammar-lark{lark.__version__}-py{sys.version_info[0]}{sys.version_info[1]}"
    try:
        tables.parent.mkdir(parents=True, exist_ok=True)
        kept = str(tables) if tables.exists() or os.access(tables.parent, os.W_OK) else False
    except OSError:
        kept = False
    return Lark(
        grammar_file().read_text(encoding="utf-8"), parser="lalr", start="module", keep_all_tokens=True,
        maybe_placeholders=False, cache=kept,
        transformer=SimpleNamespace(**{name: partial(make, builder) for name, make in RULES.items()}),
        postlex=SimpleNamespace(always_accept=("NEWLINE",), process=lambda stream: stream),
    )  # fmt: skip


@cache
def _tables() -> Any:
    return lark_parser().parse_interactive("").parser_state.parse_conf


def start() -> Stack:
    """Return the stack before the first word."""
    return (_tables().start_state,)


def after(stack: Stack, terminal: str) -> Stack | None:
    """Return the stack after a terminal; None if the terminal cannot be here."""
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
    """Return the terminals that may be next."""
    kinds = (kind for kind in _tables().states[stack[-1]] if kind.isupper())
    return frozenset(kind for kind in kinds if after((*stack,), kind) is not None)
