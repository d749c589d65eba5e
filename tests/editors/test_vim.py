"""The Vim files in a real Vim: the syntax group of every word of every file, the filetype, the indent."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.editors.needs import moedsl_program, program
from tests.helpers.paths import ROOT
from tests.helpers.tables import table_of
from tests.oracles.token_classes import FILES, TRICKY, classes

KINDS = table_of("editors", "vim kinds")
ASK = Path(__file__).with_name("ask.vim").read_text(encoding="utf-8")


def vim(folder: Path, script: str, *arguments: str) -> None:
    """Runs a script in `folder` with this repository's Vim files alone."""
    (folder / "script.vim").write_text(script)
    settings = f"set nocompatible runtimepath={ROOT}/editors/vim,$VIMRUNTIME | filetype plugin indent on | syntax on"
    command = [
        program("vim", "vim"),
        "-Es",
        "-u",
        "NONE",
        "-i",
        "NONE",
        "--cmd",
        settings,
        "-S",
        "script.vim",
        *arguments,
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def groups(folder: Path, files: Sequence[Path]) -> dict[Path, list[tuple[object, set[str]]]]:
    """For each file its words, each with the groups of its first and its last character."""
    places = {str(path): _places(path.read_text(encoding="utf-8")) for path in files}
    (folder / "places.json").write_text(json.dumps(places))
    vim(folder, ASK)
    found = json.loads((folder / "groups.json").read_text())
    words = {path: classes(path.read_text(encoding="utf-8")) for path in files}
    return {p: [(w, {*found[str(p)][2 * i : 2 * i + 2]}) for i, w in enumerate(words[p])] for p in files}


def _places(text: str) -> list[tuple[int, int]]:
    """Line and byte of the first and the last character of each word, from 1 on."""
    out: list[tuple[int, int]] = []
    for word in classes(text):
        for at in (word.start, word.end - 1):
            begin = text.rfind("\n", 0, at) + 1
            out.append((text.count("\n", 0, at) + 1, len(text[begin:at].encode()) + 1))
    return out


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, list[tuple[object, set[str]]]]:
    return groups(tmp_path_factory.mktemp("vim"), FILES)


def differences(words: list[tuple[object, set[str]]]) -> list[tuple[object, set[str]]]:
    return [(word, found) for word, found in words if {KINDS.get(g, g) for g in found} != {word.kind}]  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_word_of_every_file_has_its_group(path: Path, asked: dict[Path, list[tuple[object, set[str]]]]) -> None:
    assert differences(asked[path]) == []


def test_words_that_are_keywords_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "t.moe"
    file.write_text(TRICKY, encoding="utf-8")
    assert differences(groups(tmp_path, [file])[file]) == []


def test_lines_are_indented_as_the_formatter_does(tmp_path: Path) -> None:
    source = (ROOT / "stdlib" / "rules" / "mesh.moe").read_text(encoding="utf-8")
    file = tmp_path / "t.moe"
    file.write_text("".join(line.lstrip(" ") for line in source.splitlines(keepends=True)), encoding="utf-8")
    vim(tmp_path, "edit t.moe\nnormal! gg=G\nwrite\nqall!\n")
    assert file.read_text(encoding="utf-8") == source


def test_make_fills_the_quickfix_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moedsl_program(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "t.moe").write_text("seq 4k\npin tp=\n")
    ask = "edit t.moe\nsilent make\ncall writefile([json_encode(getqflist())], 'list.json')\nqall!\n"
    vim(tmp_path, ask)
    listed = [e for e in json.loads((tmp_path / "list.json").read_text()) if e["valid"]]
    assert next((e["lnum"], e["col"], e["type"]) for e in listed) == (2, 8, "E")


def test_declarations_fold(tmp_path: Path) -> None:
    ask = (
        "setlocal foldmethod=syntax\ncall writefile([json_encode([foldlevel(1), foldlevel(3)])], 'fold.json')\nqall!\n"
    )
    vim(tmp_path, f"edit {ROOT}/stdlib/hardware/h100.moe\n{ask}")
    assert json.loads((tmp_path / "fold.json").read_text()) == [0, 1]
