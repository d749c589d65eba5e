"""The tree-sitter grammar and its queries in a real Neovim: what it colours each word of every file by, and its folds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.editors.needs import program, unpacked
from tests.helpers.paths import ROOT
from tests.oracles.token_classes import FILES, TRICKY, classes, is_class
from tests.oracles.two_parsers import compiled

SCRIPT = Path(__file__).with_name("nvim_captures.lua")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], dict[str, Any]]:
    """The files, one of awkward words among them, and what Neovim said of them."""
    program("gcc", "gcc")
    neovim = unpacked("neovim")
    folder = tmp_path_factory.mktemp("nvim_treesitter")
    (folder / "parser").mkdir()
    shutil.copy(compiled(), folder / "parser" / "moe.so")
    (folder / "tricky.moe").write_text(TRICKY, encoding="utf-8")
    files = [*FILES, folder / "tricky.moe"]
    (folder / "places.json").write_text(json.dumps({str(path): _places(path) for path in files}))
    env = {
        "VIMRUNTIME": str(neovim.root / "usr/share/nvim/runtime"),
        "XDG_STATE_HOME": str(folder),
        "NVIM_LOG_FILE": str(folder / "nvim.log"),
        "FOLDED": str(ROOT / "stdlib" / "hardware" / "h100.moe"),
    }
    paths = f"set rtp^={ROOT / 'editors' / 'nvim'},{folder}"
    server = "let g:moedsl_cmd = ['no-such-program']"
    command = [*neovim.command("usr/bin/nvim"), "--headless", "--clean", "-n", "--cmd", paths, "--cmd", server]
    done = subprocess.run(
        [*command, "-c", f"luafile {SCRIPT}"],
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert (folder / "captures.json").exists(), done.stderr
    return files, json.loads((folder / "captures.json").read_text())


def _places(path: Path) -> list[tuple[int, int]]:
    """Row and byte of the start of each word, from 0 on."""
    text = path.read_text(encoding="utf-8")
    starts = [(word.start, text.rfind("\n", 0, word.start) + 1) for word in classes(text)]
    return [(text.count("\n", 0, at), len(text[begin:at].encode())) for at, begin in starts]


def test_every_word_is_coloured_by_its_class(asked: tuple[list[Path], dict[str, Any]]) -> None:
    files, answers = asked
    assert "error" not in answers, answers["error"]
    for path in files:
        found = list(zip(classes(path.read_text(encoding="utf-8")), answers[str(path)], strict=True))
        assert [(path.name, w, name) for w, name in found if not is_class(name, w.kind)] == []


def test_declarations_fold(asked: tuple[list[Path], dict[str, Any]]) -> None:
    _, answers = asked
    assert answers["fold"][-1] == 1
    assert max(answers["fold"]) == 1
