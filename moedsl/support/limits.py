"""Bound what a command spends: 55 s of a core for each run of a program and each file that it reads, and 500 MB.

Only the command line turns this on. A thread has no signals; there `stopped_by` lets the search ask whether to go on.
"""

from __future__ import annotations

import resource
import signal
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, Protocol

SECONDS = 55.0
"""Of a core, for each part; with its output a command on one part needs less than 60."""
MEMORY = 420_000_000
"""Bytes that a command may allocate; with Python and all imports they are less than 500 MB."""


class Part(Protocol):
    """A part of the work with seconds of its own: a run of a program, or a file."""

    @property
    def name(self) -> str: ...


class File(NamedTuple):
    """A file that somebody else wrote."""

    name: str
    help: str = "is this the right file? Of a long log, give the end: `tail -c 100M LOG | moedsl diagnose -`"


class TooLarge(KeyboardInterrupt):
    """What a part of the work needs is above a limit. It undoes what Ctrl-C undoes."""

    def __init__(self, limit: str, part: Part | None) -> None:
        super().__init__(limit)
        self.limit, self.part = limit, part


Parts = tuple[Part, ...]
"""A part and those that it is in, outermost first."""


class _Clock:
    """The seconds that are left of each part. What is done outside of its parts counts for the first of them."""

    def __init__(self) -> None:
        self._parts: Parts = ()
        self._first: dict[tuple[str, ...], str] = {}
        self._left: dict[tuple[str, ...], float] = {}

    def turn(self, parts: Parts) -> None:
        """Count the time from now on for a part."""
        rest, _ = signal.setitimer(signal.ITIMER_PROF, 0)
        self._left[self._key()] = rest or _seconds
        self._parts = parts
        left = self._left.setdefault(self._key(), _seconds)
        signal.setitimer(signal.ITIMER_PROF, left, 1)  # again after 1 s, if an exception was lost in a callback

    def _key(self) -> tuple[str, ...]:
        names = tuple(p.name for p in self._parts)
        while names and self._first.setdefault(names[:-1], names[-1]) == names[-1]:
            names = names[:-1]
        return names


_parts: ContextVar[Parts] = ContextVar("parts", default=())


def too_large(limit: str) -> TooLarge:
    """Make the exception for the part that is worked on."""
    return TooLarge(limit, _parts.get()[-1] if _parts.get() else None)


def _too_slow(seconds: float) -> TooLarge:
    return too_large(f"needs more than {seconds:g} s of a core")


def _too_much() -> TooLarge:
    return too_large("needs more than 500 MB of memory")


def _stop(*_: object) -> None:
    raise _too_slow(_seconds)


_on = False
_seconds = SECONDS
_clock: _Clock | None = None


@contextmanager
def turned_on(seconds: float | None = None) -> Generator[None]:
    """Let `bounded` have its effect: in a command, where a signal may end the work.

    `seconds` are of a core; without them, a part has `SECONDS`.
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
    global _clock
    if not _on or _clock is not None:
        yield
        return
    clock = _Clock()
    try:
        before = signal.signal(signal.SIGPROF, _stop)
    except ValueError:  # a thread of another program: it has its own limits
        yield
        return
    _clock = clock
    try:
        with _little_memory():
            clock.turn(())
            yield
    except MemoryError:
        raise _too_much() from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        _clock = None


@contextmanager
def of_part(part: Part) -> Generator[None]:
    """Count what is done in here for one run of the program, or for one file."""
    clock, before = _clock, _parts.get()
    token = _parts.set((*before, part))
    try:
        if clock is not None:
            clock.turn(_parts.get())
        yield
    except MemoryError:
        if clock is None:
            raise
        raise _too_much() from None
    finally:
        _parts.reset(token)
        if clock is not None:
            clock.turn(before)


@contextmanager
def _little_memory() -> Generator[None]:
    """Let allocations fail above the limit, where the kernel counts them (Linux)."""
    global _soft
    held = _held()
    if held is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = min(n for n in (held + MEMORY, soft, hard) if n != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    _soft = soft
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        _soft = None


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
