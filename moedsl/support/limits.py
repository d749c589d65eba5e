"""Limits of what planning may spend: seconds of a core, in any thread, and memory of the process.

The language server, the page of `serve` and the Python API set them. A command line has none: Ctrl-C ends it.
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
    """A part of the work: a run of a program, or a file."""

    @property
    def name(self) -> str: ...


class File(NamedTuple):
    """A file that somebody else wrote."""

    name: str


class TooLarge(KeyboardInterrupt):
    """The work at a `part` is above a limit. It undoes what Ctrl-C undoes."""

    def __init__(self, limit: str, part: Part | None = None) -> None:
        super().__init__(limit)
        self.limit, self.part = limit, part


_part: ContextVar[Part | None] = ContextVar("part", default=None)
_megabytes: ContextVar[float] = ContextVar("megabytes", default=0)
"""The limit of memory that holds in this thread; 0 without one."""
_check: ContextVar[Callable[[], None]] = ContextVar("check", default=lambda: None)


def too_large(limit: str) -> TooLarge:
    """Make the TooLarge exception of a limit; it names the part, such as a run or a file, that this thread is working
    on.
    """
    return TooLarge(limit, _part.get())


@contextmanager
def of_part(part: Part) -> Generator[None]:
    """Let a limit that is reached in here name this part."""
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
    """Raise what stops the search of this thread, if something does. The search calls it between its parts."""
    _check.get()()


@contextmanager
def stopped_by(check: Callable[[], None]) -> Generator[None]:
    """Let `go_on` call this."""
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


@contextmanager
def stopped_after(seconds: float) -> Generator[None]:
    """Let `go_on` raise TooLarge once this thread has used so many seconds of a core."""
    end = time.thread_time() + seconds

    def check() -> None:
        if time.thread_time() > end:
            raise too_large(f"needs more than {seconds:g} s of a core")

    with stopped_by(check):
        yield


_one_at_a_time = threading.Lock()


@contextmanager
def within_memory(megabytes: float) -> Generator[None]:
    """Raise TooLarge if so many MB more are allocated in here, where the kernel counts them (Linux).

    The limit is the process's, so other threads meet it too, and of several threads one is in here at a time.
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
