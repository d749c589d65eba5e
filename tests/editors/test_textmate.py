"""The TextMate grammar in VS Code's own engine: every word of every file has the scope of its class."""

import importlib.metadata
import json
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
from tests.editors.needs import absent, program
from tests.editors.npm import installed
from tests.helpers import rotation
from tests.helpers.paths import ROOT
from tests.helpers.strategies import module
from tests.helpers.tables import table_of
from tests.oracles.token_classes import FILES, TRICKY, Classed, classes

HERE = Path(__file__).resolve().parent / "textmate"
GRAMMAR = ROOT / "editors" / "vscode" / "syntaxes" / "moe.tmLanguage.json"
KINDS = table_of("editors", "textmate kinds")


def tokenised(files: list[Path]) -> dict[Path, list[list[tuple[int, int, str]]]]:
    """The tokens of each line of each file."""
    modules = installed(HERE / "package.json") / "node_modules"
    command = [program("node", "nodejs"), str(HERE / "tokenise.js"), str(modules), str(GRAMMAR), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {Path(name): lines for name, lines in json.loads(done.stdout).items()}


@pytest.fixture(scope="module")
def tokens() -> dict[Path, list[list[tuple[int, int, str]]]]:
    return tokenised(FILES)


def differences(text: str, lines: list[list[tuple[int, int, str]]]) -> list[tuple[int, str, str, str]]:
    """Line, word, class and scopes of each word that is coloured as something else."""
    found = [(token, _scopes(text, token, lines)) for token in classes(text)]
    wrong = [(token, scopes) for token, scopes in found if {_kind(s) for s in scopes} != {token.kind}]
    return [(text.count("\n", 0, t.start) + 1, t.text, t.kind, " ".join(sorted(scopes))) for t, scopes in wrong]


def _scopes(text: str, token: Classed, lines: list[list[tuple[int, int, str]]]) -> set[str]:
    row = text.count("\n", 0, token.start)
    line_start = text.rfind("\n", 0, token.start) + 1
    start, end = (len(text[line_start:at].encode("utf-16-le")) // 2 for at in (token.start, token.end))
    return {scope for s, e, scope in lines[row] if s < end and e > start}


def _kind(scope: str) -> str:
    return next((kind for prefix, kind in KINDS.items() if f"{scope}.".startswith(f"{prefix}.")), scope)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_word_of_every_file_has_its_scope(
    path: Path, tokens: dict[Path, list[list[tuple[int, int, str]]]]
) -> None:
    assert differences(path.read_text(encoding="utf-8"), tokens[path]) == []


def test_words_that_are_keywords_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "t.moe"
    file.write_text(TRICKY, encoding="utf-8")
    assert differences(TRICKY, tokenised([file])[file]) == []


# The Pygments lexer against the compiler: every word of every file has the class that the parser gives it.

TOKEN_KINDS = {
    Comment.Single: "comment", String.Double: "string", String.Escape: "string", Number: "number", Operator: "symbol",
    Punctuation: "symbol", Keyword: "keyword", Keyword.Reserved: "clause", Keyword.Pseudo: "link",
    Keyword.Constant: "constant", Operator.Word: "wordop", Name.Class: "declared", Name.Builtin: "axis",
    Name.Function: "function", Name.Constant: "value", Name: "name",
}  # fmt: skip


def coloured(text: str) -> dict[int, _TokenType]:
    """The token type of every character that is no white space."""
    out: dict[int, _TokenType] = {}
    for start, kind, value in MoeLexer().get_tokens_unprocessed(text):
        out |= {start + i: kind for i, char in enumerate(value) if kind is not Whitespace or not char.isspace()}
    return out


def pygments_differences(text: str) -> list[tuple[str, str, int, str]]:
    colours = coloured(text)
    found = [
        (t, {TOKEN_KINDS.get(colours.get(i, Error), "error") for i in range(t.start, t.end)}) for t in classes(text)
    ]
    return [(t.text, t.kind, text.count("\n", 0, t.start) + 1, str(kinds)) for t, kinds in found if not _same(t, kinds)]


def _same(token: object, kinds: set[str]) -> bool:
    """A string or a comment may hold white space, a number a unit; each is of one class otherwise."""
    return kinds == {token.kind}  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_word_of_every_file_has_its_class(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert pygments_differences(text) == []


def test_words_that_are_keywords_elsewhere_for_pygments() -> None:
    assert pygments_differences(TRICKY) == []


@settings(max_examples=rotation.examples(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(module.map(print_module))
def test_every_keyword_of_a_random_program_is_one(text: str) -> None:
    colours = coloured(text)
    keywords = {"keyword", "clause", "link", "wordop", "constant", "comment", "string", "number"}
    assert Error not in colours.values()
    for token in classes(text):
        kind = TOKEN_KINDS[colours[token.start]]
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
