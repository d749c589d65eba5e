"""The Pygments lexer against the compiler: every word of every file has the class that the parser gives it."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from pygments.lexers import find_lexer_class_by_name
from pygments.token import Comment, Error, Keyword, Name, Number, Operator, Punctuation, String, Whitespace, _TokenType

from moedsl.lang.printer import print_module
from moedsl.lang.pygments_lexer import MoeLexer
from tests.editors.needs import absent
from tests.helpers import rotation
from tests.helpers.paths import ROOT
from tests.helpers.strategies import module
from tests.oracles.token_classes import FILES, TRICKY, classes

KINDS = {
    Comment.Single: "comment",
    String.Double: "string",
    String.Escape: "string",
    Number: "number",
    Operator: "symbol",
    Punctuation: "symbol",
    Keyword: "keyword",
    Keyword.Reserved: "clause",
    Keyword.Pseudo: "link",
    Keyword.Constant: "constant",
    Operator.Word: "wordop",
    Name.Class: "declared",
    Name.Builtin: "axis",
    Name.Function: "function",
    Name.Constant: "value",
    Name: "name",
}


def coloured(text: str) -> dict[int, _TokenType]:
    """The token type of every character that is no white space."""
    out: dict[int, _TokenType] = {}
    for start, kind, value in MoeLexer().get_tokens_unprocessed(text):
        out |= {start + i: kind for i, char in enumerate(value) if kind is not Whitespace or not char.isspace()}
    return out


def differences(text: str) -> list[tuple[str, str, int, str]]:
    colours = coloured(text)
    found = [(t, {KINDS.get(colours.get(i, Error), "error") for i in range(t.start, t.end)}) for t in classes(text)]
    return [(t.text, t.kind, text.count("\n", 0, t.start) + 1, str(kinds)) for t, kinds in found if not _same(t, kinds)]


def _same(token: object, kinds: set[str]) -> bool:
    """A string or a comment may hold white space, a number a unit; each is of one class otherwise."""
    return kinds == {token.kind}  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_word_of_every_file_has_its_class(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert differences(text) == []


def test_words_that_are_keywords_elsewhere() -> None:
    assert differences(TRICKY) == []


@settings(max_examples=rotation.examples(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(module.map(print_module))
def test_every_keyword_of_a_random_program_is_one(text: str) -> None:
    colours = coloured(text)
    keywords = {"keyword", "clause", "link", "wordop", "constant", "comment", "string", "number"}
    assert Error not in colours.values()
    for token in classes(text):
        kind = KINDS[colours[token.start]]
        assert (kind if kind in keywords else "") == (token.kind if token.kind in keywords else ""), (token, text)


def test_broken_text_is_coloured_to_its_end() -> None:
    text = 'rules r {\n  require a: tp ==\n  let }\nseq "open\nbatch 4k )\n'
    assert "".join(value for _, _, value in MoeLexer().get_tokens_unprocessed(text)) == text
    assert coloured(text)[text.index("batch")] is Keyword


def test_pygments_finds_it_by_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pygments.lexers"] == {"moe": f"{MoeLexer.__module__}:{MoeLexer.__name__}"}
    try:
        importlib.metadata.distribution("moedsl")
    except importlib.metadata.PackageNotFoundError:
        absent("moedsl is not installed in this Python, so Pygments has no entry point of its")
    assert find_lexer_class_by_name("moe") is MoeLexer


def test_the_core_does_not_import_it() -> None:
    code = "import sys, moedsl.cli.main; moedsl.cli.main.main(['--help']); sys.exit('pygments' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0
