"""Let one process at a time write the files of a folder, and remove what killed ones left there.

The kernel frees the lock of a process that ends, however it ends. So a stage that is there while this process holds the
lock is of a writer that was killed. A file system may know only the locks of one host, so stages of other hosts stay.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

STAGE = f".moedsl-{os.uname().nodename}-"
"""The start of the name of a folder of staged files."""
LOCK = ".moedsl-lock"
PATIENCE_S = 10.0
"""Seconds to wait for another writer."""
_STAGED = re.compile(r"\d+(\.old)?")


@contextmanager
def held(folder: Path) -> Generator[None]:
    """Hold the lock of a folder, if its file system has locks; raises TimeoutError if another process keeps it."""
    path = folder / LOCK
    handle = _taken(path)
    if handle is None:
        yield
        return
    try:
        _clean(folder)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _taken(path: Path) -> int | None:
    """Take the lock; None if there are no locks here, or the file is what a killed writer of another user left."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except PermissionError:
            return None
        locked = _lock(handle, path)
        if locked:
            return handle
        os.close(handle)
        if locked is None:
            return None
        time.sleep(0.01)
    raise TimeoutError("another moedsl is writing there")


def _lock(handle: int, path: Path) -> bool | None:
    """Lock the file; False if another process has it or has removed it, None if the file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(handle), path.stat())
    except (BlockingIOError, FileNotFoundError):
        return False
    except OSError:
        return None


def _clean(folder: Path) -> None:
    for left in folder.glob(f"{STAGE}*"):
        found = left.lstat()
        ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
        if ours and all(_STAGED.fullmatch(p.name) for p in left.iterdir()):
            shutil.rmtree(left, ignore_errors=True)
