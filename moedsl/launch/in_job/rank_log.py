"""Copy the output of one rank into a log of its own, which is rotated: a second process, which outlives a crash.

rank.py imports this file in jobs whose ranks have logs; it needs no package, and nothing newer than Python 3.8.
"""

from __future__ import annotations

import atexit
import fcntl
import logging
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from logging.handlers import RotatingFileHandler

LARGEST = 16 << 20
"""The most bytes of a log; a full one becomes `rank-N.log.1`, in place of the one before."""
PIECE = 1 << 12
"""The most bytes that one call writes, so that lines of ranks do not mix in a pipe."""
CLEAN = b"\0"
"""The last byte of a rank that ends by itself; one that is killed has no last word."""
DRAIN_S = 2.0
"""Seconds that the last lines may take."""


def keep(folder: str, killed: Callable[[], str]) -> None:
    """Copy what this process prints from now on; `killed` is the last line of one that does not end by itself."""
    path = os.path.join(folder, "rank-{}.log".format(os.environ.get("RANK", "0")))
    try:
        os.makedirs(folder, exist_ok=True)
        if os.path.islink(path):  # the log would be written to its target
            os.unlink(path)
        log = RotatingFileHandler(path, maxBytes=LARGEST, backupCount=1, encoding="utf-8")
        log.terminator = ""
        copies = os.open(__file__, os.O_RDONLY)  # who locks it alone waits for all copiers of this job on this node
    except OSError as problem:
        print(f"this rank has no log of its own: {problem}", file=sys.stderr, flush=True)
        return
    pipes = {stream: os.pipe() for stream in (1, 2)}
    with suppress(OSError):
        fcntl.flock(copies, fcntl.LOCK_SH)
    copier = os.fork()
    if copier == 0:
        for _, end in pipes.values():
            os.close(end)
        try:
            if not copy({start: stream for stream, (start, _) in pipes.items()}, log):
                emit(log, f"{killed()}\n".encode())
        finally:
            os._exit(0)
    os.close(copies)
    for stream, (start, end) in pipes.items():
        os.dup2(end, stream)
        os.close(start)
        os.close(end)
    atexit.register(finish, copier)  # the first that is registered is the last that runs


def finish(copier: int) -> None:
    """Wait until the copier has written everything."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(1, CLEAN)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    until = time.monotonic() + DRAIN_S
    while time.monotonic() < until and os.waitpid(copier, os.WNOHANG) == (0, 0):
        time.sleep(0.005)


def copy(pipes: dict[int, int], log: logging.Handler) -> bool:
    """Copy whole lines of each pipe to its stream and to the log, until the end; whether the rank ended by itself."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    logging.raiseExceptions = False  # a full disk costs the log, and nothing else
    rests, is_clean = dict.fromkeys(pipes, b""), False
    with selectors.DefaultSelector() as ready:
        for pipe in pipes:
            ready.register(pipe, selectors.EVENT_READ)
        while ready.get_map():
            for key, _ in ready.select():
                data = os.read(key.fd, 1 << 16)
                is_clean = is_clean or data.endswith(CLEAN)
                text = rests[key.fd] + data.rstrip(CLEAN)
                end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1 if data else len(text)
                rests[key.fd] = text[end:]
                for piece in pieces(text[:end]):
                    with suppress(OSError):  # of a reader that has gone
                        os.write(pipes[key.fd], piece)
                emit(log, text[:end])
                if not data:
                    ready.unregister(key.fd)
    return is_clean


def pieces(text: bytes) -> Iterator[bytes]:
    """Cut a text for calls that write: after the ends of lines, except in a line that is longer than a piece."""
    while text:
        end = max(text.rfind(b"\n", 0, PIECE), text.rfind(b"\r", 0, PIECE)) + 1 if len(text) > PIECE else 0
        yield text[: end or PIECE]
        text = text[end or PIECE :]


def emit(log: logging.Handler, text: bytes) -> None:
    """Append to the log, or begin another one if it is full."""
    if text:
        log.emit(logging.makeLogRecord({"msg": text.decode(errors="replace")}))
