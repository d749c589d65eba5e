"""Write files all or none, and never over one that moedsl did not write or that someone edited since.

Each file has a marker with the hash of its own text without the marker: a comment in its first line, of Python or of
HTML, or the first key of a JSON object. All files are staged in a hidden folder next to their places and renamed into
them. An error or an interrupt on the way restores the old files. One process at a time writes a folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from moedsl.support.diagnostics import Diagnostic, error

_COMMENT = re.compile(r"\A(?:#|<!--) moedsl: sha256=([0-9a-f]{64})(?: -->)?\n")
_KEY = re.compile(r'\A\{\n  "moedsl_sha256": "([0-9a-f]{64})",?')
_ELSEWHERE = "move it away, or write elsewhere with -o"
_FORCE = "write to another directory with -o, or give --force to replace it"


def digest(text: str) -> str:
    """SHA-256 of a text in UTF-8, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def stamp(name: str, text: str) -> str:
    """Add the marker to a text. A ``.json`` text must be an object that starts with ``{`` and a newline."""
    if text.startswith("<"):
        return f"<!-- moedsl: sha256={digest(text)} -->\n{text}"
    if not name.endswith(".json"):
        return f"# moedsl: sha256={digest(text)}\n{text}"
    comma = "" if text[1:].strip() == "}" else ","
    return f'{{\n  "moedsl_sha256": "{digest(text)}"{comma}{text[1:]}'


def written_by_us(name: str, text: str) -> str:
    """Classify a file as "ours", "edited" (formerly ours) or "foreign"."""
    found = _marker(name, text)
    if not found:
        return "foreign"
    rest = text[found.end() :]
    return "ours" if digest("{" + rest if name.endswith(".json") else rest) == found[1] else "edited"


def written_as(path: Path) -> str | None:
    """The hash of the text that moedsl wrote to a file; None if it is not there, or not as moedsl wrote it."""
    try:
        text = path.read_bytes().decode("utf-8", errors="replace")
    except OSError:
        return None
    found = _marker(path.name, text)
    return found[1] if found and written_by_us(path.name, text) == "ours" else None


def _marker(name: str, text: str) -> re.Match[str] | None:
    return (_KEY if name.endswith(".json") else _COMMENT).match(text)


def write_all(
    directory: str | Path, files: Mapping[str, str], force: bool = False, remove: Sequence[str] = ()
) -> list[Diagnostic]:
    """Write `files` (texts by name or path) into `directory`, made if necessary; returns errors, or an empty list.

    Those to `remove` go with it, and folders that are empty then.

    Errors: emit.exists (the directory is something else), emit.not_ours and emit.edited (without `force`),
    emit.unwritable (the system refuses). With any error nothing has changed.
    """
    folder = Path(directory)
    try:
        problems = list(_refusals(folder, files, force))
        if not problems:
            _replace(folder, {name: stamp(name, text).encode() for name, text in files.items()}, remove)
    except OSError as refused:
        return [_unwritable(folder, refused)]
    return problems


def _refusals(folder: Path, files: Mapping[str, str], force: bool) -> Iterator[Diagnostic]:
    wrong = [d for d in _folders(folder, files) if os.path.lexists(d) and not d.is_dir()]
    if wrong:
        yield error("emit.exists", f"{wrong[0]} is not a directory", help="name a directory with -o")
        return
    for name in files:
        yield from _refusal(folder / name, force)


def _folders(folder: Path, names: Iterable[str]) -> list[Path]:
    """The folder and its subfolders in the names, each once."""
    return list(dict.fromkeys([folder, *((folder / name).parent for name in names)]))


def _refusal(path: Path, force: bool) -> Iterator[Diagnostic]:
    if not os.path.lexists(path):
        return
    if path.is_dir() and not path.is_symlink():
        yield error("emit.exists", f"{path} is a directory", help=_ELSEWHERE)
    elif not path.is_symlink() and not path.is_file():
        yield error("emit.exists", f"{path} is a device, a pipe or a socket", help=_ELSEWHERE)
    elif not force:
        yield from _guarded(path)


def _guarded(path: Path) -> Iterator[Diagnostic]:
    if path.is_symlink():
        yield error("emit.not_ours", f"{path} is not a file that moedsl wrote", help=_FORCE)
        return
    state = written_by_us(path.name, path.read_bytes().decode("utf-8", errors="replace"))
    if state == "foreign":
        yield error("emit.not_ours", f"{path} was not written by moedsl", help=_FORCE)
    elif state == "edited":
        yield error("emit.edited", f"{path} was edited after moedsl wrote it", help=_FORCE)


def _unwritable(path: Path, refused: OSError) -> Diagnostic:
    message = f"cannot write {path}: {refused.strerror or refused}"
    return error("emit.unwritable", message, help="name a directory that you may write to with -o")


def _replace(folder: Path, contents: Mapping[str, bytes], remove: Sequence[str]) -> None:
    """Stage everything, keep existing files, then rename and remove; undo it all unless the last step is done.

    The last file is renamed first: it has the hashes of the others, so a writer that is killed leaves none without it.
    """
    from moedsl.support import folder_lock  # most commands write nothing

    folders = _folders(folder, [*contents, *remove])
    with ExitStack() as tidy:
        for part in folders:
            for made in _make(part):
                tidy.callback(_remove_empty, made)
        for part in {(folder / name).parent for name in remove}:
            tidy.callback(_remove_empty, part)
        for part in sorted({p.resolve() for p in folders}):  # in one order: no two processes wait for each other
            tidy.enter_context(folder_lock.held(part))
        stage = Path(tempfile.mkdtemp(prefix=folder_lock.STAGE, dir=folder))
        tidy.callback(shutil.rmtree, stage, ignore_errors=True)
        staged = {name: stage / str(i) for i, name in enumerate(contents)}
        for name, data in contents.items():
            _write(staged[name], data)
        with ExitStack() as undo:
            for name, new in reversed(staged.items()):
                undo.callback(_put_back, folder / name, _keep(folder / name, new.with_suffix(".old")))
                os.replace(new, folder / name)
            for i, name in enumerate(remove):
                undo.callback(_put_back, folder / name, _keep(folder / name, stage / f"{len(staged) + i}.old"))
                (folder / name).unlink(missing_ok=True)
            undo.pop_all()


def _make(folder: Path) -> list[Path]:
    """Make the folder and its parents; returns those that it made, outermost first."""
    missing = [p for p in (folder, *folder.parents) if not p.exists()][::-1]
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _keep(path: Path, kept: Path) -> Path | None:
    """Link what is at `path` under a second name, to restore it later; None if nothing is there."""
    if not os.path.lexists(path):
        return None
    try:
        os.link(path, kept, follow_symlinks=False)
    except OSError:  # a file system without links
        shutil.copy2(path, kept, follow_symlinks=False)
    return kept


def _put_back(path: Path, kept: Path | None) -> None:
    if kept is not None:
        os.replace(kept, path)
    else:
        path.unlink(missing_ok=True)


def _remove_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def hash_of(texts: Iterable[tuple[str, str]]) -> str:
    """Hash named texts together in any order: a source file with its includes, or the stdlib, for the lock."""
    lines = sorted(f"{name}\0{digest(text)}\n" for name, text in texts)
    return digest("".join(lines))
