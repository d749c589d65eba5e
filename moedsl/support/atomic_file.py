"""Write a file in one step, and never over one that the command did not write."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from moedsl.diagnostics.model import Diagnostic, error

Owned = Callable[[str], bool]
"""Whether a text is the command's own work."""


def refusals(path: Path, by: str, owned: Owned = lambda _: False, force: bool = False) -> list[Diagnostic]:
    """Report before the work why the command `by` may not write there.

    Errors: emit.exists (a folder, or below something that is not one), emit.not_ours (a text that is not `owned`,
    without `force`), emit.unwritable.
    """
    try:
        return list(_refusals(path, by, owned, force))
    except OSError as refused:
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


def _refusals(path: Path, by: str, owned: Owned, force: bool) -> Iterator[Diagnostic]:
    folder = path.resolve().parent
    if path.is_dir():
        yield error("emit.exists", f"{path} is a directory", help="name a file in it with -o")
    elif folder.exists() and not folder.is_dir():
        yield error("emit.exists", f"{folder} is not a directory", help="name a file in a directory with -o")
    elif not folder.exists():
        help = (f"mkdir -p {path.parent}", "or name a file in a directory that exists with -o")
        yield error("emit.unwritable", f"cannot write {path}: there is no directory {path.parent}", help=help)
    elif path.exists() and not force and not owned(path.read_text(encoding="utf-8", errors="replace")):
        help = "write to another file with -o, or give --force to replace it"
        yield error("emit.not_ours", f"{path} was not written by `moedsl {by}`", help=help)


def _unwritable(path: Path, refused: OSError) -> Diagnostic:
    text = f"cannot write {path}: {refused.strerror or refused}"
    return error("emit.unwritable", text, help="name a file that you may write to with -o")


def _umask() -> int:
    """The user's umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
