"""The page on disk: whole or not at all, and never over a file that `moedsl report` did not write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from moedsl.commands.fmt import replace
from moedsl.diagnostics import Diagnostic, error
from moedsl.report.page import SIGN


def refusals(path: Path, force: bool = False) -> list[Diagnostic]:
    """Why nothing may be written there; known before anything is planned.

    Errors: emit.exists (a folder, or below something that is none), emit.not_ours (without `force`), emit.unwritable.
    """
    try:
        return list(_refusals(path, force))
    except OSError as refused:
        return [_unwritable(path, refused)]


def write(path: Path, text: str) -> list[Diagnostic]:
    """Writes the page; emit.unwritable where the system refuses, and then nothing has changed."""
    try:
        replace(path, text)
    except OSError as refused:
        return [_unwritable(path, refused)]
    return []


def _refusals(path: Path, force: bool) -> Iterator[Diagnostic]:
    folder = path.resolve().parent
    if path.is_dir():
        yield error(
            "emit.exists", f"{path} is a directory", help=f"name a file with -o, such as {path / 'report.html'}"
        )
    elif folder.exists() and not folder.is_dir():
        yield error("emit.exists", f"{folder} is not a directory", help="name a file in a directory with -o")
    elif not folder.exists():
        help = (f"mkdir -p {path.parent}", "or name a file in a directory that exists with -o")
        yield error("emit.unwritable", f"cannot write {path}: there is no directory {path.parent}", help=help)
    elif path.exists() and not force and SIGN not in path.read_text(encoding="utf-8", errors="replace")[:400]:
        help = "write to another file with -o, or give --force to replace it"
        yield error("emit.not_ours", f"{path} was not written by `moedsl report`", help=help)


def _unwritable(path: Path, refused: OSError) -> Diagnostic:
    text = f"cannot write {path}: {refused.strerror or refused}"
    return error("emit.unwritable", text, help="name a file that you may write to with -o")
