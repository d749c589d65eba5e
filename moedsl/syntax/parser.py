"""Parse a Source to an ast.Module. The only module that imports Lark; `parse_cache.py` stores its results so that most
starts do not.

`lalr.py` runs Lark's tables token by token. If a statement does not parse, one error is reported, the parser returns to
the start of the statement, and reading continues after it; three wrong statements give three errors.
"""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator
from functools import cache
from typing import Any, NoReturn

import lark
from lark import Lark, Token, Tree, UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from moedsl.diagnostics.model import Diagnostic, error
from moedsl.diagnostics.source import Source, Span
from moedsl.support import disk_cache
from moedsl.support.resources import grammar_file
from moedsl.syntax import ast
from moedsl.syntax.lalr import Machine, Word
from moedsl.syntax.limits import MAX_HEIGHT, too_deep, too_tall
from moedsl.syntax.parse_errors import DECLARATIONS, Stop, stray, unclosed, unexpected
from moedsl.syntax.tokens import Brackets, brackets, lexeme_at, lexemes
from moedsl.syntax.tree_builder import Builder

MAX_ERRORS = 50
"""The most errors; the rest of a file is not read."""
MAX_WORDS = 20_000
"""The most tokens of a file, ten times those of the largest document; more would take too long."""
CLAUSES = ("because", "cite", "worth", "when", "confirm", "fix")
_OTHER_WORDS = ("NAME", "WORD", "VERSION")

_lock = threading.Lock()
_builder = Builder()


class _KeepNewlines:
    """Lark's hook for a terminal that is lexed in every state."""

    always_accept = ("NEWLINE",)

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        return stream


@cache
def _lark() -> Lark:
    """Load the parser of grammar/moe.lark, from the cache if its tables are there."""
    hooks: dict[str, Any] = {"transformer": _builder, "postlex": _KeepNewlines()}
    name = f"{lark.__version__}.grammar"
    tables = disk_cache.load(name)
    if tables is not None:
        return Lark.__new__(Lark)._load(io.BytesIO(tables), **hooks)  # pyright: ignore[reportPrivateUsage]
    grammar = grammar_file().read_text(encoding="utf-8")
    made = Lark(grammar, parser="lalr", start="module", keep_all_tokens=True, maybe_placeholders=False, **hooks)
    body = io.BytesIO()
    made.save(body, tuple(hooks))
    disk_cache.save(name, body.getvalue())
    return made


@cache
def _machine() -> Machine:
    return Machine(_lark())


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    """The other terminals that a keyword or a number may be."""
    return {t.name: re.compile(t.pattern.to_regexp()) for t in _lark().terminals if t.name in _OTHER_WORDS}


def tables() -> tuple[dict[int, dict[str, tuple[Any, Any]]], int, Any]:
    """For each LALR state the action of each terminal or rule, the state of an empty text, and the action that shifts.

    Used to find what may follow a text; an action is a pair of Lark's.
    """
    conf = _lark().parse_interactive("").parser_state.parse_conf
    actions = (action for row in conf.states.values() for action, _ in row.values())
    return conf.states, conf.start_state, next(a for a in actions if str(a) == "Shift")


def parse(source: Source) -> tuple[ast.Module | None, tuple[Diagnostic, ...]]:
    """Parse a source; returns the module and the diagnostics in the order of the text.

    With errors, the module has the statements that parse; it is None if the text is nested too deeply.
    """
    pairs = brackets(source.text)
    deep = too_deep(source, pairs)
    if deep is not None:
        return None, (deep,)
    with _lock:
        _builder.start(source.name)
        parsing = _Parse(source, pairs)
        module, diagnostics = parsing.run()
    tall = too_tall(module) if module is not None and parsing.longest > MAX_HEIGHT else None
    return (None, (*diagnostics, tall)) if tall else (module, diagnostics)


