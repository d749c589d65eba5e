"""moedsl's own loop over Lark's tables makes what Lark's own lexer and driver make, errors and places included."""

from __future__ import annotations

import re
from typing import Any

from lark import Token, UnexpectedToken

from moedsl.diagnostics.source import Source, Span
from moedsl.support.resources import example_files, stdlib_files
from moedsl.syntax import ast, parser
from moedsl.syntax.tokens import brackets
from tests.helpers import rotation


class _ByLark(parser._Parse):
    """A parse whose tokens Lark's lexer reads and Lark's driver takes."""

    def next_token(self) -> Any:
        lexer = self.parser.lexer_thread
        assert lexer.state is not None
        lexer.state.line_ctr.char_pos = self.at
        token = next(lexer.lex(self.parser.parser_state), None)
        self.at = token.end_pos or 0 if token is not None else len(self.source.text)
        return token

    def feed(self, token: Any) -> None:
        assert isinstance(token, Token)
        try:
            self.parser.feed_token(token)
        except UnexpectedToken:
            taken = self.parser.parser_state.parse_conf.states[self.parser.parser_state.position]
            kinds = [k for k in ("NAME", "WORD", "VERSION") if k in taken and self.is_word(k, str(token))]
            if not kinds:
                raise
            self.parser.feed_token(token.update(type=kinds[0]))


def parsed(kind: type[parser._Parse], text: str) -> tuple[Any, ...]:
    source = Source("t.moe", text)
    with parser._lock:
        parser._builder.start(source.name)
        parsing = kind(source, brackets(text))
        module, found = parsing.run()
    places: list[Span] = [n.span for n in ast.walk(module)]
    return module, places, found, parsing.longest, parsing.words


def damaged(text: str) -> str:
    """The text with some words gone, twice or swapped."""
    dice, words = rotation.dice(text), re.findall(r"\w+|\s+|.", text)
    for _ in range(1 + len(words) // 100):
        at = dice.randrange(len(words))
        words[at] = dice.choice(["", words[at] * 2, words[dice.randrange(len(words))], "{", ")", '"', "\n"])
    return "".join(words)


def test_as_lark_parses() -> None:
    files = [*example_files(), *rotation.some("files read by Lark", stdlib_files(), 8)]
    texts = [path.read_text(encoding="utf-8") for path in files]
    errors = 0
    for text in (*texts, *map(damaged, texts)):
        own = parsed(parser._Parse, text)
        assert own == parsed(_ByLark, text), text
        errors += len(own[2])
    assert errors > len(texts)
