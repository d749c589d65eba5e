"""Bound what a command spends on a program: 55 s of a core for each of its runs, and 500 MB.

Only the command line turns this on. A thread has no signals; there `stopped_by` lets the search ask whether to go on.
"""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Protocol

SECONDS = 55.0
"""Of a core, for each run of a program; with its output a command on one run needs less than 60."""
MEMORY = 420_000_000
"""Bytes that a command may allocate for a program; with Python and all imports they are less than 500 MB."""


class Run(Protocol):
    """A run of a program."""

    @property
    def name(self) -> str: ...


class TooLarge(KeyboardInterrupt):
    """What a program needs is above a limit. It undoes what Ctrl-C undoes."""

    def __init__(self, limit: str, run: Run | None) -> None:
        super().__init__(limit)
        self.limit, self.run = limit, run


class _Clock:
    """The seconds that are left: of each run, and of everything else together with the first run."""

    def __init__(self) -> None:
        self.run: Run | None = None
        """The run that is worked on; None for no single one."""
        self._first = ""
        self._left: dict[str, float] = {}

    def turn(self, run: Run | None) -> Run | None:
        """Count the time from now on for a run; returns the one before."""
        rest, _ = signal.setitimer(signal.ITIMER_PROF, 0)
        before, self._left[self._key()] = self.run, rest or SECONDS
        self.run = run
        self._first = self._first or (run.name if run else "")
        left = self._left.setdefault(self._key(), SECONDS)
        signal.setitimer(signal.ITIMER_PROF, left, 1)  # again after 1 s, if an exception was lost in a callback
        return before

    def _key(self) -> str:
        return "" if self.run is None or self.run.name == self._first else self.run.name

    def stop(self, *_: object) -> None:
        raise TooLarge(f"needs more than {SECONDS:g} s of a core", self.run)

    def too_much(self) -> TooLarge:
        return TooLarge("needs more than 500 MB of memory", self.run)


_on = False
_clock: _Clock | None = None


@contextmanager
def turned_on() -> Generator[None]:
    """Let `bounded` have its effect: in a command, where a signal may end the work."""
    global _on
    before, _on = _on, True
    try:
        yield
    finally:
        _on = before


@contextmanager
def bounded() -> Generator[None]:
    """Raise TooLarge if what is done in here needs too much. Nothing in here may start a process: it would inherit the
    limit of memory."""
    global _clock
    if not _on or _clock is not None:
        yield
        return
    clock = _Clock()
    try:
        before = signal.signal(signal.SIGPROF, clock.stop)
    except ValueError:  # a thread of another program: it has its own limits
        yield
        return
    _clock = clock
    try:
        with _little_memory():
            clock.turn(None)
            yield
    except MemoryError:
        raise clock.too_much() from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        _clock = None


@contextmanager
def of_run(run: Run) -> Generator[None]:
    """Count what is done in here for one run of the program."""
    clock = _clock
    if clock is None:
        yield
        return
    before = clock.turn(run)
    try:
        yield
    except MemoryError:
        raise clock.too_much() from None
    finally:
        clock.turn(before)


@contextmanager
def _little_memory() -> Generator[None]:
    """Let allocations fail above the limit, where the kernel counts them (Linux)."""
    held = _held()
    if held is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = min(n for n in (held + MEMORY, soft, hard) if n != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _held() -> int | None:
    """The bytes that RLIMIT_DATA counts now; None if the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
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
