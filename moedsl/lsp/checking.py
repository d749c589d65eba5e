"""Check open files shortly after a change, publish their diagnostics, and solve them in a thread.

Files are checked in the server's thread and solved in another, one file at a time. A new text or a time limit stops the
solver, and answers to requests have priority.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from lsprotocol import types

from moedsl.lsp.document import Analysis, Document, Solved
from moedsl.lsp.workspace import Workspace
from moedsl.support import diagnostics, limits, resources
from moedsl.support.diagnostics import Diagnostic, Label, warning
from moedsl.support.secrets import masked
from moedsl.support.source import Span

log = logging.getLogger(__name__)

CHECK_DELAY = 0.003
"""Seconds without a change before a file is checked."""
SLOW = 0.1
"""Seconds above which a check is slow; the next check of that file then waits half as long as this one took."""
SOLVE_DELAY = 0.1
"""Seconds after a check before the file's programs are solved, so that nothing is solved between two keystrokes."""
SECONDS = 55.0
"""CPU seconds for solving all runs of a file."""
SHORT, LONG = 0.001, 0.2
"""Seconds that a thread runs before Python switches to another: normally, and while an answer is made."""


class Session(Protocol):
    """The parts of the server that `Checking` uses."""

    files: Workspace

    def solved(self, document: Document, plan: Solved) -> None: ...

    def text_document_publish_diagnostics(self, params: types.PublishDiagnosticsParams) -> Any: ...


