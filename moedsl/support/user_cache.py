"""The user's cache folder, and whether anybody else could change what is in it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_ME = os.getuid() if hasattr(os, "getuid") else 0
"""This user; where files have no owner, their owner is 0."""


def folder() -> Path:
    """``$XDG_CACHE_HOME/moedsl``, else ``~/.cache/moedsl``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path(os.path.expanduser("~")) / ".cache") / "moedsl"


def is_private(directory: Path) -> bool:
    """Whether only this user may write to a directory, and nobody else but root may replace it or one above it."""
    found, above = directory.stat(), {*directory.absolute().parents, *directory.resolve().parents}
    only_ours = found.st_uid == _ME and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return only_ours and all(_keeps(p.lstat()) for p in above)


def _keeps(found: os.stat_result) -> bool:
    """Whether nobody else can replace what is in a directory, or the target of a link.

    In a sticky directory only an entry's owner can. A group with the user's number is the user's own, and where users
    have such groups, folders are usually writable to them.
    """
    others = stat.S_IWOTH if found.st_gid == _ME else stat.S_IWOTH | stat.S_IWGRP
    shared = found.st_mode & others and not found.st_mode & stat.S_ISVTX and not stat.S_ISLNK(found.st_mode)
    return found.st_uid in (0, _ME) and not shared
