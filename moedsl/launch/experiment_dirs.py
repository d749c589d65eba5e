"""Choose homes, titles and ids of experiments.

A home is a folder in which NeMo-Run keeps experiments; a file lists those of clusters, for other processes. An id is a
title, the first number that is free in the home, and the home's mark if needed: ``TITLE_3`` if the jobs use the
experiment's own folder, because making the folder reserves the number; ``TITLE_3-k7f3qx`` if the jobs use a copy over
ssh, because two machines that submit to the same `job_dir` count separately. The mark is drawn once for each home, so
that a dry run prints what will be sent.
"""

from __future__ import annotations

import itertools
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePath

from moedsl.launch.nemo import HOME
from moedsl.support.diagnostics import Diagnostic, error


def known() -> list[Path]:
    """NeMo-Run's own folder, and those of the folders of clusters with submitted jobs that are there."""
    own = os.environ.get(HOME) or "~/.nemo_run"
    return list(dict.fromkeys([Path(own).expanduser().absolute(), *filter(Path.is_dir, _listed())]))


def text() -> str:
    """Write all homes as a sentence."""
    return " or ".join(map(str, known()))


def _listed() -> list[Path]:
    return [Path(line) for line in _file().read_text().splitlines()] if _file().exists() else []


def remember(home: Path) -> None:
    """Remember a home, so that `moedsl jobs` finds it in other processes."""
    if home not in _listed():
        _file().parent.mkdir(parents=True, exist_ok=True)
        with _file().open("a") as file:
            file.write(f"{home}\n")


def _file() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "moedsl" / "homes"


def refusal(home: Path) -> Diagnostic | None:
    """Refuse a home whose path NeMo-Run would put into commands without quotes."""
    if re.fullmatch(r"[A-Za-z0-9/._~+@%=-]+", str(home)):
        return None
    text = f"the folder of experiments is {str(home)!r}, and NeMo-Run does not quote it in commands"
    return error("launch.home", text, help=f"set {HOME} to a folder without blanks and shell characters")


def unwritable(home: Path, problem: OSError) -> Diagnostic:
    """Report a home that cannot be written."""
    text = f"not submitted: {home} is not writable: {problem.strerror or problem}"
    help = f"`job_dir` of the cluster (on a login node) or {HOME} names another folder"
    return error("launch.home", text, help=help)


LONGEST = 100
"""The longest title; a folder's name has at most 255 bytes with the number and the mark."""
_SIGNS = "_.-"


def title(jobs: Sequence[str], source: str = "") -> str:
    """Make a title of letters, digits and a few other characters: the name of one job, or the stem of the file
    `source`.

    If there is no file (``<text>``, ``<stdin>``) or its stem has no such characters, it is the common prefix of the
    jobs' names.
    """
    if len(jobs) == 1:
        return jobs[0]
    stem = "" if not source or source.startswith("<") else PurePath(source).stem
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", stem)[:LONGEST].strip(_SIGNS) or _shared(jobs) or "runs"


def _shared(jobs: Sequence[str]) -> str:
    """The common prefix of names: ``a_16gpu_h100.main`` of ``a_16gpu_h100.main.ep_8``, ``a_16gpu_h100.main.tp_2``."""
    each = zip(*(re.findall(rf"[^{_SIGNS}]*[{_SIGNS}]?", job) for job in jobs), strict=False)
    return "".join(words[0] for words in itertools.takewhile(lambda words: len(set(words)) == 1, each)).strip(_SIGNS)


MARK_FILE = ".mark"
MARK_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
"""Letters and digits that do not look alike."""
MARK_LENGTH = 6
"""Letters of a mark: among a thousand homes, two marks are equal with a chance of one in 1,800."""


def ids(title: str, id_ending: str) -> Iterator[str]:
    """Every id of a title, the lowest number first. NeMo-Run takes the title from the part before the last ``_``."""
    return (f"{title}_{number}{id_ending}" for number in itertools.count())


def first_id(title: str, base: Path, id_ending: str) -> str:
    """The first free id of a title below `base`."""
    folder = base / "experiments" / title
    return next(id for id in ids(title, id_ending) if not (folder / id).exists())


def id_ending(home: Path, shared: bool) -> str:
    """The end of the ids of a home: its mark if other homes use the same folder of a cluster, else nothing."""
    return f"-{mark(home)}" if shared else ""


def mark(home: Path) -> str:
    """The mark of a home, drawn at the first call; OSError if it can be neither read nor written."""
    file = home / MARK_FILE
    if not file.exists():
        home.mkdir(parents=True, exist_ok=True)
        drawn = "".join(secrets.choice(MARK_LETTERS) for _ in range(MARK_LENGTH))
        own = file.with_name(f"{file.name}.{drawn}")
        own.write_text(drawn, encoding="ascii")
        with suppress(FileExistsError):  # another process has just drawn one
            os.link(own, file)
        own.unlink()
    return file.read_text(encoding="ascii").strip()
