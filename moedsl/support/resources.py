"""Find what lies on this machine: the files that ship with moedsl, other distributions, and the user's cache folder.

The grammar, the stdlib and the examples are in a wheel in ``moedsl/_data``, in a checkout next to the package.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
DOCUMENTS = "documents"


def installed() -> bool:
    """Whether this is an installed wheel, no checkout."""
    return (PACKAGE / "_data" / "grammar").is_dir()


def data_dir(name: str) -> Path:
    """The directory of `name` (``grammar``, ``stdlib`` or ``examples``)."""
    return PACKAGE / "_data" / name if installed() else PACKAGE.parent / name


def grammar_file() -> Path:
    """The one grammar of .moe files."""
    return data_dir("grammar") / "moe.lark"


def stdlib_dir() -> Path:
    """The root folder of the stdlib. Diagnostics show its files with paths relative to this folder's parent."""
    return data_dir("stdlib")


def stdlib_files() -> list[Path]:
    """Every .moe file of the stdlib that a plan needs, sorted by path."""
    return sorted(path for path in stdlib_dir().glob("*/*.moe") if path.parent.name != DOCUMENTS)


def document_files() -> list[Path]:
    """The .moe files of the documents' claims, sorted by path."""
    return sorted((stdlib_dir() / DOCUMENTS).glob("*.moe"))


def example_files() -> list[Path]:
    """The .moe files of the examples, sorted by path."""
    return sorted(data_dir("examples").rglob("*.moe"))


def installed_version(name: str) -> str | None:
    """The version in the name of the first ``NAME-VERSION.dist-info`` on the path: importlib.metadata is slow."""
    for entry in filter(os.path.isdir, sys.path):
        for found in os.listdir(entry):
            if found.startswith(f"{name}-") and found.endswith(".dist-info"):
                return found.removeprefix(f"{name}-").removesuffix(".dist-info")
    return None


def child_environment() -> dict[str, str]:
    """The environment of this process for a child Python and all that the child starts.

    It does not search the working directory for modules: a `torch.py` may lie there. The child finds the same moedsl,
    even if this process found it in the working directory.
    """
    root, path = str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")
    first = [] if root in sys.path[1:] else [root]
    return {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(filter(None, [*first, path]))}


_ME = os.getuid() if hasattr(os, "getuid") else 0
"""This user; where files have no owner, their owner is 0."""


def cache_folder() -> Path:
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
