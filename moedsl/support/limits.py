"""Bound what a command spends: 55 s of a core and 500 MB, whatever number of runs or files it is given.

Only the command line turns this on. A thread has no signals; there `stopped_by` lets the search ask whether to go on.
"""

from __future__ import annotations

import resource
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, Protocol

SECONDS = 55.0
"""Of a core; with its start and its output a command needs less than 60."""
MEMORY = 420_000_000
"""Bytes that a command may allocate; with Python and all imports they are less than 500 MB."""


class Part(Protocol):
    """A part of the work: a run of a program, or a file."""

    @property
    def name(self) -> str: ...


class File(NamedTuple):
    """A file that somebody else wrote."""

    name: str
    help: str = "is this the right file? Of a long log, give the end: `tail -c 100M LOG | moedsl diagnose -`"


class Place(NamedTuple):
    """Where the work is: at a part, after `done` of the `of` parts of its kind; `did` says what was done to those."""

    part: Part
    done: int = 0
    of: int = 1
    did: str = "read"


class TooLarge(KeyboardInterrupt):
    """What a command needs is above a limit. It undoes what Ctrl-C undoes.

    `places` are where it was: a part, and before it those that the part is in.
    """

    def __init__(self, limit: str, places: tuple[Place, ...] = ()) -> None:
        super().__init__(limit)
        self.limit, self.places = limit, places

    @property
    def part(self) -> Part | None:
        return self.places[-1].part if self.places else None


_places: ContextVar[tuple[Place, ...]] = ContextVar("places", default=())
_megabytes: ContextVar[float] = ContextVar("megabytes", default=0)
"""The limit of memory that holds in this thread; 0 without one."""


def too_large(limit: str) -> TooLarge:
    """Make the exception for a limit of the part that is worked on alone."""
    return TooLarge(limit, tuple(Place(p.part) for p in _places.get()[-1:]))


def _too_slow(seconds: float) -> TooLarge:
    return TooLarge(f"needs more than {seconds:g} s of a core", _places.get())


def _too_much() -> TooLarge:
    return TooLarge(f"needs more than {_megabytes.get():g} MB of memory", _places.get())


def _stop(*_: object) -> None:
    if _running:
        raise _too_slow(_seconds)


_on = False
_seconds = SECONDS
_running = False


@contextmanager
def turned_on(seconds: float | None = None) -> Generator[None]:
    """Let `bounded` have its effect: in a command, where a signal may end the work.

    `seconds` are of a core; without them, there are `SECONDS`.
    """
    global _on, _seconds
    before = _on, _seconds
    _on, _seconds = True, SECONDS if seconds is None else seconds
    try:
        yield
    finally:
        _on, _seconds = before


@contextmanager
def bounded() -> Generator[None]:
    """Raise TooLarge if what is done in here needs too much."""
    global _running
    if not _on or _running:
        yield
        return
    try:
        before = signal.signal(signal.SIGPROF, _stop)
    except ValueError:  # a thread of another program: it has its own limits
        yield
        return
    _running, token = True, _places.set(_places.get())
    try:
        try:
            with _little_memory(500, MEMORY):
                signal.setitimer(signal.ITIMER_PROF, _seconds, 1)  # again after 1 s: a callback may lose an exception
                yield
        finally:
            _running = False  # from here on a signal that comes late stops nothing
    finally:
        _running = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        _places.reset(token)  # the signal may have come while a part was entered or left


@contextmanager
def of_part(part: Part, done: int = 0, of: int = 1, did: str = "read") -> Generator[None]:
    """Let a limit that is reached in here name this part, and how many of its kind were done before."""
    token = _places.set((*_places.get(), Place(part, done, of, did)))
    try:
        yield
    except MemoryError:
        if not _megabytes.get():
            raise
        raise _too_much() from None
    finally:
        _places.reset(token)


@contextmanager
def _little_memory(megabytes: float, more: int) -> Generator[None]:
    """Raise TooLarge if so many more bytes are allocated."""
    token = _megabytes.set(megabytes)
    try:
        with _few_bytes(more):
            yield
    except MemoryError:
        raise _too_much() from None
    finally:
        _megabytes.reset(token)


@contextmanager
def _few_bytes(more: int) -> Generator[None]:
    """Let allocations of more bytes fail, where the kernel counts them (Linux)."""
    global _soft
    held = _held()
    if held is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = min(n for n in (held + more, soft, hard) if n != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    _soft = soft
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        _soft = None


_one_at_a_time = threading.Lock()


@contextmanager
def within_memory(megabytes: float) -> Generator[None]:
    """Raise TooLarge if so many MB more are allocated in here. The limit is the process's, so other threads meet it
    too, and of several threads one is in here at a time."""
    with _one_at_a_time, _little_memory(megabytes, int(megabytes * 1e6)):
        yield


_soft: int | None = None
"""The limit of memory outside of `bounded`, while another one holds."""


@contextmanager
def unlimited_memory() -> Generator[None]:
    """Lift the limit of memory: for a process that is started in here, which inherits it, or for a large library."""
    if _soft is None:
        yield
        return
    most, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_soft, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def _held() -> int | None:
    """The bytes that RLIMIT_DATA counts now; None if the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as f:
            return int(f.read().split()[5]) * resource.getpagesize()
    except OSError:
        return None


_asked: ContextVar[Callable[[], None]] = ContextVar("asked", default=lambda: None)


def go_on() -> None:
    """Raise what stops the search of this thread, if something does. The search calls it between its parts."""
    _asked.get()()


@contextmanager
def stopped_by(ask: Callable[[], None]) -> Generator[None]:
    """Let `go_on` ask this."""
    token = _asked.set(ask)
    try:
        yield
    finally:
        _asked.reset(token)


@contextmanager
def stopped_after(seconds: float) -> Generator[None]:
    """Let `go_on` raise TooLarge once this thread has used so many seconds of a core."""
    end = time.thread_time() + seconds

    def ask() -> None:
        if time.thread_time() > end:
            raise _too_slow(seconds)

    with stopped_by(ask):
        yield
