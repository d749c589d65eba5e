"""Answer a request about a program in a separate process, within limits of time and memory, and without files.

A program is only the text of the request. A `use` in it is refused, and nothing shows or reads file names of this
machine.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import resource
import signal
import threading
import time
import zipfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from lsprotocol import types

from moedsl.compiler import Result
from moedsl.emit.artifact import files_of_runs
from moedsl.lang import reader
from moedsl.lsp import analysis, checking, completion, index
from moedsl.lsp.document import Analysis, Client, Document, Lines, Solved
from moedsl.lsp.place import place
from moedsl.planner.report import page
from moedsl.queries import layouts
from moedsl.queries.what_if import profiles, what_if, what_if_text
from moedsl.solver import solve
from moedsl.support import limits
from moedsl.support.diagnostics import Diagnostic, error, to_json
from moedsl.support.source import Source, Span
from moedsl.support.text import WIDTH

Json = dict[str, Any]
NAME = "page.moe"
"""The name of a program in diagnostics."""
SECONDS = 15.0
"""CPU seconds for one answer."""
MEGABYTES = 420
"""Megabytes of memory for one answer; with Python and all imports less than 500."""
COLUMNS = 80
"""The width of a plan's page, if the request does not give one."""
NARROWEST = 40
GRACE = 5
"""CPU seconds beyond SECONDS after which the kernel ends a process that did not stop."""
CLIENT = Client(completion_markdown=True)


def end_with_parent() -> None:
    """End this process when the one that started it ends, even by SIGKILL, which the executor's queue does not show.

    Ctrl-C is for that one."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def begin() -> None:
    """Load the grammar, the stdlib and the solver, so that the first user waits no longer than later ones."""
    answer("plan", index.WARM_UP)


def answer(what: str, text: str, columns: int = COLUMNS) -> Json:
    """Answer `plan`, `whole`, `report`, `what_if` or `recipe`: return `diagnostics`, and `text` if there is a plan."""

    def make() -> Json:
        source, refused = reader.from_text(text, NAME)
        if source is None:
            return _said(refused, None)
        checked, solved = _solved(source)
        found = (*checked.diagnostics, *(solved.diagnostics if solved else ()))
        made = _MADE[what](checked, solved, max(NARROWEST, min(columns, WIDTH))) if solved and solved.plans else None
        return {**_said(found, checked), "text": made}

    return _bounded(make)


def complete(text: str, line: int, character: int) -> Json:
    """Return the completion `items` at a position in UTF-16 units, each with the columns where it starts and ends."""

    def make() -> Json:
        lines, at = Lines(text), types.Position(line, character)
        document = Document(
            "", None, Source(NAME, text), lines, CLIENT, analyse=lambda source: analysis.analyse(source, _no_file)
        )
        if place(text, lines.offset(at)).string is not None:  # the path of a `use`
            return {"items": []}
        items: list[Json] = []
        for i in completion.completion(document, types.CompletionParams(types.TextDocumentIdentifier(""), at)).items:
            edit = i.text_edit
            assert isinstance(edit, types.TextEdit)
            doc = i.documentation.value if isinstance(i.documentation, types.MarkupContent) else i.documentation
            item = {"label": i.label, "detail": i.detail or "", "doc": doc or "", "insert": edit.new_text}
            items.append({**item, "start": edit.range.start.character, "end": edit.range.end.character})
        return {"items": items}

    return _bounded(make)


def recipe(text: str) -> bytes:
    """Return a zip archive of the files that `moedsl compile` would write; empty if there is no plan."""

    def make() -> bytes:
        source, _ = reader.from_text(text, NAME)
        checked, solved = _solved(source) if source else (None, None)
        if checked is None or solved is None or not solved.plans:
            return b""
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files_of_runs(solved.plans, checked.source, checked.library).items():
                archive.writestr(name, content)
        return out.getvalue()

    return _bounded(make, b"")


def _bounded(make: Callable[[], Any], instead: Any = None) -> Any:
    """Make an answer within the limits. If they are reached, return `instead`, or the diagnostic if it is None."""
    spent, (_, hard) = time.process_time(), resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(spent + SECONDS) + GRACE, hard))
    try:
        with limits.within_memory(MEGABYTES), limits.stopped_after(SECONDS):
            return make()
    except limits.TooLarge as reached:
        return _said([solve.diagnostic(reached)], None) if instead is None else instead


@lru_cache(maxsize=8)
def _solved(source: Source) -> tuple[Analysis, Solved | None]:
    checked = analysis.analyse(source, _no_file)
    return checked, checking.solve(checked) if checked.programs and not checked.failed else None


def _no_file(name: str) -> reader.Read:
    """Refuse the file that a `use` names."""
    return None, (error("read.no_files", Span(name, 0, 0)),)


def _said(found: Sequence[Diagnostic], checked: Analysis | None) -> Json:
    sources = {**checked.library.sources, NAME: checked.source} if checked else {}
    return {"diagnostics": [to_json(d, sources) for d in found], "text": None}


_MADE: dict[str, Callable[[Analysis, Solved, int], str]] = {
    # the page without its notes and commands: diagnostics and tabs are next to it
    "plan": lambda a, s, columns: layouts.page(Result(a.source, library=a.library, plans=s.plans), (), columns),
    "whole": lambda a, s, columns: "\n".join(layouts.texts(s.plans)),
    "report": lambda a, s, columns: page(s.plans),
    "what_if": lambda a, s, columns: "\n".join(
        what_if_text(what_if(c, a.library)) for c in s.chosen if not profiles(c)
    ),
    "recipe": lambda a, s, columns: "\n\n".join(
        f"# {name}\n\n{text}"
        for name, text in files_of_runs(s.plans, a.source, a.library).items()
        if name.endswith("recipe.py")
    ),
}
ANSWERS = tuple(_MADE)
