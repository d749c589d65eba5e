"""Ports of this machine that no other test takes, kept by a lock each: below those that Linux hands out by itself, which a
connection of any process may have by the time that a server takes it."""

import fcntl
import os
import socket
import tempfile
from pathlib import Path
from typing import IO

FIRST, END = 10000, 17000
"""Those of the Slurms of the tests begin where these end."""
_kept: list[IO[str]] = []
"""The locks, which go with this process."""


def kept() -> int:
    """A port that is free, for this process until its end."""
    folder = Path(tempfile.gettempdir(), f"moedsl-ports-{os.getuid()}")  # another user's are not ours to open
    folder.mkdir(exist_ok=True)
    for port in range(FIRST, END):
        lock = (folder / str(port)).open("w")
        if is_locked(lock) and is_free(port):
            _kept.append(lock)
            return port
        lock.close()
    raise RuntimeError(f"no free port from {FIRST} on")


def is_locked(file: IO[str]) -> bool:
    """Whether this process has the lock of a file now."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_free(port: int) -> bool:
    """Whether nobody listens at a port."""
    with socket.socket() as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind(("", port))
        except OSError:
            return False
    return True
