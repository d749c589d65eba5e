"""Translate grammar/moe.lark into a tree-sitter grammar, rule for rule, so that both parsers name the same nodes.

What tree-sitter's own lexer cannot say (words by what may stand there, numbers with units, newlines that end a
statement) comes from src/scanner.c under the names of `EXTERNALS`; Lark says it with its contextual lexer, look-ahead
and moedsl/lang/parser.py.
A hidden rule that may be empty is written out where it is used: tree-sitter takes no such rule.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from lark import Lark, Token, Tree

from moedsl.lang.keywords import keywords
from moedsl.support.resources import grammar_file

LEXICAL = {"NAME": "name", "NUMBER": "number", "WORD": "word", "VERSION": "version", "HUB": "hub"}
"""Terminals that src/scanner.c finds, and the one rule of each."""
SCANNED = {"LPAREN": "(", "RPAREN": ")", "LBRACKET": "[", "RBRACKET": "]"}
"""Brackets belong to the scanner too: it ignores newlines between them."""
INDENT = "  "


@cache
def _tree() -> Tree[Token]:
    """Parse the grammar's text with Lark's own grammar of grammars."""
    lark = Lark.open_from_package("lark", "lark.lark", ["grammars"], parser="lalr", maybe_placeholders=False)
    return lark.parse(grammar_file().read_text(encoding="utf-8"))


def _bodies(kind: str) -> dict[str, Any]:
    found = [node for node in _tree().children if isinstance(node, Tree) and node.data == kind]
    return {str(node.children[0]): node.children[-1] for node in found}


@cache
def _rules() -> dict[str, Any]:
    return {name: body for name, body in _bodies("rule").items() if name not in (*LEXICAL.values(), "string")}


@cache
def _literals() -> dict[str, str]:
    """Terminals that are one string."""
    out: dict[str, str] = {}
    for name, body in _bodies("token").items():
        text = str(body.children[0])
        if text.startswith('"'):
            out[name] = json.loads(text)
    return out


def coloured_words() -> tuple[str, ...]:
    """List every word of the grammar once, in the order of the scanner's symbols."""
    w = keywords()
    return tuple(
        dict.fromkeys((*w.statements, *w.declarations, *w.members, *w.links, *w.clauses, *w.operators, *w.constants))
    )


def externals() -> tuple[str, ...]:
    """List the names of the scanner's tokens, in order."""
    brackets = (f"_{name.lower()}" for name in SCANNED)
    lexical = ("_scanned_number" if rule == "number" else rule for rule in LEXICAL.values())
    return (*lexical, "_newline", "_continuation", *brackets, *(f"_{word}_word" for word in coloured_words()))


# ---------------------------------------------------------------- which rules may be empty


@cache
def _empty_rules() -> frozenset[str]:
    found: frozenset[str] = frozenset()
    while True:
        more = frozenset(name for name, body in _rules().items() if _is_empty(body, found))
        if more == found:
            return found
        found = more


def _is_empty(node: Any, known: frozenset[str]) -> bool:
    if node.data == "name":
        return str(node.children[0]) in known
    if node.data == "expr":
        return str(node.children[1]) in "?*" or _is_empty(node.children[0], known)
    test: Callable[[Iterable[bool]], bool] = all if node.data == "expansion" else any
    return test(_is_empty(child, known) for child in node.children)


# ---------------------------------------------------------------- writing


def _write(node: Any) -> str:
    """Translate one expression of Lark's grammar into tree-sitter's form."""
    if node.data == "name":
        return _reference(str(node.children[0]))
    if node.data == "expr":
        operator = {"?": "optional", "*": "repeat", "+": "repeat1"}[str(node.children[1])]
        return f"{operator}({_write(node.children[0])})"
    function = {"expansion": "seq", "expansions": "choice"}[str(node.data)]
    return f"{function}({', '.join(_write(child) for child in node.children)})"


def _reference(name: str) -> str:
    if name in _literals():
        text = _literals()[name]
        return f"scanned($._{name.lower()}, {_quote(text)})" if name in SCANNED else _quote(text)
    if name in ("NEWLINE", "SEMICOLON"):
        return {"NEWLINE": "$._newline", "SEMICOLON": "';'"}[name]
    if name in LEXICAL:
        return f"$.{LEXICAL[name]}"
    if name.isupper():
        return f"scanned($._{name.lower()}_word, {_quote(name.lower())})"
    return _write(_rules()[name]) if name in _empty_rules() else f"$.{name}"


def _quote(text: str) -> str:
    return f"'{text}'"


def _rule(name: str, body: Any) -> str:
    text = f"{name}: $ => {_write(body)},"
    if len(text) <= 110 or not isinstance(body, Tree):
        return text
    parts = "".join(f"\n{INDENT * 3}{_write(child)}," for child in body.children)
    return f"{name}: $ => {'seq' if body.data == 'expansion' else 'choice'}({parts}\n{INDENT * 2}),"


def rules() -> list[str]:
    """List every rule of grammar.js, the start rule first."""
    start = next(iter(_rules()))
    return [_rule(name, body) for name, body in _rules().items() if name == start or name not in _empty_rules()]


def nodes() -> tuple[str, ...]:
    """List the kinds of the named nodes that both parsers build."""
    return (*(name for name in _rules() if not name.startswith("_")), *LEXICAL.values(), "string")


# ---------------------------------------------------------------- what queries name


def _alternatives(rule: str) -> tuple[str, ...]:
    return tuple(str(child.children[0]) for child in _rules()[rule].children)


def starters() -> tuple[str, ...]:
    """List the words at the start of statements, declarations and members."""
    w = keywords()
    return tuple(dict.fromkeys((*w.statements, *w.declarations, *w.members)))


def declarations() -> tuple[str, ...]:
    """List the rules of declarations that have a name and braces."""
    return tuple(name for name in _alternatives("_decl") if name != "use_decl")


def members() -> tuple[str, ...]:
    """List the rules of the members of a rules block."""
    return _alternatives("_member")


def claused() -> tuple[str, ...]:
    """List the rules of statements whose clauses may be on separate lines."""
    clauses = {"_clauses", *keywords().clauses}
    named = {name: {str(t) for t in body.scan_values(lambda _: True)} for name, body in _rules().items()}
    return tuple(name for name in (*_alternatives("_stmt"), *members()) if named[name] & clauses)
