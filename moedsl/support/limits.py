"""Limit what planning may use: core seconds of a thread, and memory of the process.

The language server, the page of `serve` and the Python API set limits. The command line has none, as Ctrl-C ends it.
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, Protocol


class Part(Protocol):
    """A part of the work that an error can name: a run of a program, or a file."""

    @property
    def name(self) -> str: ...


class File(NamedTuple):
    """A file that somebody else wrote, as the part of the work."""

    name: str


class TooLarge(KeyboardInterrupt):
    """The work on `part` exceeds a limit. As a KeyboardInterrupt, it is cleaned up like Ctrl-C."""

    def __init__(self, limit: str, part: Part | None = None) -> None:
        super().__init__(limit)
        self.limit, self.part = limit, part


_part: ContextVar[Part | None] = ContextVar("part", default=None)
_megabytes: ContextVar[float] = ContextVar("megabytes", default=0)
"""This thread's memory limit in MB; 0 if there is none."""
_check: ContextVar[Callable[[], None]] = ContextVar("check", default=lambda: None)


def too_large(limit: str) -> TooLarge:
    """Return a TooLarge for a limit; it names the part (a run or a file) that this thread works on."""
    return TooLarge(limit, _part.get())


@contextmanager
def of_part(part: Part) -> Generator[None]:
    """Name this part in any limit error raised inside."""
    token = _part.set(part)
    try:
        yield
    except MemoryError as error:
        if not _megabytes.get():
            raise
        raise _too_much() from error
    finally:
        _part.reset(token)


def _too_much() -> TooLarge:
    return too_large(f"needs more than {_megabytes.get():g} MB of memory")


def go_on() -> None:
    """Raise TooLarge or another exception if this thread should stop; the search calls it between its steps."""
    _check.get()()


@contextmanager
def stopped_by(check: Callable[[], None]) -> Generator[None]:
    """Make `go_on` call `check` inside."""
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


@contextmanager
def stopped_after(seconds: float) -> Generator[None]:
    """Make `go_on` raise TooLarge once this thread has used so many core seconds inside."""
    end = time.thread_time() + seconds

    def check() -> None:
        if time.thread_time() > end:
            raise too_large(f"needs more than {seconds:g} s of a core")

    with stopped_by(check):
        yield


_one_at_a_time = threading.Lock()


@contextmanager
def within_memory(megabytes: float) -> Generator[None]:
    """Raise TooLarge if more than so many further MB are allocated inside, where the kernel counts them (Linux).

    The limit applies to the whole process, so it also affects other threads; only one thread at a time may be inside.
    """
    try:
        with open("/proc/self/statm", encoding="ascii") as f:
            held = int(f.read().split()[5]) * resource.getpagesize()
    except OSError:
        yield
        return
    with _one_at_a_time:
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = min(n for n in (held + int(megabytes * 1e6), soft, hard) if n != resource.RLIM_INFINITY)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
        token = _megabytes.set(megabytes)
        try:
            yield
        except MemoryError as error:
            raise _too_much() from error
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
            _megabytes.reset(token)
