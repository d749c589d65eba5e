"""`moedsl diagnose`: explain what went wrong in a log. Exit 0 if that is known or nothing is wrong, else 1."""

from __future__ import annotations

import io
import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any, BinaryIO

from moedsl.cli import console
from moedsl.cli.own_rules import library_of
from moedsl.diagnose import scan
from moedsl.diagnose.edit import compile_edits, remarks
from moedsl.diagnose.text import text, to_json
from moedsl.rules.library import Library
from moedsl.runs.results.gather import experiment_folder, job_logs
from moedsl.support.diagnostics import Diagnostic, Label, error
from moedsl.support.foreign import refuse_special, refused
from moedsl.support.source import Source, Span


def run(a: Namespace) -> int:
    library, source, found = library_of(a.run)
    of_jobs = _of_experiment(a.log)
    opened = of_jobs or [_opened(a.log)]
    problems = [*found, *(d for _, _, wrong in opened for d in wrong)]
    if problems:
        return console.refused(a, problems, library.sources)
    known = scan.symptoms(library)
    logs = [(name, stream) for name, stream, _ in opened if stream is not None]
    reports: list[scan.Report] = []
    for name, stream in logs:
        with stream:
            reports.append(scan.diagnose(name, scan.blocks(stream), known))
    data = [_to_json(report, source, library) for report in reports]
    if a.json:
        console.print_json({"version": 1, "experiment": a.log, "logs": data} if of_jobs else data[0])
    else:
        told = [r for r in data if r["symptoms"] or r["first_failure"]] or data
        console.print_text(lambda: "\n".join(map(text, told)), end="")
    is_wrong = any(r.last_error or r.first_failure for r in reports)
    return int(is_wrong and not any(r.sightings for r in reports))


def _to_json(report: scan.Report, source: Source | None, library: Library) -> dict[str, Any]:
    attempts = {s.rule.id: compile_edits(source, s) for s in report.sightings} if source else {}
    return to_json(report, attempts, remarks(report, source, library) if source else {})


Opened = tuple[str, BinaryIO | None, list[Diagnostic]]


def _of_experiment(id: str) -> list[Opened]:
    """Open the logs of an experiment's jobs, or report why there are none; nothing if no experiment has that id."""
    if id == "-" or "/" in id or _is_text(id) or _exists(id):
        return []
    folder = experiment_folder(id)
    if folder is None or isinstance(folder, Diagnostic):
        return [(id, None, [folder])] if folder else []
    logs = [_file(str(path)) for path in job_logs(folder) if path.stat().st_size]
    return logs or [(id, None, [error("read.log", name=id)])]


def _opened(log: str) -> Opened:
    """Open the log as a binary stream: a file, standard input for ``-``, or the text itself; else report why not."""
    if log == "-":
        return "<stdin>", sys.stdin.buffer, []
    if _is_text(log):
        return "<text>", io.BytesIO(log.encode(errors="replace")), []
    return _file(log)


def _is_text(log: str) -> bool:
    """Whether an argument is text of a log, not a path: no file has that name, and it has spaces."""
    return "\n" in log or (any(c.isspace() for c in log) and not _exists(log))


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # longer than a path may be
        return False


def _file(path: str) -> Opened:
    try:
        if Path(os.path.realpath(path)).is_fifo():  # a pipe of the shell, as /dev/fd/63, has no name there
            help = f"cat {path} | moedsl diagnose -"
            return path, None, [_wrong("read.special", path, "is a named pipe, which may never end", help)]
        refuse_special(Path(path))
        stream = open(path, "rb")  # noqa: SIM115, closed by run
        start = stream.peek(1 << 13)[: 1 << 13]
    except FileNotFoundError:
        help = "check the path; an argument with blanks is a line of a log, and `moedsl jobs` lists the ids of jobs"
        return path, None, [_wrong("read.missing", path, "does not exist", help)]
    except OSError as e:
        return path, None, [refused(path, e, "name one log in it")]
    unread = _unread(path, start)
    if unread is not None:
        stream.close()
        return path, None, [unread]
    return path, stream, []


def _unread(path: str, start: bytes) -> Diagnostic | None:
    """Explain why the first bytes of a file are not those of a log."""
    if start.startswith(b"\x1f\x8b"):
        return _wrong("read.log", path, "is compressed", f"zcat {path} | moedsl diagnose -")
    if scan.is_binary(start):
        return _wrong("read.log", path, "is binary, not a log", "name the text that a run printed")
    return None


def _wrong(id: str, path: str, what: str, help: str) -> Diagnostic:
    return error(id, f"{path} {what}", Label(Span(path, 0, 0)), help=help)
