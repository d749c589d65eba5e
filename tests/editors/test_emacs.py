"""Emacs 30 in batch mode with editors/emacs/moe-mode.el: eglot attached to the real `moedsl lsp`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.editors.needs import moedsl_program, unpacked
from tests.helpers.paths import ROOT

SCRIPT = Path(__file__).with_name("emacs.el")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Step -> what it showed, or its error."""
    folder = tmp_path_factory.mktemp("emacs")
    emacs = unpacked("emacs-nox")
    share = emacs.root / "usr/share/emacs/30.1"
    own = {
        "PATH": f"{moedsl_program(folder).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "FILES": str(folder),
        "RESULTS": str(folder / "results.json"),
        "EMACSLOADPATH": ":".join(map(str, [share / "lisp", *(d for d in (share / "lisp").rglob("*") if d.is_dir())])),
        "EMACSDATA": str(share / "etc"),
        "EMACSDOC": str(share / "etc"),
    }
    dump = next(emacs.root.rglob("*.pdmp"))
    words = [*emacs.command("usr/bin/emacs-nox"), f"--dump-file={dump}", "--batch", "-Q"]
    words += ["-L", str(ROOT / "editors" / "emacs"), "-l", str(SCRIPT)]
    done = subprocess.run(words, env={**os.environ, **own}, capture_output=True, text=True, check=False)
    assert (folder / "results.json").exists(), done.stderr[-3000:]
    return json.loads((folder / "results.json").read_text())


def shown(results: dict[str, Any], step: str) -> Any:
    assert "shown" in results[step], results[step]["error"]
    return results[step]["shown"]


def test_diagnostics(results: dict[str, Any]) -> None:
    text, begin, end = shown(results, "diagnostics")
    assert "qwen3_30b_a3" in text
    assert (begin, end) == (7, 19)


def test_inlay_hints(results: dict[str, Any]) -> None:
    assert "ep=" in shown(results, "inlay_hints")


def test_hover(results: dict[str, Any]) -> None:
    assert "128" in shown(results, "hover")


def test_completion(results: dict[str, Any]) -> None:
    assert {"qwen3_30b_a3b", "qwen3_235b_a22b"} <= set(shown(results, "completion"))


def test_definition(results: dict[str, Any]) -> None:
    assert shown(results, "definition").startswith("model qwen3_30b_a3b")


def test_format(results: dict[str, Any]) -> None:
    assert shown(results, "format") == "model qwen3_30b_a3b\nh100 x 16\npin tp=1\n"


def test_rename(results: dict[str, Any]) -> None:
    assert shown(results, "rename").count("slack") == 2
