"""Check open files shortly after a change, publish their diagnostics, and solve them in a thread.

A file is checked in the server's thread and solved in another, a job for each file, ended by a new text or a limit of
time; answers to requests have priority.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import queue
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from attrs import define, field
from lsprotocol import types

from moedsl.lsp.document import Analysis, Document, Solved
from moedsl.lsp.workspace import Workspace
from moedsl.support import diagnostics, limits, resources
from moedsl.support.diagnostics import Diagnostic, Label, warning
from moedsl.support.source import Span

log = logging.getLogger(__name__)

CHECK_DELAY = 0.003
"""Seconds without a change before a file is checked."""
SLOW = 0.1
"""Seconds of the longest wait; a slow file waits half the time of its last check."""
SOLVE_DELAY = 0.1
"""Seconds after a check before its programs are solved, so that nothing is solved between two keys."""
SECONDS = 55.0
"""Of a core, for all runs of a file."""
SHORT, LONG = 0.001, 0.2
"""Seconds that a thread computes before it yields to another: normally, and while an answer is made."""


class Session(Protocol):
    """The server, as `Checking` uses it."""

    files: Workspace
    solving: Solving

    def text_document_publish_diagnostics(self, params: types.PublishDiagnosticsParams) -> Any: ...


class Checking:
    """Checks files, with one timer for each file that changed."""

    def __init__(self, server: Session) -> None:
        self._server = server
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._took: dict[str, float] = {}
        self._new: set[str] = set()
        """Files whose text changed since their last check; files that use them are notified once."""

    def changed(self, uri: str) -> None:
        """Start the timer of an open file whose text is new."""
        self._new.add(uri)
        self._schedule(uri)

    def closed(self, uri: str) -> None:
        """Clear the diagnostics of a closed file, and its text is the disk's again."""
        self._stop_timer(uri)
        self._server.files.close(uri)
        self._server.solving.drop(uri)
        self._server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))
        self.dependents(uri)

    def dependents(self, uri: str) -> None:
        """Start the timers of files that use this one."""
        files = self._server.files
        found = files.dependents(uri)
        files.forget(found)
        for other in found:
            self._schedule(other)

    def _schedule(self, uri: str) -> None:
        self._server.solving.expect(uri)
        self._stop_timer(uri)
        took = self._took.get(uri, 0.0)
        delay = took / 2 if took > SLOW else CHECK_DELAY
        self._timers[uri] = asyncio.get_running_loop().call_later(delay, self._check, uri)

    def _stop_timer(self, uri: str) -> None:
        timer = self._timers.pop(uri, None)
        if timer is not None:
            timer.cancel()

    def _check(self, uri: str) -> None:
        """Check a file, publish its diagnostics and have it solved. Errors here are logged and stop nothing."""
        self._timers.pop(uri, None)
        start = time.monotonic()
        try:
            with undisturbed():
                document = self._server.files.document(uri)
                if document is not None:
                    self.publish(uri)
                    self._server.solving.start(document)
        except Exception:
            log.exception("checking %s failed", uri)
            self._server.solving.drop(uri)
        self._took[uri] = time.monotonic() - start
        if uri in self._new:
            self._new.discard(uri)
            self.dependents(uri)

    def publish(self, uri: str) -> None:
        """Publish the diagnostics of the newest snapshot."""
        document = self._server.files.document(uri)
        if document is not None:
            found = diagnostics_of(document, self._server.files)
            params = types.PublishDiagnosticsParams(uri, found, document.version)
            self._server.text_document_publish_diagnostics(params)


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
        job.timer = loop.call_later(SOLVE_DELAY, self._put, job, document, loop)

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


class _SupersededError(Exception):
    """The text that is being solved has changed."""


class _TooLongError(Exception):
    """The file needs more seconds than a run may."""


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
        stopped = warning("solve.stopped", document.programs[0].spans["hardware"], seconds=SECONDS)
        return Solved((), (), (stopped,))
    except Exception:
        log.exception("solving %s failed", document.uri)
        return None


def solve(analysis: Analysis) -> Solved:
    """Run the compiler's stages after the check."""
    from moedsl import compiler

    result = compiler.Result(analysis.source, analysis.module, analysis.library, analysis.programs)
    compiler.advance(result, compiler.STAGES[2:])
    return Solved(result.chosen, result.plans, tuple(result.diagnostics))


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


SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "note": types.DiagnosticSeverity.Information,
}


def diagnostics_of(document: Document, files: Workspace) -> list[types.Diagnostic]:
    """All diagnostics of a snapshot as an editor has them, in the order of the text."""
    found = [_converted(d, document, files) for d in document.diagnostics]
    return sorted(found, key=lambda d: (d.range.start.line, d.range.start.character))


def _converted(d: Diagnostic, document: Document, files: Workspace) -> types.Diagnostic:
    place, client = _place(d, document), document.client
    others = [label for label in d.labels if label.span != place]
    related: list[types.DiagnosticRelatedInformation] = []
    for label in others if client.related_information else ():
        source = document.library.sources.get(label.span.file)
        if source is not None:
            lines = document.lines if source.name == document.source.name else files.lines_of(source)
            where = types.Location(files.uri_of(label.span.file), lines.span(label.span))
            related.append(types.DiagnosticRelatedInformation(where, label.text or "here"))
    page = _page_of(d.id, document) if client.code_description else None
    return types.Diagnostic(
        range=document.lines.span(place),
        message=message(d, () if client.related_information else others),
        severity=SEVERITIES[d.severity],
        code=d.id,
        source="moedsl",
        code_description=types.CodeDescription(page) if page else None,
        related_information=related or None,
        data={"id": d.id, "help": list(d.help), "values": dict(d.values)} if client.diagnostic_data else None,
    )


def message(d: Diagnostic, others: Sequence[Label] = ()) -> str:
    """Write the message, the reason and the help, a line each; `others` are places that are shown nowhere else."""
    label = d.labels[0].text if d.labels else ""
    lines = [f"{d.message}: {label}" if label and label not in d.message else d.message]
    lines += [f"because: {d.because}"] if d.because else []
    lines += [f"{o.text} ({o.span.file})" for o in others if o.text]
    return "\n".join([*lines, *(f"help: {h}" for h in d.help)])


def _place(d: Diagnostic, document: Document) -> Span:
    """The place of a diagnostic: its first one in this file, else the `use` of the file that has it, else the start."""
    from moedsl.lang import ast
    from moedsl.rules.library import used_name

    name = document.source.name
    own = next((label.span for label in d.labels if label.span.file == name), None)
    if own is not None or document.refused or document.module is None or not d.labels:
        return own or Span(name, 0, 0)
    uses = [i for i in document.module.items if isinstance(i, ast.UseDecl)]
    exact = (i.path.span for i in uses if used_name(document.source, i) == d.labels[0].span.file)
    return next(exact, uses[0].path.span if uses else Span(name, 0, 0))


def _page_of(id: str, document: Document) -> str | None:
    """Link the page of a diagnostic, or the line that declares a rule of the stdlib."""
    page = diagnostics.pages().get(id)
    if page is not None:
        return f"{diagnostics.PAGES.as_uri()}#L{page.line}"
    kept = document.library.collected if id.startswith("std.") and not document.refused else None
    found = next((r for r in kept.rules if r.id == id), None) if kept else None
    if found is None:
        return None
    line, _ = document.library.sources[found.span.file].position(found.span.start)
    return f"{(resources.stdlib_dir().parent / found.span.file).as_uri()}#L{line}"
