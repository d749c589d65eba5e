"""Colour ``moe`` blocks in documents with Pygments; the words come from moedsl/lang/keywords.py.

Installed as an entry point of `pygments.lexers`; the core does not import it. A keyword is coloured only where the
compiler reads it as one: at the start of a statement, or in its position inside one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from pygments.lexer import RegexLexer, bygroups, default, words
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Whitespace

from moedsl.lang.keywords import keywords as language

_W = language()
_NAME = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*"
_WORD = r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*"
_END = r"(?![\w.])"
_B = r"([ \t\r\f]+)"
_HUB = r"[A-Za-z0-9_][\w.-]*/\w(?:[\w.-]*\w)?"
_CLAUSES = "|".join(_W.clauses)
_UNITS = "|".join(re.escape(unit) for unit in _W.units if unit != "%")
_NUMBER = (
    rf"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?[kMG]?(?:[ \t]*(?:{_UNITS}){_END}|%(?![\w(\"\[])"
    rf"|[ \t]+%(?=[ \t\r\f]*(?:\Z|[\n#;}}\]),]|(?:{_CLAUSES}){_END})))"
    r"|[0-9][A-Za-z0-9_.]*(?:(?<=[eE])[+-][0-9]+)?"
)


def _any(items: Iterable[str]) -> Any:
    return words(tuple(items), suffix=_END)


def _either(items: Iterable[str]) -> str:
    return f"({'|'.join(items)})"


_BLANKS = [(r"[ \t\r\f]+", Whitespace), (r"#[^\n]*", Comment.Single)]
_RELEASE = (rf"(since|until){_B}({_WORD})", bygroups(Keyword.Reserved, Whitespace, Number))
_BETWEEN = [
    *_BLANKS, (r"\n+", Whitespace), (r";", Punctuation), (*_RELEASE, "line"),
    (_any(_W.clauses), Keyword.Reserved, "line"),
]  # fmt: skip
_NAMES = [
    (rf"{_either(_W.functions)}(?=[ \t]*\()", Name.Function),
    (_any(_W.axes), Name.Builtin),
    (_any(_W.values), Name.Constant),
    (_NAME, Name),
]
_EXPRESSION = [
    _RELEASE,
    (_any(_W.clauses), Keyword.Reserved),
    (_any(_W.operators), Operator.Word),
    (_any(_W.constants), Keyword.Constant),
    (_NUMBER, Number),
    (r'"', String.Double, "string"),
    *_NAMES,
    (r"[(\[]", Punctuation, "brackets"),
    (r"[:,)\]]", Punctuation),
    (words([s for s in _W.symbols if s not in "()[]{},:;"]), Operator),
]
_STATEMENTS = [
    (rf"(profile){_B}(first){_END}(?![ \t]*\{{)", bygroups(Keyword, Whitespace, Keyword.Pseudo)),
    (rf"(hardware){_B}({_NAME}){_B}(x){_END}", bygroups(Keyword, Whitespace, Name, Whitespace, Keyword.Pseudo), "line"),
    (rf"(target){_B}({_NAME}){_B}({_WORD})", bygroups(Keyword, Whitespace, Name, Whitespace, Number)),
    (rf"(model){_B}({_HUB})(?=[ \t]*(?:$|[#;}}]))", bygroups(Keyword, Whitespace, Name)),
    (rf"vlm{_END}", Keyword, "options"),
    (_any(_W.statements), Keyword, "line"),
    (rf"({_NAME}){_B}(x){_END}", bygroups(Name, Whitespace, Keyword.Pseudo), "line"),
    (rf"{_either(_W.values)}{_B}(first){_END}", bygroups(Name.Constant, Whitespace, Keyword.Pseudo)),
    (rf"({_NAME}){_B}(first){_END}", bygroups(Name, Whitespace, Keyword.Pseudo)),
    (r"\{", Punctuation, "block"),
    *_EXPRESSION,
]
_DECLARED = bygroups(Keyword, Whitespace, Name.Class, Whitespace, Keyword.Pseudo, Whitespace, Name)


class MoeLexer(RegexLexer):
    """Run files, models, machines and rules of moedsl."""

    name = "moe"
    aliases: ClassVar[Sequence[str]] = ("moe",)
    filenames: ClassVar[Sequence[str]] = ("*.moe",)
    tokens: ClassVar[dict[str, list[Any]]] = {
        "root": [
            *_BETWEEN,
            _STATEMENTS[0],
            (
                rf"{_either(_W.facts_blocks)}{_B}({_NAME})(?=[ \t\r\f]*\{{)",
                bygroups(Keyword, Whitespace, Name.Class),
                "facts_of",
            ),
            (rf"{_either(_W.rules_blocks)}{_B}({_NAME})(?:{_B}(of){_B}({_NAME}))?", _DECLARED, "rules"),
            (rf"{_either(_W.run_blocks)}{_B}({_NAME})(?:{_B}(from){_B}({_NAME}))?", _DECLARED),
            (_any(w for w in _W.declarations if w not in _W.statements), Keyword, "line"),
            *_STATEMENTS,
        ],
        "block": [(r"\}", Punctuation, "#pop"), *_BETWEEN, *_STATEMENTS],
        "facts_of": [*_BLANKS, (r"\{", Punctuation, ("#pop", "facts"))],
        "facts": [(r"\{", Punctuation, "#push"), (r"\}", Punctuation, "#pop"), *_BETWEEN, *_EXPRESSION],
        "rules": [(r"\{", Punctuation, ("#pop", "members")), *_BETWEEN, *_EXPRESSION],
        "members": [(r"\}", Punctuation, "#pop"), *_BETWEEN, (_any(_W.members), Keyword, "line"), *_EXPRESSION],
        "line": [*_BLANKS, *_EXPRESSION, default("#pop")],
        "options": [*_BLANKS, *_NAMES[1:], (_WORD, Name), default("#pop")],
        "brackets": [(r"[)\]]", Punctuation, "#pop"), (r"\n+", Whitespace), *_BLANKS, *_EXPRESSION, default("#pop")],
        "string": [
            (r'"', String.Double, "#pop"),
            (r"\\[^\n]", String.Escape),
            (r'[^"\\\n]+', String.Double),
            default("#pop"),
        ],
    }


__all__ = ["MoeLexer"]
