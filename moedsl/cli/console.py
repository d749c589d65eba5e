"""Share what commands need: reading a program, running the stages, printing diagnostics and progress."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from attrs import define, field

from moedsl.cli.terminal import Refused, coloured, folded, print_file, print_painted, room_of, show_transient
from moedsl.compiler import Result, compile_source
from moedsl.facts.recipes import LIKE
from moedsl.lang import reader
from moedsl.support.diagnostics import Diagnostic, to_json
from moedsl.support.files import write_file
from moedsl.support.foreign import text_of
from moedsl.support.render import MARGIN, WINDOW, render_all, sarif_log
from moedsl.support.source import Source
from moedsl.support.text import in_json, made_for

T = TypeVar("T")
QUIET_FOR = 0.7
"""Seconds before progress is printed."""


@define
class Heard:
    """What commands answered and reported while `heard` was open."""

    data: Any = None
    """What the command prints with --json."""
    text: str = ""
    diagnostics: list[Diagnostic] = field(factory=list)
    sources: dict[str, Source] = field(factory=dict)


_HEARD: ContextVar[Heard | None] = ContextVar("heard", default=None)


@contextmanager
def heard() -> Generator[Heard]:
    """Collect inside what commands would print of answers, diagnostics and progress: the Python API asks them so."""
    token = _HEARD.set(into := Heard())
    try:
        yield into
    finally:
        _HEARD.reset(token)


def source_of(a: Namespace) -> Source:
    """Read the program that the arguments name; raises Refused if that is impossible."""
    if a.expression is not None:
        return read(*reader.from_text(a.expression, "<text>"))
    if a.file is None:
        print("give a .moe file, - for standard input, or -e 'TEXT'", file=sys.stderr)
        raise Refused(())
    return program_of(a.file)


def variables(a: Namespace) -> dict[str, str]:
    """Return the variables of `--env NAME=VALUE`; raises Refused if one has no `=`."""
    for text in a.env:
        if "=" not in text:
            print(f"--env {text}: write NAME=VALUE", file=sys.stderr)
            raise Refused(())
    return dict(text.split("=", 1) for text in a.env)


def sources_of(path: str) -> dict[str, Source]:
    """Return a file that is no program, for labels that point into it; nothing if it is no text, so has no lines."""
    try:
        return {path: Source(path, text_of(Path(path)))}
    except (OSError, UnicodeDecodeError):
        return {}


_PROGRAMS = (".moe", ".py", ".json", ".txt", "")
"""The suffixes of files that are read as programs, or refused as such."""
IMPORTED = " (imported)"
"""Follows the name of a run's own file in the name of its program."""


def program_of(path: str) -> Source:
    """Read a run file, or write the program of a run's own file, such as a script of Megatron-LM; raises Refused."""
    if path == "-" or Path(path).suffix in _PROGRAMS or not Path(path).is_file():
        return read(*reader.read(path))
    from moedsl.bridge.recipe_import import imported

    made = imported(path)
    if made.text is None:
        raise Refused(made.diagnostics, sources_of(path))
    return Source(f"{path}{IMPORTED}", made.text)


def layout_of(like: str) -> str | Source:
    """Return the argument of `--like`: the name of a recipe, or the pins of a run's own file; raises Refused."""
    if not Path(like).is_file():
        return like
    from moedsl.bridge.recipe_import import imported

    made = imported(like)
    if not made.pins and [d.id for d in made.diagnostics] == ["import.recipe"]:  # its layout needs no machines
        made = imported(like, "h100", 1 << 16)
    if not made.pins:
        raise Refused(made.diagnostics, sources_of(like))
    return Source(f"{LIKE}{like}", made.pins)


def read(value: T | None, diagnostics: Iterable[Diagnostic]) -> T:
    """Return a value that was read; raises Refused with the diagnostics if it is None."""
    if value is None:
        raise Refused(diagnostics)
    return value