class _Parse:
    """One parse. `mark` has the parser's stacks at the start of the present statement."""

    def __init__(self, source: Source, pairs: Brackets) -> None:
        self.source, self.pairs = source, pairs
        self.open = set(pairs.unclosed)
        self.parser = _lark().parse_interactive(source.text)
        self.machine = _machine()
        self.states, self.values = self.parser.parser_state.state_stack, self.parser.parser_state.value_stack
        self.errors: list[Diagnostic] = []
        self.at = self.last = self.statement = self.longest = self.words = 0
        self.set_mark()

    def run(self) -> tuple[ast.Module | None, tuple[Diagnostic, ...]]:
        module: ast.Module | None = None
        while module is None and len(self.errors) < MAX_ERRORS and self.words <= MAX_WORDS:
            try:
                module = self.feed_end() if self.feed_tokens() else None
            except UnexpectedInput as e:
                self.recover(e)
        found = sorted(self.errors + _builder.problems, key=lambda d: d.labels[0].span.start)
        if module is None:
            found.append(self.gave_up())
        return module, tuple(found)

    def gave_up(self) -> Diagnostic:
        span = Span(self.source.name, self.last, self.last)
        if self.words > MAX_WORDS:
            message = f"the text has more than {MAX_WORDS} words"
            return error("parse.too_large", message, span, help="a run file is a few lines; is this the right file?")
        return error("parse.too_many", f"more than {MAX_ERRORS} errors: the rest was not read", span)

    def feed_tokens(self) -> bool:
        """Read all tokens from the lexer's position on, without newlines inside ( ) and [ ]; False if too many."""
        depth, started = 0, self.words
        while (token := self.next_token()) is not None:
            kind = token.type
            if kind == "NEWLINE" and depth:
                continue
            if kind in ("LPAREN", "LBRACKET"):
                depth += token.start_pos not in self.open
            elif kind in ("RPAREN", "RBRACKET"):
                depth -= depth > 0
            self.feed(token)
            self.last = self.at
            self.words += 1
            if self.words > MAX_WORDS:
                return False
            if kind in ("NEWLINE", "SEMICOLON", "LBRACE", "RBRACE"):
                self.longest, started = max(self.longest, self.words - started), self.words
                self.statement = self.last
                self.set_mark()
        self.longest = max(self.longest, self.words - started)
        return True

    def next_token(self) -> Word | None:
        """The token at the lexer's position or behind white space; None at the end of the text."""
        text, match = self.source.text, self.machine.tokens[self.states[-1]]
        start, end = self.at, len(text)
        while start < end:
            found = match(text, start)
            if found is None:
                self.unreadable(start)
            at, kind = found.end(), found.lastgroup
            if kind not in self.machine.ignored:
                word = Word(found[0])
                word.type, word.start_pos, word.end_pos = kind, start, at
                self.at = at
                return word
            start = at
        self.at = end
        return None

    def unreadable(self, at: int) -> NoReturn:
        """Let Lark raise its error of the text at a position."""
        lexer = self.parser.lexer_thread
        assert lexer.state is not None
        lexer.state.line_ctr.char_pos = at
        raise AssertionError(next(lexer.lex(self.parser.parser_state)))

    def feed(self, token: Word) -> None:
        """Read one token; a keyword that cannot be here (``seq`` in a model's facts) is a plain word."""
        if self.machine.feed(self.states, self.values, token):
            return
        taken, kind = self.machine.table[self.states[-1]], token.type
        token.type = next((k for k in _OTHER_WORDS if k in taken and self.is_word(k, token)), kind)
        if token.type == kind or not self.machine.feed(self.states, self.values, token):
            self.parser.feed_token(Token(token.type, token, token.start_pos, end_pos=token.end_pos))

    def is_word(self, kind: str, text: str) -> bool:
        return _patterns()[kind].fullmatch(text) is not None

    def feed_end(self) -> ast.Module:
        end = Token("$END", "", len(self.source.text), 1, 1, 1, 1, len(self.source.text))
        module = self.parser.feed_token(end)
        return ast.Module(module.items, Span(self.source.name, 0, len(self.source.text)))

    def set_mark(self) -> None:
        state = self.parser.parser_state
        self.mark = (list(state.state_stack), list(state.value_stack))
        self.sizes = [(v.children, len(v.children)) for v in state.value_stack if isinstance(v, Tree)]

    def back_to_mark(self) -> None:
        """Cut the end of a repeated rule's list, which Lark extends in place."""
        state = self.parser.parser_state
        state.state_stack[:], state.value_stack[:] = self.mark
        for children, size in self.sizes:
            del children[size:]

    def recover(self, e: UnexpectedInput) -> None:
        """Report the error of the present statement and move after it, or close a block that was never closed."""
        stop = self.stop(e)
        _builder.problems[:] = [p for p in _builder.problems if p.labels[0].span.start < self.statement]
        opened = self.unclosed_block(stop)
        if opened is not None:
            self.errors.append(unclosed(self.source, opened, stop.statement))
            self.open.discard(opened)
            self.close_block()
            self.last = self.at = stop.statement if stop.offset < len(self.source.text) else stop.offset
            return
        self.errors.append(self.diagnose(stop))
        self.last = self.at = self.boundary(stop.offset)

    def stop(self, e: UnexpectedInput) -> Stop:
        """The place of the parser; afterwards the parser is at the mark again."""
        accepts = frozenset(self.parser.accepts())
        self.back_to_mark()
        text = self.source.text
        first = lexeme_at(text, self.statement)
        offset = e.token.start_pos if isinstance(e, UnexpectedToken) else e.pos_in_stream
        if isinstance(e, UnexpectedCharacters) or not text[offset or 0 :].startswith("\n"):
            return self._stop(offset or 0, first.start if first else len(text), accepts)
        return self._stop(self.clause_offset(offset or 0), first.start if first else len(text), accepts)

    def _stop(self, offset: int, statement: int, accepts: frozenset[str]) -> Stop:
        return Stop(self.source, statement, offset, self.last, accepts, frozenset(self.parser.accepts()))

    def clause_offset(self, offset: int) -> int:
        """Point at a wrong clause itself, not at the newline before it."""
        word = lexeme_at(self.source.text, offset)
        return word.start if word and word.text in CLAUSES else offset

    def unclosed_block(self, stop: Stop) -> int | None:
        """Report the missing `{` if the text ends inside a block or a declaration starts in it."""
        text = self.source.text
        blocks = [at for at in self.pairs.unclosed if at < self.statement and at in self.open and text[at] == "{"]
        first = lexeme_at(self.source.text, stop.statement)
        if not blocks or "RBRACE" not in stop.starters:
            return None
        ends = stop.offset >= len(self.source.text) or (first is not None and first.text in DECLARATIONS)
        return blocks[-1] if ends else None

    def close_block(self) -> None:
        """Continue as if the block had been closed and its statement ended."""
        for kind, text in (("RBRACE", "}"), ("NEWLINE", "\n")):
            self.parser.feed_token(Token(kind, text, self.last, 1, 1, 1, 1, self.last))
        self.set_mark()

    def diagnose(self, stop: Stop) -> Diagnostic:
        brackets = [at for at in self.pairs.unclosed if stop.statement <= at < stop.offset and at in self.open]
        if brackets:
            return unclosed(self.source, brackets[0], stop.last)
        return stray(self.source, stop.offset) if stop.offset in self.pairs.stray else unexpected(stop)

    def boundary(self, offset: int) -> int:
        """The end of the statement: a newline, ``;`` or ``}`` outside its brackets, at the error or after it."""
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
