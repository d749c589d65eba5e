"""Run the solver in a thread: a job for each file, ended by a new text or a limit of time; answers have priority."""

from __future__ import annotations

import asyncio
import gc
import logging
import queue
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from attrs import define, field

from moedsl.lsp.document import Analysis, Document, Solved
from moedsl.support import limits
from moedsl.support.diagnostics import Diagnostic, warning

log = logging.getLogger(__name__)

SECONDS = 55.0
"""Of a core, for all runs of a file."""
DELAY = 0.1
"""Seconds after a check before its programs are solved, so that nothing is solved between two keys."""


class _SupersededError(Exception):
    """The text that is being solved has changed."""


class _TooLongError(Exception):
    """The file needs more seconds than a run may."""


@define(eq=False)
class Job:
    """The job of one text. `done` is set when it is solved, or when nothing is to be solved."""

    done: asyncio.Event = field(factory=asyncio.Event)
    void: bool = False
    timer: asyncio.TimerHandle | None = None

    def end(self, void: bool = False) -> None:
        """Release those that wait for it; `void` means without a result."""
        self.void = self.void or void
        if self.timer is not None:
            self.timer.cancel()
        self.done.set()


class Solving:
    """The jobs by file. `tell` is called in the server's thread with the snapshot and its result."""

    def __init__(self, tell: Callable[[Document, Solved], None]) -> None:
        self._tell = tell
        self._jobs: dict[str, Job] = {}
        self._queue: queue.SimpleQueue[tuple[Job, Document, asyncio.AbstractEventLoop]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def expect(self, uri: str) -> None:
        """Start the job of a new text; the job before is void, and those that wait for it wait for this one."""
        self.drop(uri)
        self._jobs[uri] = Job()

    def drop(self, uri: str) -> None:
        """Drop the job of a file that needs no solving any more."""
        job = self._jobs.pop(uri, None)
        if job is not None:
            job.end(void=True)

    def start(self, document: Document) -> None:
        """Solve the programs of a checked file after `DELAY`, if it has any."""
        job = self._jobs.get(document.uri)
        if job is None:
            return
        if document.refused or document.analysis.failed or not document.programs:
            job.end()
            return
        loop = asyncio.get_running_loop()
        job.timer = loop.call_later(DELAY, self._put, job, document, loop)

    async def wait(self, uri: str, seconds: float) -> None:
        """Wait until the file's newest text is solved or needs no solving, at most so many seconds."""
        job = self._jobs.get(uri)
        if job is None:
            return
        try:
            await asyncio.wait_for(job.done.wait(), seconds)
        except TimeoutError:
            return

    async def finished(self, uri: str) -> None:
        """Wait until the file's newest text is solved or needs no solving; a cancelled request stops to wait."""
        while (job := self._jobs.get(uri)) is not None and not job.done.is_set():
            await job.done.wait()

    def _put(self, job: Job, document: Document, loop: asyncio.AbstractEventLoop) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True, name="solver")
            self._thread.start()
        self._queue.put((job, document, loop))

    def _work(self) -> None:
        """Run the thread of the solver."""
        while True:
            job, document, loop = self._queue.get()
            plan = solved(job, document)
            if loop.is_closed():
                return  # the client has left
            loop.call_soon_threadsafe(self._done, job, document, plan)

    def _done(self, job: Job, document: Document, plan: Solved | None) -> None:
        if plan is not None and not job.void:
            self._tell(document, plan)
        job.end()


def solved(job: Job, document: Document) -> Solved | None:
    """Solve a snapshot; None if it is void. A bug of the solver only costs the hints."""
    end = time.thread_time() + SECONDS

    def ask() -> None:
        if job.void:
            raise _SupersededError
        if time.thread_time() > end:
            raise _TooLongError

    try:
        ask()
        with limits.stopped_by(ask):
            return solve(document.analysis)
    except _SupersededError:
        return None
    except _TooLongError:
        return Solved((), (), (_too_large(document),))
    except Exception:
        log.exception("solving %s failed", document.uri)
        return None


def _too_large(document: Document) -> Diagnostic:
    return warning("solve.stopped", document.programs[0].spans["hardware"], seconds=SECONDS)


def solve(analysis: Analysis) -> Solved:
    """Run the compiler's stages after the check."""
    from moedsl import compiler

    result = compiler.Result(analysis.source, analysis.module, analysis.library, analysis.programs)
    compiler.advance(result, compiler.STAGES[2:])
    return Solved(result.chosen, result.plans, tuple(result.diagnostics))


SHORT, LONG = 0.001, 0.2
"""Seconds that a thread computes before it yields to another: normally, and while an answer is made."""


@contextmanager
def undisturbed() -> Generator[None]:
    """Give the server's thread priority over the solver, and postpone garbage collection.

    Otherwise Python gives each thread the same share, and a collection during a check makes it half as long again.
    """
    sys.setswitchinterval(LONG)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        sys.setswitchinterval(SHORT)
