"""The tables of grammar/tables.json are Lark's, and moedsl's own loop over them makes what Lark's lexer and driver
make."""

from __future__ import annotations

import re
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from lark import Lark, Token, UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from moedsl.lang import ast, parser
from moedsl.lang.tokens import brackets
from moedsl.lang.tree_builder import RULES, Builder
from moedsl.support.resources import example_files, grammar_file, stdlib_files, tables_file
from moedsl.support.source import Source, Span
from tests.helpers import rotation
from tools import make_grammar


def test_the_tables_are_those_of_the_grammar() -> None:
    assert tables_file().read_text(encoding="utf-8") == make_grammar.made(), "run tools/make_grammar.py"


@pytest.fixture(scope="module")
def lark() -> tuple[Lark, Builder]:
    """Lark's parser of the grammar, which reads newlines in every state, with moedsl's builders of the tree."""
    builder = Builder()
    hooks = {
        "transformer": SimpleNamespace(**{name: partial(make, builder) for name, make in RULES.items()}),
        "postlex": SimpleNamespace(always_accept=("NEWLINE",), process=lambda stream: stream),
    }
    grammar = grammar_file().read_text(encoding="utf-8")
    made = Lark(grammar, parser="lalr", start="module", keep_all_tokens=True, maybe_placeholders=False, **hooks)
    return made, builder


def by_lark(lark: tuple[Lark, Builder], text: str) -> tuple[Any, ...]:
    """The module, or where the first error is and what Lark would take there."""
    lark[1].start("t.moe")
    parsing, depth = lark[0].parse_interactive(text), 0
    words = {t.name: re.compile(t.pattern.to_regexp()) for t in lark[0].terminals if t.name in parser._OTHER_WORDS}
    try:
        for token in parsing.lexer_thread.lex(parsing.parser_state):
            depth += (token.type in ("LPAREN", "LBRACKET")) - (token.type in ("RPAREN", "RBRACKET") and depth > 0)
            if token.type != "NEWLINE" or not depth:
                _feed(parsing, token, words)
        return "module", parsing.feed_token(Token("$END", "", len(text), end_pos=len(text)))
    except UnexpectedInput as e:
        assert isinstance(e, UnexpectedToken | UnexpectedCharacters)
        at = e.token.start_pos if isinstance(e, UnexpectedToken) else e.pos_in_stream
        return "error", at, parsing.accepts()


def _feed(parsing: Any, token: Token, words: dict[str, re.Pattern[str]]) -> None:
    try:
        parsing.feed_token(token)
    except UnexpectedToken:
        taken = parsing.parser_state.parse_conf.states[parsing.parser_state.position]
        kinds = [k for k in parser._OTHER_WORDS if k in taken and words[k].fullmatch(token)]
        if not kinds:
            raise
        parsing.feed_token(token.update(type=kinds[0]))


def by_moedsl(text: str) -> tuple[Any, ...]:
    with parser._lock:
        parser._builder.start("t.moe")
        parsing = parser._Parse(Source("t.moe", text), brackets(text))
        parsing.open.clear()
        try:
            parsing.feed_tokens()
            return "module", parsing.feed_end()
        except parser.Unexpected as e:
            return "error", e.offset, parsing.machine.accepts(parsing.states)


def places(module: ast.Module) -> list[Span]:
    """The span of each node below a module."""
    return [n.span for item in module.items for n in ast.walk(item)]


def damaged(text: str) -> str:
    """The text with some words gone, twice or swapped."""
    dice, words = rotation.dice(text), re.findall(r"\w+|\s+|.", text)
    for _ in range(1 + len(words) // 100):
        at = dice.randrange(len(words))
        words[at] = dice.choice(["", words[at] * 2, words[dice.randrange(len(words))], "{", ")", '"', "\n"])
    return "".join(words)


def test_as_lark_parses(lark: tuple[Lark, Builder]) -> None:
    files = [*example_files(), *rotation.some("files read by Lark", stdlib_files(), 8)]
    texts = [path.read_text(encoding="utf-8") for path in files]
    for text in texts:
        (_, own), (_, larks) = by_moedsl(text), by_lark(lark, text)
        assert own == larks
        assert places(own) == places(larks)
    errors = [by_moedsl(text) for text in map(damaged, texts)]
    assert errors == [by_lark(lark, text) for text in map(damaged, texts)]
    assert sum(kind == "error" for kind, *_ in errors) > len(texts) // 4