class Checking:
    """Checks and solves files, in one task for each changed file; a newer text cancels the task."""

    def __init__(self, server: Session) -> None:
        self._server = server
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._took: dict[str, float] = {}
        self._new: set[str] = set()
        """Files whose text changed since their last check; the files that use them are then checked once."""
        self._solver = asyncio.Lock()

    def changed(self, uri: str) -> None:
        """Start the task of an open file whose text has changed."""
        self._new.add(uri)
        self._start(uri)

    def closed(self, uri: str) -> None:
        """Clear the diagnostics of a closed file, and check files that use it again, now with its text on disk."""
        self._cancel(uri)
        self._server.files.close(uri)
        self._server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))
        self.dependents(uri)

    def dependents(self, uri: str) -> None:
        """Start the tasks of the open files that use this one."""
        found = self._server.files.dependents(uri)
        self._server.files.forget(found)
        for other in found:
            self._start(other)

    def _cancel(self, uri: str) -> None:
        if uri in self._tasks:
            self._tasks.pop(uri).cancel()

    def _start(self, uri: str) -> None:
        self._cancel(uri)
        self._tasks[uri] = asyncio.create_task(self._check_and_solve(uri))

    async def _check_and_solve(self, uri: str) -> None:
        """Check a file, publish its diagnostics, and solve its programs if there are any and no error."""
        took = self._took.get(uri, 0.0)
        await asyncio.sleep(took / 2 if took > SLOW else CHECK_DELAY)
        start, document = time.monotonic(), None
        try:
            with undisturbed():
                document = self.publish(uri)
        except Exception:
            log.exception("checking %s failed", uri)
        self._took[uri] = time.monotonic() - start
        if uri in self._new:
            self._new.discard(uri)
            self.dependents(uri)
        if document is None or document.refused or document.analysis.failed or not document.programs:
            return
        await asyncio.sleep(SOLVE_DELAY)
        async with self._solver:
            plan = await in_thread(document)
        if plan is not None:
            self._server.solved(document, plan)

    def publish(self, uri: str) -> Document | None:
        """Publish the diagnostics of the newest snapshot, and return the snapshot."""
        document = self._server.files.document(uri)
        if document is not None:
            found = diagnostics_of(document, self._server.files)
            params = types.PublishDiagnosticsParams(uri, found, document.version)
            self._server.text_document_publish_diagnostics(params)
        return document

    async def wait(self, uri: str, seconds: float | None = None) -> None:
        """Wait, for at most `seconds`, until the file's newest text is solved or needs no solving."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while (task := self._tasks.get(uri)) is not None and not task.done():
                    await asyncio.wait({task})


async def in_thread(document: Document) -> Solved | None:
    """Solve a snapshot in a thread until its task is cancelled.

    The thread is a daemon, unlike asyncio's, so that the server ends with its client.
    """
    loop, stop = asyncio.get_running_loop(), threading.Event()
    answer: asyncio.Future[Solved | None] = loop.create_future()

    def work() -> None:
        plan = solved(stop, document)
        if not stop.is_set() and not loop.is_closed():  # else nobody waits: the text changed, or the client left
            loop.call_soon_threadsafe(lambda: answer.cancelled() or answer.set_result(plan))

    threading.Thread(target=work, daemon=True, name="solver").start()
    try:
        return await answer
    finally:
        stop.set()


class _StoppedError(Exception):
    """The text that is being solved has changed, or solving it takes more than `SECONDS`."""


def solved(stop: threading.Event, document: Document) -> Solved | None:
    """Solve a snapshot; None if `stop` is set or the solver fails, which only costs the hints."""
    end = time.thread_time() + SECONDS

    def ask() -> None:
        if stop.is_set() or time.thread_time() > end:
            raise _StoppedError

    try:
        ask()
        with limits.stopped_by(ask):
            return solve(document.analysis)
    except _StoppedError:
        if stop.is_set():
            return None
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

    Otherwise Python gives both threads the same share, and a collection makes a check take half as long again.
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
    """Convert all diagnostics of a snapshot for the editor, in text order."""
    client, found = document.client, list[types.Diagnostic]()
    for d in document.diagnostics:
        place = place_of(d, document)
        others = [label for label in d.labels if label.span != place]
        related: list[types.DiagnosticRelatedInformation] = []
        for label in others if client.related_information else ():
            source = document.library.sources.get(label.span.file)
            if source is not None:
                lines = document.lines if source.name == document.source.name else files.lines_of(source)
                where = types.Location(files.uri_of(label.span.file), lines.span(label.span))
                related.append(types.DiagnosticRelatedInformation(where, label.text or "here"))
        page = _page_of(d.id, document) if client.code_description else None
        data = {"id": d.id, "help": list(d.help), "values": dict(d.values)} if client.diagnostic_data else None
        found.append(
            types.Diagnostic(
                range=document.lines.span(place),
                message=message(d, () if client.related_information else others),
                severity=SEVERITIES[d.severity],
                code=d.id,
                source="moedsl",
                code_description=types.CodeDescription(page) if page else None,
                related_information=related or None,
                data=data,
            )
        )
    return sorted(found, key=lambda d: (d.range.start.line, d.range.start.character))


def message(d: Diagnostic, others: Sequence[Label]) -> str:
    """Format a diagnostic's message, reason and help as lines; `others` are labels that are shown nowhere else."""
    label = d.labels[0].text if d.labels else ""
    lines = [f"{d.message}: {label}" if label and label not in d.message else d.message]
    lines += [f"because: {d.because}"] if d.because else []
    lines += [f"{o.text} ({o.span.file})" for o in others if o.text]
    return masked("\n".join([*lines, *(f"help: {h}" for h in d.help)]))


def place_of(d: Diagnostic, document: Document) -> Span:
    """Return the span at which to show a diagnostic.

    It is the diagnostic's first label in this file, else the `use` of the file that has its label, else the file's
    start.
    """
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
    """Return the URL of a diagnostic's page, or of the line that declares a stdlib rule; None if there is neither."""
    page = diagnostics.pages().get(id)
    if page is not None:
        return f"{diagnostics.PAGES.as_uri()}#L{page.line}"
    kept = document.library.collected if id.startswith("std.") and not document.refused else None
    found = next((r for r in kept.rules if r.id == id), None) if kept else None
    if found is None:
        return None
    line, _ = document.library.sources[found.span.file].position(found.span.start)
    return f"{(resources.stdlib_dir().parent / found.span.file).as_uri()}#L{line}"
