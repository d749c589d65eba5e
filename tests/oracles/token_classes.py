"""What each word of a text is to the compiler: the class that every highlighter has to give it.

Which words are keywords is what the parser took them for; the rest is the kind that moedsl/lang/tokens.py finds.
"""

from functools import cache
from typing import Any

from attrs import frozen
from lark import Token

from moedsl.lang import parser
from moedsl.lang.keywords import keywords
from moedsl.lang.tokens import Lexeme, brackets, lexemes
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.helpers.paths import ROOT

FILES = rotation.some("files", sorted([*(ROOT / "examples").rglob("*.moe"), *(ROOT / "stdlib").rglob("*.moe")]), 6)
"""Run files, models, machines, rules and documents: those of this run, of all that there are."""
TRICKY = """\
model hardware
seq 4k; batch 8
require (
  seq > 4k
  and batch in [1, 2]  # é 🎉
)
  because "seq \\"漢\\" # no comment"
vlm x 3d seq full
fit first
profile first
hardware h { seq 4; run { model 2 }; x x; a 1e-5 GB/s b 2 % }
x x 8
rules r of recipe
  when seq % 4k == 0 {
  let seq = model
  default tp = seq when x
}
first first
profile first { seq 4k }
run a from b { gb200 x 8; hardware gb200 x 16; target bridge 0.6.2rc1 }
pin max_tp=min(tp, 4) min=overlap.ep
seq 8k
"""
"""Words that are keywords elsewhere, and parts of words that are names elsewhere."""


@frozen
class Classed:
    """`kind` is comment, string, number, symbol, keyword (starts a statement, declaration or member), clause, link,
    wordop, constant, declared (the name of a declaration), axis, function, value or name; `start` is a code point."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class _Recording(parser._Parse):
    """A parse that keeps which terminal each token was taken as, by where its last word starts."""

    def __init__(self, source: Source) -> None:
        super().__init__(source, brackets(source.text))
        self.taken: dict[int, str] = {}

    def feed(self, token: Token) -> Any:
        found = super().feed(token)
        taken = self.values[-1]
        if isinstance(taken, Token) and str(taken).split():
            before = str(taken).rindex(taken.type.lower()) if taken.type.lower() in keywords().clauses else 0
            self.taken[taken.start_pos + before] = taken.type
        return found


@cache
def classes(text: str) -> list[Classed]:
    """The words of a text that parses, white space left out, in order."""
    source = Source("t.moe", text)
    with parser._lock:
        parser.builder.start(source.name)
        parsing = _Recording(source)
        parsing.run()
    assert not parsing.errors, parsing.errors
    found = [x for x in lexemes(text) if x.kind not in ("space", "newline")]
    return [Classed(_kind(found, i, parsing.taken), x.text, x.start) for i, x in enumerate(found)]


def _kind(found: list[Lexeme], i: int, taken: dict[int, str]) -> str:
    lexeme = found[i]
    terminal = taken.get(lexeme.start, "")
    if lexeme.kind in ("comment", "string"):
        return lexeme.kind
    if terminal in ("NUMBER", "VERSION"):
        return "number"
    if terminal == "FIRST" and i + 1 < len(found) and found[i + 1].text == "{":
        return "declared"  # `profile first { ... }`
    if terminal in ("NAME", "WORD"):
        return _name(found, i, taken)
    return _keyword(lexeme.text, terminal) if lexeme.kind == "word" else "symbol"


def _keyword(text: str, terminal: str) -> str:
    w = keywords()
    assert terminal == text.upper(), (text, terminal)
    kinds = {"clause": w.clauses, "wordop": w.operators, "constant": w.constants, "link": w.links}
    return next((kind for kind, group in kinds.items() if text in group), "keyword")


def _name(found: list[Lexeme], i: int, taken: dict[int, str]) -> str:
    """The name behind the first word of a declaration, else what the text alone says."""
    w, text = keywords(), found[i].text
    before = found[i - 1] if i else None
    after = found[i + 1].text if i + 1 < len(found) else ""
    if before and taken.get(before.start) == before.text.upper() and _declares(before.text, after):
        return "declared"
    if text in w.functions and after == "(":
        return "function"
    return "axis" if text in w.axes else "value" if text in w.values else "name"


def _declares(word: str, after: str) -> bool:
    """`model m {` does, `model m` is a statement."""
    w = keywords()
    return word in (*w.rules_blocks, *w.run_blocks) or (word in w.facts_blocks and after == "{")


_CAPTURES = {
    "comment": "comment", "string": "string", "number": "number", "constant.numeric": "number", "operator": "symbol",
    "punctuation": "symbol", "keyword": "keyword", "keyword.modifier": "clause link",
    "keyword.directive": "clause link", "keyword.operator": "wordop", "keyword.conditional": "wordop",
    "keyword.control.conditional": "wordop", "boolean": "constant", "constant.builtin.boolean": "constant",
    "type": "declared", "variable.builtin": "axis", "constant.builtin": "value", "constant": "value",
    "function.builtin": "function", "variable": "name", "nothing": "name", "property": "name",
    "variable.other.member": "name", "attribute": "name", "label": "name axis value",
}  # fmt: skip
"""The captures of tree-sitter queries, in the words of Neovim and of Helix; the longest prefix counts."""


def is_class(capture: str, kind: str) -> bool:
    """Whether a capture of the queries stands for a class."""
    names = [name for name in _CAPTURES if f"{capture}.".startswith(f"{name}.")]
    return bool(names) and kind in _CAPTURES[max(names, key=len)].split()
