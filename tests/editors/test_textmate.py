"""The TextMate grammar in VS Code's own engine: every word of every file has the scope of its class."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.editors.needs import program
from tests.editors.npm import installed
from tests.helpers.paths import ROOT
from tests.oracles.token_classes import FILES, TRICKY, Classed, classes

HERE = Path(__file__).resolve().parent / "textmate"
GRAMMAR = ROOT / "editors" / "vscode" / "syntaxes" / "moe.tmLanguage.json"
KINDS = {
    "comment.line": "comment",
    "string.quoted": "string",
    "constant.character": "string",
    "constant.numeric": "number",
    "keyword.other.unit": "number",
    "keyword.operator.moe": "symbol",
    "punctuation": "symbol",
    "keyword.control": "keyword",
    "storage.type": "keyword",
    "keyword.other.clause": "clause",
    "keyword.other.link": "link",
    "keyword.operator.word": "wordop",
    "constant.language": "constant",
    "entity.name": "declared",
    "variable.language": "axis",
    "support.function": "function",
    "support.constant": "value",
    "variable.other": "name",
}


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
