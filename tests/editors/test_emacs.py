"""Emacs 30 in batch mode with editors/emacs/moe-mode.el: eglot attached to the real `moedsl lsp`."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.editors.needs import moedsl_program, unpacked
from tests.helpers.paths import ROOT
from tests.oracles.token_classes import FILES, TRICKY, Classed, classes

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


# The Emacs mode in a real Emacs: the face of every word of every file, the indent, eglot's registration.

KINDS = {
    "font-lock-comment-face": "comment", "font-lock-comment-delimiter-face": "comment",
    "font-lock-string-face": "string", "moe-number": "number", "moe-keyword": "keyword", "moe-clause": "clause",
    "moe-link": "link", "moe-word-operator": "wordop", "moe-constant": "constant", "moe-declared": "declared",
    "moe-axis": "axis", "moe-function": "function", "moe-value": "value", "nil": "name symbol",
}  # fmt: skip
ASK = Path(__file__).with_name("ask.el").read_text(encoding="utf-8")
INDENT = """
(find-file "t.moe")
(indent-region (point-min) (point-max))
(save-buffer)
(require 'eglot)
(princ (prin1-to-string (funcall (cdr (assq 'moe-mode eglot-server-programs)))))
(princ (prin1-to-string (mapcar #'car (imenu--make-index-alist t))))
"""


def emacs(folder: Path, script: str) -> str:
    """What a script prints in `folder`, with moe-mode loaded."""
    found = unpacked("emacs-nox")
    (release,) = (found.root / "usr/share/emacs").glob("[0-9]*")
    (dump,) = (found.root / "usr/libexec/emacs").rglob("*.pdmp")
    (folder / "script.el").write_text(script, encoding="utf-8")
    command = [*found.command("usr/bin/emacs-nox"), "--dump-file", str(dump), "--batch", "-Q"]
    files = ["-l", str(ROOT / "editors/emacs/moe-mode.el"), "-l", "script.el"]
    places = {
        "EMACSLOADPATH": f"{release}/lisp",
        "EMACSDATA": f"{release}/etc",
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
    }
    env = {**os.environ, **places}
    done = subprocess.run(
        [*command, *files], cwd=folder, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def faces(folder: Path, files: Sequence[Path]) -> dict[Path, list[tuple[Classed, str]]]:
    """The face at the start of each word of each file."""
    words = {path: classes(path.read_text(encoding="utf-8")) for path in files}
    places = {str(path): [word.start + 1 for word in found] for path, found in words.items()}
    (folder / "places.json").write_text(json.dumps(places))
    emacs(folder, ASK)
    found = json.loads((folder / "faces.json").read_text())
    return {path: list(zip(words[path], found[str(path)], strict=True)) for path in files}


def differences(words: list[tuple[Classed, str]]) -> list[tuple[Classed, str]]:
    return [(word, face) for word, face in words if word.kind not in KINDS.get(face, face).split()]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, list[tuple[Classed, str]]]:
    return faces(tmp_path_factory.mktemp("emacs"), FILES)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_word_of_every_file_has_its_face(path: Path, asked: dict[Path, list[tuple[Classed, str]]]) -> None:
    assert differences(asked[path]) == []


def test_words_that_are_keywords_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "t.moe"
    file.write_text(TRICKY, encoding="utf-8")
    assert differences(faces(tmp_path, [file])[file]) == []


def test_indent_eglot_and_imenu(tmp_path: Path) -> None:
    source = (ROOT / "stdlib" / "rules" / "mesh.moe").read_text(encoding="utf-8")
    file = tmp_path / "t.moe"
    file.write_text("".join(line.lstrip(" ") for line in source.splitlines(keepends=True)), encoding="utf-8")
    printed = emacs(tmp_path, INDENT)
    assert file.read_text(encoding="utf-8") == source
    assert '("moedsl" "lsp")' in printed
    assert '"mesh"' in printed
