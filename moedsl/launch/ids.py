"""Ids of experiments: a title, the first number that is free in their home, and that home's mark if it needs one.

``TITLE_3`` if an experiment's folder is the one that its jobs use, so that making it decides who has the number.
``TITLE_3-k7f3qx`` if it is a copy reached through ssh: two machines that submit to one `job_dir` do not know each
other, and use the same numbers. The mark is drawn once for each home, so a dry run prints what will be sent.
"""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

FILE = ".mark"
LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
"""Without characters that look alike."""
LENGTH = 6
"""Letters of a mark: a thousand homes have two alike with a chance of one in 1,800."""


def ids(title: str, ending: str) -> Iterator[str]:
    """Every id of a title, the lowest number first. NeMo-Run reads the title off the last ``_`` of an id."""
    return (f"{title}_{number}{ending}" for number in itertools.count())


def first(title: str, base: Path, ending: str) -> str:
    """The first id of a title that no experiment below `base` has."""
    folder = base / "experiments" / title
    return next(id for id in ids(title, ending) if not (folder / id).exists())


def ending(home: Path, shared: bool) -> str:
    """What the ids of a home end in: its mark where other homes use the same folder of a cluster, else nothing."""
    return f"-{mark(home)}" if shared else ""


def mark(home: Path) -> str:
    """The mark of a home, drawn when it is first asked for; OSError where it can be neither read nor kept."""
    file = home / FILE
    if not file.exists():
        home.mkdir(parents=True, exist_ok=True)
        _draw(file)
    return file.read_text(encoding="ascii").strip()


def _draw(file: Path) -> None:
    """Writes a mark whole or, where another process has just done so, not at all."""
    drawn = "".join(secrets.choice(LETTERS) for _ in range(LENGTH))
    own = file.with_name(f"{file.name}.{drawn}")
    own.write_text(drawn, encoding="ascii")
    with suppress(FileExistsError):
        os.link(own, file)
    own.unlink()
