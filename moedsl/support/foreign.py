"""Read input that others may have written: texts, files that are still growing, JSON and Python.

Devices, sockets and named pipes are not read, because they may never end. Python's parser cannot be stopped, so the
size of its input is bounded.
"""

from __future__ import annotations

import ast
import errno
import io
import json
import os
import re
import stat
from pathlib import Path
from typing import Any, BinaryIO

from moedsl.support.diagnostics import Diagnostic, Label, error
from moedsl.support.limits import File, TooLarge
from moedsl.support.source import Span


def text_of(path: Path) -> str:
    """Read a file, or the pipe of a shell's ``<(command)``; raise OSError or UnicodeDecodeError."""
    refuse_special(path)
    return path.read_text(encoding="utf-8")


_PACKAGES = re.compile(r".*/(?:site|dist)-packages/|.*/(?=megatron/(?:bridge|core|training)/)")


def below_packages(file: str) -> str:
    """Return a file's path below Python's packages or a repository that has Bridge or Megatron; else the file."""
    return _PACKAGES.sub("", file, count=1)


def refuse_special(path: Path) -> None:
    """Raise OSError unless the path is a file, a directory, an unnamed pipe, or missing."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    unnamed = stat.S_ISFIFO(mode) and not path.resolve().exists()
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or unnamed):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def refused(path: str | Path, e: OSError, in_folder: str) -> Diagnostic:
    """Report a file that cannot be opened; `in_folder` is the help if the path is a folder."""
    at = Label(Span(str(path), 0, 0))
    if isinstance(e, FileNotFoundError):
        return error("read.missing:absent", at, path=path)
    if isinstance(e, IsADirectoryError):
        return error("read.directory:directory", at, path=path, help=in_folder)
    return error("read.denied:refused", at, path=path, reason=e.strerror or e)


class Until(io.RawIOBase):
    """A stream of a file from its current position to its present end, without bytes that are written later."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._stream, self._left = stream, os.fstat(stream.fileno()).st_size - stream.tell()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        data = self._stream.read(min(self._left, len(buffer)))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)


def load_json(text: str | bytes) -> Any:
    """Parse JSON; raise ValueError if a text is not JSON, or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


MOST_PYTHON = 400_000
"""The most characters of a Python file. Each takes up to 4 µs and 1 kB; Megatron's largest file has 245,000."""


def parse_python_file(path: Path) -> ast.Module | None:
    """Parse a Python file; None as in `parse_python`. Raise TooLarge, or OSError if the file cannot be read."""
    try:
        with path.open(encoding="utf-8") as stream:
            text = stream.read(MOST_PYTHON + 1)
    except UnicodeDecodeError:
        return None
    if len(text) > MOST_PYTHON:
        raise TooLarge(f"has more than {MOST_PYTHON // 1000} kB of Python", File(str(path)))
    return parse_python(text)


def parse_python(text: str) -> ast.Module | None:
    """Parse Python; None if a text is not Python, or too long or too deeply nested to parse."""
    try:
        return ast.parse(text) if len(text) <= MOST_PYTHON else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested too deep
        return None
