"""Neovim, headless, with the plugin under editors/nvim alone, and the real `moedsl lsp`: Debian 12's and a newer one."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.editors.needs import moedsl_program, program, unpacked
from tests.helpers.paths import ROOT
from tests.oracles.token_classes import FILES, TRICKY, classes, is_class
from tests.oracles.two_parsers import compiled

SCRIPT = Path(__file__).with_name("neovim.lua")
PLUGIN = ROOT / "editors" / "nvim"
STEPS = ("diagnostics", "hover", "completion", "definition", "rename", "format", "quick_fix")
NEWER = ("inlay_hints", "semantic_tokens")


class Run:
    """What one Neovim showed, step by step."""

    def __init__(self, command: Sequence[str], folder: Path, steps: Sequence[str], env: dict[str, str]) -> None:
        own = {
            "PATH": f"{moedsl_program(folder).parent}:{os.environ['PATH']}",
            "FILES": str(folder),
            "RESULTS": str(folder / "results.json"),
            "STEPS": " ".join(steps),
            "XDG_STATE_HOME": str(folder),
            "NVIM_LOG_FILE": str(folder / "nvim.log"),
        }
        words = [*command, "--headless", "--clean", "-n", "--cmd", f"set rtp^={PLUGIN}", "-c", f"luafile {SCRIPT}"]
        done = subprocess.run(words, env={**os.environ, **own, **env}, capture_output=True, text=True, check=False)
        assert (folder / "results.json").exists(), done.stderr
        self.results = json.loads((folder / "results.json").read_text())

    def shown(self, step: str) -> Any:
        result = self.results[step]
        assert "shown" in result, result["error"]
        return result["shown"]


@pytest.fixture(scope="module")
def debian12(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run([program("nvim", "neovim")], tmp_path_factory.mktemp("neovim"), STEPS, {})


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Run:
    neovim = unpacked("neovim")
    env = {"VIMRUNTIME": str(neovim.root / "usr/share/nvim/runtime")}
    parsers = ["--cmd", f"set rtp+={neovim.root}/usr/lib/nvim"]  # a hover is Markdown, which the newer one parses
    folder = tmp_path_factory.mktemp("neovim_newer")
    return Run([*neovim.command("usr/bin/nvim"), *parsers], folder, (*STEPS, *NEWER), env)


def test_the_server_starts_where_the_parser_is(tmp_path: Path) -> None:
    """Neovim 0.7 cannot start tree-sitter with the parser that the documentation builds; the server starts all the same."""
    neovim = program("nvim", "neovim")
    program("gcc", "gcc")
    (tmp_path / "parser").mkdir()
    shutil.copy(compiled(), tmp_path / "parser" / "moe.so")
    run = Run([neovim, "--cmd", f"set rtp+={tmp_path}"], tmp_path, ["diagnostics"], {})
    assert "qwen3_30b_a3" in run.shown("diagnostics")["message"]


@pytest.fixture(params=["debian12", "newer"])
def neovim(request: pytest.FixtureRequest) -> Run:
    return request.getfixturevalue(request.param)


def test_diagnostics(neovim: Run) -> None:
    found = neovim.shown("diagnostics")
    assert "qwen3_30b_a3" in found["message"]
    assert (found["line"], found["from"], found["to"]) == (0, 6, 18)


def test_hover(neovim: Run) -> None:
    assert "128" in "\n".join(neovim.shown("hover"))


def test_completion(neovim: Run) -> None:
    words = neovim.shown("completion")
    assert {"qwen3_30b_a3b", "qwen3_235b_a22b"} <= set(words)
    assert not [word for word in words if not word.startswith("qwen3_")]


def test_definition(neovim: Run) -> None:
    assert neovim.shown("definition")["line"].startswith("model qwen3_30b_a3b")


def test_rename(neovim: Run) -> None:
    lines = neovim.shown("rename")
    assert (lines[1], lines[4]) == ("  let slack = 2", "require spare: dp >= slack")


def test_format(neovim: Run) -> None:
    assert neovim.shown("format") == ["model qwen3_30b_a3b", "h100 x 16", "pin tp=1"]


def test_quick_fix(neovim: Run) -> None:
    assert neovim.shown("quick_fix")[0] == "model qwen3_30b_a3b"


def test_inlay_hints(newer: Run) -> None:
    assert "ep=" in " ".join(newer.shown("inlay_hints"))


def test_semantic_tokens(newer: Run) -> None:
    assert newer.shown("semantic_tokens")


# The tree-sitter grammar and its queries in a real Neovim: what it colours each word of every file by, and its
# folds.

CAPTURES = Path(__file__).with_name("nvim_captures.lua")


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
        [*command, "-c", f"luafile {CAPTURES}"],
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