def say(diagnostics: Iterable[Diagnostic], sources: Mapping[str, Source]) -> None:
    """Print diagnostics as text on stderr."""
    if (into := _HEARD.get()) is not None:
        into.diagnostics += diagnostics
        into.sources |= sources
        return
    data = [to_json(d, sources) for d in diagnostics]
    if data:
        room = room_of(sys.stderr)
        window = min(WINDOW, room - MARGIN) if room else WINDOW
        text = render_all(data, colour=coloured(sys.stderr), window=window)
        print_painted(folded(text, sys.stderr), sys.stderr)


def print_text(make: Callable[[], str], end: str = "\n", painted: bool = False) -> None:
    """Print an answer for people on stdout, within the columns of a terminal; `painted` keeps its colours."""
    if (into := _HEARD.get()) is not None:
        into.text += make() + end
        return
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
    print_json(sarif_log(diagnostics, own_version()))


def failed_json(diagnostics: Iterable[Diagnostic], sources: Mapping[str, Source]) -> dict[str, Any]:
    """Make the JSON that a command with --json prints if there is no plan."""
    return {"version": 1, "diagnostics": [to_json(d, sources) for d in diagnostics]}


def stop_on(diagnostics: Iterable[Diagnostic], sources: Mapping[str, Source] = {}) -> None:
    """Raise Refused if there are diagnostics."""
    if found := [*diagnostics]:
        raise Refused(found, sources)


def accepted(value: T | Diagnostic) -> T:
    """Return a value; raises Refused if it is a diagnostic."""
    if isinstance(value, Diagnostic):
        raise Refused([value])
    return value


def refused(a: Namespace, why: Refused) -> int:
    """Print why a command does nothing, with --json also as JSON; return the exit code."""
    if getattr(a, "json", False):  # not every command prints JSON
        print_json(failed_json(why.diagnostics, why.sources))
    say(why.diagnostics, why.sources)
    return 1


def print_answer(a: Namespace, data: Any, text: Callable[[], str], end: str = "\n") -> None:
    """Print an answer: with --json its data, else its text for people."""
    if (into := _HEARD.get()) is not None:
        into.data = data
    if a.json and into is None:
        print_json(data)
    else:
        print_text(text, end)


def written(path: Path, text: str, note: str) -> int:
    """Write a file and report it on stderr; returns the exit code."""
    diagnostics = write_file(path, text)
    say(diagnostics, {})
    if not diagnostics:
        print(f"wrote {path}{note}", file=sys.stderr)
    return int(bool(diagnostics))


def put_out(a: Namespace, text: str, note: str, data: Mapping[str, Any]) -> int:
    """Write a text to the file of -o, or print it if there is none; with --json print `data`. Returns the exit code."""
    code = written(Path(a.output), text, note) if a.output else 0
    if a.json and not code:
        print_json({"version": 1, "file": a.output, **data})
    elif not a.output:
        print_file(text)
    return code


def tell(text: str) -> None:
    """Print a line on stderr that says what was done."""
    print(f"  {text}", file=sys.stderr, flush=True)


class Progress:
    """Report on stderr what is being done, once it takes longer than QUIET_FOR."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def __call__(self, text: str) -> None:
        if time.monotonic() - self._start > QUIET_FOR and _HEARD.get() is None:
            show_transient(f"  {text}", sys.stderr)


def compiled(a: Namespace, stop_after: str, notes: bool = True, run: str | None = None, asks: str = "plans") -> Result:
    """Run the stages up to `stop_after`, and return the result; raises Refused if there is an error.

    `asks` is what the command needs, `run` the only run to plan, and `notes` whether to print warnings and notes.
    """
    result = compile_source(
        source_of(a), stop_after, Progress(), layout_of(a.like), getattr(a, "target", ""), asks, run
    )
    if result.failed:
        raise Refused(result.diagnostics, result.sources)
    if notes:
        say(result.diagnostics, result.sources)
    return result


def own_version() -> str:
    """The installed version of moedsl."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("moedsl")
    except PackageNotFoundError:
        return "(not installed)"
