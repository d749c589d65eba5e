"""Store files that may be lost at any time in the user's cache directory, which may be unwritable.

Some entries are pickles, and reading a pickle runs what it says. So an entry is read only if its file and its directory
are the user's own, and nobody else can write to them or put others in their place.
"""

from __future__ import annotations

import gc
import hashlib
import os
import pickle
import stat
import sys
from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from moedsl.support import resources

PACKAGES = ("support", "lang")
"""The packages that a parsed module depends on."""

MOST = 500
"""The most entries to store, a few more until the oldest go."""
PRUNED_EVERY = 50
"""Entries that a process stores between two looks at all of them."""
_ME = os.getuid() if hasattr(os, "getuid") else 0
"""This user; where files have no owner, their owner is 0."""


def cache_dir() -> Path:
    """``$XDG_CACHE_HOME/moedsl``, else ``~/.cache/moedsl``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path(os.path.expanduser("~")) / ".cache") / "moedsl"


@cache
def version() -> str:
    """Hash everything that a parsed module depends on besides its text: grammar, syntax tree, parser, Python."""
    digest = hashlib.sha256(repr(sys.version_info[:3]).encode())
    digest.update(resources.code(*PACKAGES))
    digest.update(resources.tables_file().read_bytes())
    return digest.hexdigest()[:16]


def path_for(name: str) -> Path | None:
    """The path of an entry of this version, with its directory made; None if that is impossible or not private."""
    directory = cache_dir() / version()
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        private = is_private(directory)
    except OSError:
        return None
    return directory / name if private and os.access(directory, os.W_OK) else None


def load(name: str) -> bytes | None:
    """Load what `save` stored, or None: missing, unreadable, damaged, or writable by somebody else."""
    directory = cache_dir() / version()
    try:
        if not is_private(directory):
            return None
        with (directory / name).open("rb") as f:
            data = f.read() if _only_ours(os.fstat(f.fileno())) else b""
    except OSError:
        return None
    digest, body = data[:32], data[32:]
    return body if hashlib.sha256(body).digest() == digest else None


def is_private(directory: Path) -> bool:
    """Whether only this user may write to a directory, and nobody else but root may replace it or one above it."""
    path = os.path.abspath(directory)
    above = {*_above(path), *_above(os.path.realpath(path))}
    return _only_ours(os.stat(path)) and all(_keeps(os.lstat(p)) for p in above)


def _above(path: str) -> Iterator[str]:
    """The directories that a path is in; as texts, since each read and write of an entry asks."""
    while (parent := os.path.dirname(path)) != path:
        yield parent
        path = parent


def _keeps(found: os.stat_result) -> bool:
    """Whether nobody else can replace what is in a directory, or the target of a link.

    In a sticky directory only an entry's owner can. A group with the user's number is the user's own, and where users
    have such groups, folders are usually writable to them.
    """
    others = stat.S_IWOTH if found.st_gid == _ME else stat.S_IWOTH | stat.S_IWGRP
    shared = found.st_mode & others and not found.st_mode & stat.S_ISVTX and not stat.S_ISLNK(found.st_mode)
    return found.st_uid in (0, _ME) and not shared


def _only_ours(found: os.stat_result) -> bool:
    """Whether this user owns a file, and nobody else may write to it."""
    return found.st_uid == _ME and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def load_value(name: str) -> Any:
    """Unpickle what `save_value` stored; None if there is nothing or it cannot be read."""
    body = load(name)
    if body is None:
        return None
    collecting = gc.isenabled()
    gc.disable()
    try:
        return pickle.loads(body)
    except (pickle.UnpicklingError, AttributeError, ImportError, EOFError, IndexError, TypeError, ValueError):
        return None
    finally:
        if collecting:
            gc.enable()


_saves = count()


def save_value(name: str, value: Any) -> bool:
    """Store a value as a pickle; False if the directory cannot be written."""
    return save(name, pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


def save(name: str, body: bytes) -> bool:
    """Store bytes under a name in one step; False if the directory cannot be written."""
    path = path_for(name)
    if path is None:
        return False
    import tempfile  # not on the way of a start that finds what it looks for

    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as f:
            f.write(hashlib.sha256(body).digest() + body)
        os.replace(temporary, path)
        if next(_saves) % PRUNED_EVERY == 0:
            _prune(path.parent)
    except OSError:
        return False
    return True


def _prune(directory: Path) -> None:
    """Remove the oldest entries beyond `MOST`."""
    entries = sorted(directory.iterdir(), key=lambda p: p.stat().st_mtime, reverse=True)
    for old in entries[MOST:]:
        old.unlink(missing_ok=True)
