"""Homes: the folders in which NeMo-Run keeps experiments; a file lists those of clusters, for other processes."""

from __future__ import annotations

import os
import re
from pathlib import Path

from moedsl.diagnostics.model import Diagnostic, error
from moedsl.launch.nemo import HOME


def known() -> list[Path]:
    """NeMo-Run's own folder, and the folders of clusters that were submitted to."""
    own = os.environ.get(HOME) or "~/.nemo_run"
    return list(dict.fromkeys([Path(own).expanduser().absolute(), *_listed()]))


def text() -> str:
    """All of them, in words."""
    return " or ".join(map(str, known()))


def _listed() -> list[Path]:
    return [Path(line) for line in _file().read_text().splitlines()] if _file().exists() else []


def remember(home: Path) -> None:
    """So that `moedsl jobs` finds it in another process too: in this one NeMo-Run's own folder is `home` already."""
    if home not in _listed():
        _file().parent.mkdir(parents=True, exist_ok=True)
        with _file().open("a") as file:
            file.write(f"{home}\n")


def _file() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "moedsl" / "homes"


def refusal(home: Path) -> Diagnostic | None:
    """Why NeMo-Run cannot keep experiments there: it puts the path into commands unquoted."""
    if re.fullmatch(r"[A-Za-z0-9/._~+@%=-]+", str(home)):
        return None
    text = f"experiments would be kept in {str(home)!r}, and NeMo-Run puts that path into commands unquoted"
    return error("launch.home", text, help=f"set {HOME} to a folder without blanks or signs of the shell")


def unwritable(home: Path, problem: OSError) -> Diagnostic:
    """What a folder of experiments says that takes no file."""
    text = f"not submitted: nothing can be kept in {home}: {problem.strerror or problem}"
    help = f"`job_dir` of the cluster (on a login node) or {HOME} names another folder"
    return error("launch.home", text, help=help)
