"""Find files on this machine: those that ship with moedsl, other distributions, and the user's cache folder.

The grammar, the stdlib and the examples are in ``moedsl/_data`` in a wheel, next to the package in a checkout.
"""

from __future__ import annotations

import os
import pwd
import stat
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
DOCUMENTS = "documents"


def installed() -> bool:
    """Whether this is an installed wheel, not a checkout."""
    return (PACKAGE / "_data" / "grammar").is_dir()


def data_dir(name: str) -> Path:
    """Return the directory of `name` (``grammar``, ``stdlib`` or ``examples``)."""
    return PACKAGE / "_data" / name if installed() else PACKAGE.parent / name


def grammar_file() -> Path:
    """Return the grammar of .moe files."""
    return data_dir("grammar") / "moe.lark"


def stdlib_dir() -> Path:
    """Return the root folder of the stdlib. Diagnostics show its files as paths relative to this folder's parent."""
    return data_dir("stdlib")


def stdlib_files() -> list[Path]:
    """Return every .moe file of the stdlib that a plan needs, sorted by path."""
    return sorted(path for path in stdlib_dir().glob("*/*.moe") if path.parent.name != DOCUMENTS)


def document_files() -> list[Path]:
    """Return the .moe files with the documents' claims, sorted by path."""
    return sorted((stdlib_dir() / DOCUMENTS).glob("*.moe"))


def example_files() -> list[Path]:
    """Return the examples' .moe files, sorted by path."""
    return sorted(data_dir("examples").rglob("*.moe"))


def installed_version(name: str) -> str | None:
    """Read the version of a package from the first ``NAME-VERSION.dist-info`` on the path; None if it is not installed.

    importlib.metadata would be slower.
    """
    for entry in filter(os.path.isdir, sys.path):
        for found in os.listdir(entry):
            if found.startswith(f"{name}-") and found.endswith(".dist-info"):
                return found.removeprefix(f"{name}-").removesuffix(".dist-info")
    return None


def child_environment() -> dict[str, str]:
    """Return this process's environment, changed for a child Python and its children.

    They do not search the working directory for modules, as it may contain a `torch.py`, but find the same moedsl, even
    if this process found it in the working directory.
    """
    root, path = str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")
    first = [] if root in sys.path[1:] else [root]
    return {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(filter(None, [*first, path]))}


_ME = os.getuid() if hasattr(os, "getuid") else 0
"""This user's id; 0 where files have no owners."""


def user_home() -> Path:
    """Return the user's home: ``$HOME``, unless it is a relative path, which would be below the working directory."""
    found = Path(os.path.expanduser("~"))
    return found if found.is_absolute() else Path(pwd.getpwuid(os.getuid()).pw_dir)


def xdg_folder(variable: str, otherwise: str) -> Path:
    """Return the folder that an XDG variable names, else `otherwise` below the home; XDG ignores relative paths too."""
    named = Path(os.environ.get(variable, ""))
    return named if named.is_absolute() else user_home() / otherwise


def cache_folder() -> Path:
    """Return ``$XDG_CACHE_HOME/moedsl``, else ``~/.cache/moedsl``."""
    return xdg_folder("XDG_CACHE_HOME", ".cache") / "moedsl"


def is_private(directory: Path) -> bool:
    """Whether only this user may write to a directory, and only this user or root may replace it or a parent."""
    found, above = directory.stat(), {*directory.absolute().parents, *directory.resolve().parents}
    only_ours = found.st_uid == _ME and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return only_ours and all(_keeps(p.lstat()) for p in above)


def _keeps(found: os.stat_result) -> bool:
    """Whether only this user or root can replace what a directory contains, or where a link points.

    In a sticky directory only an entry's owner can replace it. A group with the user's number is the user's own group,
    to which folders are usually writable.
    """
    others = stat.S_IWOTH if found.st_gid == _ME else stat.S_IWOTH | stat.S_IWGRP
    shared = found.st_mode & others and not found.st_mode & stat.S_ISVTX and not stat.S_ISLNK(found.st_mode)
    return found.st_uid in (0, _ME) and not shared
