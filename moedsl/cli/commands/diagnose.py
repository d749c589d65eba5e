"""`moedsl diagnose`: explain what went wrong in a log. Exit 0 if that is known or nothing is wrong, else 1."""

from __future__ import annotations

import io
import sys
from argparse import Namespace
from pathlib import Path
from typing import BinaryIO

from moedsl.cli import talk
from moedsl.compiler import load_stdlib
from moedsl.diagnose import scan
from moedsl.diagnose.edit import compile_edits
from moedsl.diagnose.gpu import remarks
from moedsl.diagnose.text import text, to_json
from moedsl.diagnostics.model import Diagnostic, Label, error
from moedsl.diagnostics.source import Source, Span
from moedsl.rules.library import Library, use
from moedsl.syntax import reader
from moedsl.syntax.parse_cache import cached_parse


def run(a: Namespace) -> int:
    library, source, found = _library(a.run)
    name, stream, wrong = _opened(a.log)
    problems = [*found, *wrong]
    if problems or stream is None:
        return talk.refused(a, problems, library.sources)
    with stream:
        report = scan.diagnose(name, scan.blocks(stream), scan.symptoms(library))
    attempts = {s.rule.id: compile_edits(source, s.rule) for s in report.sightings} if source else {}
    data = to_json(report, attempts, remarks(report, source, library) if source else {})
    if a.json:
        talk.print_json(data)
    else:
        print(text(data), end="")
    return int(not report.sightings and report.last_error is not None)


def _library(path: str | None) -> tuple[Library, Source | None, list[Diagnostic]]:
    """Load the stdlib with the symptoms that a run file declares, and that file."""
    library = load_stdlib()
    if path is None:
        return library, None, []
    source, found = reader.read(path)
    if source is None:
        return library, None, list(found)
    module, found = cached_parse(source)
    if module is None or found:
        return library, None, list(found)
    use(library, source, module, cached_parse)
    return library, source, [d for d in library.diagnostics if d.is_error]


Opened = tuple[str, BinaryIO | None, list[Diagnostic]]


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
        if Path(path).resolve().is_fifo():  # a pipe of the shell, as /dev/fd/63, has no name there
            help = f"cat {path} | moedsl diagnose -"
            return path, None, [_wrong("read.special", path, "is a named pipe, which may never end", help)]
        stream = open(path, "rb")  # noqa: SIM115, closed by run
        start = stream.peek(1 << 13)[: 1 << 13]
    except FileNotFoundError:
        help = "check the path; an argument with blanks is read as a line of a log"
        return path, None, [_wrong("read.missing", path, "does not exist", help)]
    except IsADirectoryError:
        return path, None, [_wrong("read.directory", path, "is a directory", "name one log in it")]
    except OSError as e:
        return path, None, [_wrong("read.denied", path, f"cannot be read: {e.strerror or e}", "check its permissions")]
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
