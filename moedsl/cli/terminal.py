"""Write to a terminal only visible text: all output of the command line passes here.

A reason in a program, a file name or a line of a log may come from somebody else, and contain escape codes that set the
clipboard or hide text.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any, TextIO, cast

from moedsl.support.text import WIDTH, visible

if TYPE_CHECKING:
    from moedsl.support.diagnostics import Diagnostic
    from moedsl.support.source import Source

_NARROWEST = 60
_COLOUR = re.compile(r"\x1b\[[\d;]*m")


class UnwrittenError(Exception):
    """The output cannot be written, for example because the disk is full."""


class Refused(Exception):
    """Raised if a command cannot go on, for the reasons in its diagnostics; the command ends with exit code 1."""

    def __init__(self, diagnostics: Iterable[Diagnostic], sources: Mapping[str, Source] = {}) -> None:
        self.diagnostics, self.sources = [*diagnostics], sources


class Shown:
    """A stream that shows hidden characters by their codes, and leaves out colours that files and libraries wrote.

    `isatty` is False: else NeMo-Run would print colours and links.
    """

    passing: TextIO | None = None
    """The terminal that shows a line of progress now; the next text erases the line."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        return self.write_painted(visible(_COLOUR.sub("", text) if "\x1b" in text else text))

    def write_painted(self, text: str) -> int:
        """Write a text with colours of moedsl and no other hidden characters."""
        with output_errors():
            erase()
            return self.stream.write(text)

    def flush(self) -> None:
        with output_errors():
            self.stream.flush()

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def isatty(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def show_transient(text: str, stream: TextIO) -> None:
    """Show a line of progress on a terminal, which the next text erases; a file or a pipe gets none."""
    room = room_of(stream)
    if room is None:
        return
    if _is_dumb():
        print(text, file=stream, flush=True)
        return
    erase()
    Shown.passing = raw_stream(stream)
    Shown.passing.write(visible(text)[: room - 1])
    Shown.passing.flush()


def erase() -> None:
    """Erase the line of progress that a terminal shows."""
    if Shown.passing is not None:
        Shown.passing.write("\r\x1b[K")
        Shown.passing.flush()
        Shown.passing = None


def clear(stream: TextIO) -> None:
    """Clear the terminal of a stream, so that the next text stands at its top."""
    below = raw_stream(stream)
    if below.isatty() and not _is_dumb():
        below.write("\x1b[H\x1b[J")


@contextmanager
def output_errors() -> Generator[None]:
    """Raise UnwrittenError for a failure of the output, so that it is not taken for a failure of a file."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise UnwrittenError(problem.strerror or str(problem)) from problem


@contextmanager
def shown() -> Generator[None]:
    """Pass standard output and standard error through `Shown`.

    Each standard stream that the caller has closed becomes the null device, because the next opened file would get its
    number. A stream that is not UTF-8 accepts every character: a file gets UTF-8, a terminal codes.
    """
    closed = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    for name in closed:
        nowhere = open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8")  # noqa: SIM115, closed below
        setattr(sys, name, nowhere)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() not in ("utf-8", "utf8"):
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="backslashreplace")
    out, err = cast(TextIO, Shown(sys.stdout)), cast(TextIO, Shown(sys.stderr))
    try:
        with redirect_stdout(out), redirect_stderr(err):
            yield
    finally:
        erase()
        for name in closed:
            getattr(sys, name).close()
            setattr(sys, name, None)


def coloured(stream: TextIO) -> bool:
    """Whether to colour output to a stream: a terminal that shows colours, of a user who wants them."""
    return raw_stream(stream).isatty() and not os.environ.get("NO_COLOR") and not _is_dumb()


def width(stream: TextIO) -> int:
    """Return the columns for a page on a stream: those of its terminal or of COLUMNS, within 60 and WIDTH."""
    known = raw_stream(stream).isatty() or "COLUMNS" in os.environ
    return max(_NARROWEST, min(columns(WIDTH), WIDTH)) if known else WIDTH


def room_of(stream: TextIO) -> int | None:
    """Return the columns of a stream's terminal, at least 60; None if the stream is not a terminal."""
    return max(_NARROWEST, columns(WIDTH) or WIDTH) if raw_stream(stream).isatty() else None


def folded(text: str, stream: TextIO) -> str:
    """Break lines that are too long for a stream's terminal between words, and indent their rest further than their
    start; unchanged if the stream is not a terminal."""
    room = room_of(stream)
    if room is None:
        return text
    from moedsl.support.render import PAINT  # `--help` has no diagnostics

    lines: list[str] = []
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip(" ")) + 2)
        part, used = "", 0
        for word in re.findall(r" *[^ ]+", line):
            wide = len(re.sub(PAINT, "", word))
            if part and used + wide > room:
                lines.append(part)
                part, used = indent, len(indent)
                wide -= len(word) - len(word.lstrip(" "))
                word = word.lstrip(" ")
            part, used = part + word, used + wide
        lines.append(part)
    return "\n".join(lines)


def columns(otherwise: int) -> int:
    """Return COLUMNS or the columns of the terminal; `otherwise` if neither is known."""
    try:
        return int(os.environ.get("COLUMNS") or os.get_terminal_size().columns)
    except (ValueError, OSError):  # COLUMNS is not a number, or the output not a terminal
        return otherwise


def print_painted(text: str, stream: TextIO, end: str = "\n") -> None:
    """Print a text with its colours. Text that comes from a file must be `visible` in it already."""
    write = stream.write_painted if isinstance(stream, Shown) else stream.write
    write(text + end)


def print_file(text: str) -> None:
    """Print the text of a file: unchanged, unless standard output is a terminal."""
    below = raw_stream(sys.stdout)
    (sys.stdout if below.isatty() else below).write(text)


def raw_stream(stream: TextIO) -> TextIO:
    """Return the stream below a `Shown`, or the stream itself."""
    return stream.stream if isinstance(stream, Shown) else stream


def _is_dumb() -> bool:
    return os.environ.get("TERM") == "dumb"
