"""Share what commands need: reading a program, running the stages, printing diagnostics and progress."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from moedsl.cli.terminal import coloured, folded, print_painted, room_of, show_transient
from moedsl.compiler import Result, compile_source
from moedsl.lang import reader
from moedsl.support.diagnostics import Diagnostic, to_json
from moedsl.support.render import MARGIN, WINDOW, render_all
from moedsl.support.source import Source
from moedsl.support.text import in_json, made_for

QUIET_FOR = 0.7
"""Seconds before progress is shown."""


def source_of(a: Namespace) -> tuple[Source | None, tuple[Diagnostic, ...]]:
    """Read the program that the arguments name."""
    if a.expression is not None:
        return reader.from_text(a.expression, "<text>")
    if a.file is None:
        print("give a .moe file, - for standard input, or -e 'TEXT'", file=sys.stderr)
        return None, ()
    return reader.read(a.file)


def say(diagnostics: Iterable[Diagnostic], sources: Mapping[str, Source]) -> None:
    """Print diagnostics as text on stderr."""
    data = [to_json(d, sources) for d in diagnostics]
    if data:
        room = room_of(sys.stderr)
        window = min(WINDOW, room - MARGIN) if room else WINDOW
        text = render_all(data, colour=coloured(sys.stderr), window=window)
        print_painted(folded(text, sys.stderr), sys.stderr)


def print_text(make: Callable[[], str], end: str = "\n", painted: bool = False) -> None:
    """Print an answer for people on stdout, within the columns of a terminal; `painted`, as `print_painted`."""
    with made_for(room_of(sys.stdout)):
        text = folded(make(), sys.stdout)
    if painted:
        print_painted(text, sys.stdout, end)
    else:
        print(text, end=end)


def print_json(value: Any) -> None:
    """Print JSON on stdout, indented by two spaces."""
    print(in_json(json.dumps(value, indent=2, ensure_ascii=False)))


def print_sarif(diagnostics: Iterable[Mapping[str, Any]]) -> None:
    """Print diagnostics in their JSON form as SARIF."""
    from moedsl.support import render

    print_json(render.sarif_log(diagnostics, own_version()))


def failed_json(diagnostics: Iterable[Diagnostic], sources: Mapping[str, Source]) -> dict[str, Any]:
    """Make the JSON that a command with --json prints if there is no plan."""
    return {"version": 1, "diagnostics": [to_json(d, sources) for d in diagnostics]}


def refused(a: Namespace, diagnostics: Iterable[Diagnostic], sources: Mapping[str, Source] = {}) -> int:
    """Print why a command does nothing, with --json also as JSON; returns the exit code."""
    diagnostics = [*diagnostics]
    if getattr(a, "json", False):  # not every command prints JSON
        print_json(failed_json(diagnostics, sources))
    say(diagnostics, sources)
    return 1


def written(path: Path, text: str, note: str) -> int:
    """Write a file and report it on stderr; returns the exit code."""
    from moedsl.support.files import write_file as write  # most commands write nothing

    diagnostics = write(path, text)
    say(diagnostics, {})
    if not diagnostics:
        print(f"wrote {path}{note}", file=sys.stderr)
    return int(bool(diagnostics))


def tell(text: str) -> None:
    """Print what was done, a line on stderr."""
    print(f"  {text}", file=sys.stderr, flush=True)


class Progress:
    """Report on stderr what is being done, if it takes long."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def __call__(self, text: str) -> None:
        if time.monotonic() - self._start > QUIET_FOR:
            show_transient(f"  {text}", sys.stderr)


def compiled(
    a: Namespace, stop_after: str, notes: bool = True, run: str | None = None, asks: str = "plans"
) -> tuple[Result | None, int]:
    """Run the stages for what the command `asks`, of one `run` if it is named, and print diagnostics, without `notes`
    only if there is an error; returns the result and the exit code so far."""
    source, diagnostics = source_of(a)
    if source is None:
        return None, refused(a, diagnostics)
    result = compile_source(source, stop_after, Progress(), a.like, getattr(a, "target", ""), asks, run)
    if a.json and result.failed:
        print_json(failed_json(result.diagnostics, result.sources))
    if notes or result.failed:
        say(result.diagnostics, result.sources)
    return result, int(result.failed)


def own_version() -> str:
    """The installed version of moedsl."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("moedsl")
    except PackageNotFoundError:
        return "(not installed)"
