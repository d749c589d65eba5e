"""Write a file in one step, and never over one that the command did not write or that someone edited since."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.owned_files import written_by_us

_SIGNED = 500
"""The characters of a file that have the sign of its command."""


def refusals(path: Path, by: str, sign: str = "", force: bool = False) -> list[Diagnostic]:
    """Report before the work why the command `by` may not write there.

    The command replaces its own files: those with the marker of `owned_files` and with `sign` near it. Errors:
    emit.exists (no file, or below something that is no folder), emit.not_ours and emit.edited (without `force`),
    emit.unwritable.
    """
    try:
        return list(_refusals(path, by, sign, force))
    except (OSError, RuntimeError) as refused:  # below Python 3.13 a link to itself is the second
        return [_unwritable(path, refused)]


def write(path: Path, text: str) -> list[Diagnostic]:
    """Write the file; emit.unwritable if the system refuses, and then nothing has changed."""
    try:
        replace(path, text)
    except OSError as refused:
        return [_unwritable(path, refused)]
    return []


def replace(path: Path, text: str) -> None:
    """Write a file in one step; a link stays a link, the mode stays."""
    target = path.resolve()
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as f:
            f.write(text)
        os.chmod(temporary, target.stat().st_mode if target.exists() else 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _refusals(path: Path, by: str, sign: str, force: bool) -> Iterator[Diagnostic]:
    folder = path.resolve().parent
    if path.is_dir():
        yield error("emit.exists", f"{path} is a directory", help="name a file in it with -o")
    elif path.exists() and not path.is_file():
        yield error("emit.exists", f"{path} is a device, a pipe or a socket", help="name a file with -o")
    elif folder.exists() and not folder.is_dir():
        yield error("emit.exists", f"{folder} is not a directory", help="name a file in a directory with -o")
    elif not folder.exists():
        help = (f"mkdir -p {path.parent}", "or name a file in a directory that exists with -o")
        yield error("emit.unwritable", f"cannot write {path}: there is no directory {path.parent}", help=help)
    elif path.is_symlink() and not path.exists():  # it would become a file elsewhere
        help = "remove the link, or name another file with -o"
        yield error("emit.exists", f"{path} is a link to a file that is not there", help=help)
    elif path.exists() and not force:
        yield from _guarded(path, by, sign)


def _guarded(path: Path, by: str, sign: str) -> Iterator[Diagnostic]:
    text = path.read_text(encoding="utf-8", errors="replace")
    help = "write to another file with -o, or give --force to replace it"
    state = written_by_us(path.name, text) if sign and sign in text[:_SIGNED] else "foreign"
    if state == "foreign":
        yield error("emit.not_ours", f"{path} was not written by `moedsl {by}`", help=help)
    elif state == "edited":
        yield error("emit.edited", f"{path} was edited after moedsl wrote it", help=help)


def _unwritable(path: Path, refused: OSError | RuntimeError) -> Diagnostic:
    text = f"cannot write {path}: {refused.strerror or refused if isinstance(refused, OSError) else 'a link to itself'}"
    return error("emit.unwritable", text, help="name a file that you may write to with -o")


def _umask() -> int:
    """The user's umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
