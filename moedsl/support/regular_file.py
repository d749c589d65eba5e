"""Read a text that somebody else may have written, but no device, socket or named pipe: they may never end."""

from __future__ import annotations

import errno
import stat
from pathlib import Path

from moedsl.support.diagnostics import Diagnostic, Label, error
from moedsl.support.source import Span


def text_of(path: Path) -> str:
    """Read a file, or the pipe of a shell's ``<(command)``. Raises OSError, or UnicodeDecodeError."""
    refuse_special(path)
    return path.read_text(encoding="utf-8")


def refuse_special(path: Path) -> None:
    """Raise OSError unless it is a file, a directory or a pipe without a name, or missing."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    unnamed = stat.S_ISFIFO(mode) and not path.resolve().exists()
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or unnamed):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def refused(path: str | Path, e: OSError, in_folder: str) -> Diagnostic:
    """Report a file that cannot be opened; `in_folder` is the help where it is a folder."""
    at = Label(Span(str(path), 0, 0))
    if isinstance(e, FileNotFoundError):
        return error("read.missing", f"{path} does not exist", at, help="check the path")
    if isinstance(e, IsADirectoryError):
        return error("read.directory", f"{path} is a directory", at, help=in_folder)
    return error("read.denied", f"{path} cannot be read: {e.strerror or e}", at, help="check its permissions")
