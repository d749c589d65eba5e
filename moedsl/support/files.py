"""Write all files or none, and never over a file that moedsl did not write or that was edited since.

Each file has a marker with the hash of the rest of its text: a Python or HTML comment in the first line, or the first
key of a JSON object. `write_all` writes a compile's files, all under temporary names before it renames the first.
`write_file` writes one file, whose path `refusals` checks before the work. `left_over` finds the files and run folders
that an earlier compile wrote into a folder and this one does not rewrite.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from attrs import frozen

from moedsl.support import foreign
from moedsl.support.diagnostics import Diagnostic, error, note, warning
from moedsl.support.foreign import text_of

LOCK = "moedsl.lock.json"
"""The file with the hashes of the others."""
COMPILE_AGAIN = "compile into this folder again: a compile that wrote there was killed"
_SIGNED = 500
"""How many characters at a file's start may contain its command's `sign`."""
_COMMENT = re.compile(r"\A(?:#|<!--) moedsl: sha256=([0-9a-f]{64})(?: -->)?\n")
_KEY = re.compile(r'\A\{\n  "moedsl_sha256": "([0-9a-f]{64})",?')


def digest(text: str) -> str:
    """Return the SHA-256 of a text in UTF-8, in hexadecimal."""
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
    """Return the hash in a file's marker; None if the file is missing, edited or not from moedsl."""
    text = _text(path)
    found = _marker(path.name, text)
    return found[1] if found and written_by_us(path.name, text) == "ours" else None


def _text(path: Path) -> str:
    """Return a file's text with its original line ends; empty if it is no file or cannot be read."""
    try:
        return path.read_bytes().decode("utf-8", errors="replace") if path.is_file() else ""
    except OSError:
        return ""


def _marker(name: str, text: str) -> re.Match[str] | None:
    return (_KEY if name.endswith(".json") else _COMMENT).match(text)


def write_all(
    directory: str | Path, files: Mapping[str, str], force: bool = False, remove: Sequence[str] = ()
) -> list[Diagnostic]:
    """Write `files` (texts by name or path) into `directory`, created if necessary; return the errors.

    The files to `remove` are deleted, as are folders that this leaves empty.

    Errors: emit.exists (the directory is something else), emit.not_ours and emit.edited (without `force`),
    emit.unwritable (the system refuses). After an error nothing has changed, unless the system refuses in the middle of
    renaming, which `mixed` detects later.
    """
    folder = Path(directory)
    contents = {name: stamp(name, text).encode() for name, text in files.items()}
    try:
        problems = [*_in_the_way(folder, files, force)]
        if problems:
            return problems
        with ExitStack() as tidy:
            for part in _folders(folder, [*files, *remove]):
                missing = [p for p in (part, *part.parents) if not p.exists()]
                part.mkdir(parents=True, exist_ok=True)
                for made in reversed(missing):
                    tidy.callback(_remove_empty, made)
            staged = dict[Path, Path]()
            for name, data in contents.items():
                staged[folder / name] = temporary = write_temporary(folder / name, data)
                tidy.callback(temporary.unlink, missing_ok=True)
            # Rename the lock, which has the others' hashes, first, so that `mixed` notices if the writer is killed
            for path, temporary in reversed(staged.items()):
                os.replace(temporary, path)
            for name in remove:
                (folder / name).unlink(missing_ok=True)
                _remove_empty((folder / name).parent)
    except OSError as refused:
        return [error("emit.unwritable:folder", path=folder, reason=refused.strerror or refused)]
    return []


def _in_the_way(folder: Path, files: Mapping[str, str], force: bool) -> Iterator[Diagnostic]:
    """Report files and folders that `write_all` may not replace."""
    wrong = [d for d in _folders(folder, files) if os.path.lexists(d) and not d.is_dir()]
    if wrong:
        yield error("emit.exists:folder-in-way", wrong=wrong[0])
        return
    elsewhere = "move it away, or write elsewhere with -o"
    help = "write to another directory with -o, or give --force to replace it"
    for path in (folder / name for name in files if os.path.lexists(folder / name)):
        if path.is_dir() and not path.is_symlink():
            yield error("emit.exists:is-folder", path=path, help=elsewhere)
        elif not path.is_file() and not path.is_symlink():
            yield error("emit.exists:special", path=path, help=elsewhere)
        elif path.is_symlink() and not force:
            yield error("emit.not_ours:other-file", path=path, help=help)
        elif not force:
            state = written_by_us(path.name, path.read_bytes().decode("utf-8", errors="replace"))
            if state == "foreign":
                yield error("emit.not_ours:other-writer", path=path, help=help)
            elif state == "edited":
                yield error("emit.edited", path=path, help=help)


def _folders(folder: Path, names: Iterable[str]) -> list[Path]:
    """Return the folder and the subfolders that the names have, each once."""
    return list(dict.fromkeys([folder, *((folder / name).parent for name in names)]))


def write_temporary(path: Path, data: bytes, mode: int | None = None) -> Path:
    """Write data to a hidden file next to a path, to be renamed to it; by default with the mode of a new file."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if mode is None:
            os.umask(umask := os.umask(0))  # it can be read only by setting it
            mode = 0o666 & ~umask
        os.chmod(name, mode)
    except BaseException:
        os.unlink(name)
        raise
    return Path(name)


def _remove_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def hash_of(texts: Iterable[tuple[str, str]]) -> str:
    """Hash named texts, in any order, for the lock: a source file with its includes, or the stdlib."""
    lines = sorted(f"{name}\0{digest(text)}\n" for name, text in texts)
    return digest("".join(lines))


def refusals(path: Path, by: str, sign: str = "", force: bool = False) -> list[Diagnostic]:
    """Report, before the work, why the command `by` may not write to a path.

    A command may replace only its own files, which have the marker and `sign` near their start. Errors:
    emit.exists (the path is not a file, or its parent not a folder), emit.not_ours and emit.edited (without `force`),
    emit.unwritable.
    """
    try:
        folder = path.resolve().parent
        if path.is_dir():
            return [error("emit.exists:is-folder-output", path=path)]
        if path.exists() and not path.is_file():
            return [error("emit.exists:special-output", path=path)]
        if folder.exists() and not folder.is_dir():
            return [error("emit.exists:file-in-way", folder=folder)]
        if not folder.exists():
            return [error("emit.unwritable:no-folder", path=path, parent=path.parent)]
        if path.is_symlink() and not path.exists():  # writing would create a file elsewhere
            return [error("emit.exists:link", path=path)]
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() and not force else None
    except (OSError, RuntimeError) as refused:  # before Python 3.13, a link to itself raises RuntimeError
        return [_unwritable_file(path, refused)]
    if text is None:
        return []
    help = "write to another file with -o, or give --force to replace it"
    state = written_by_us(path.name, text) if sign and sign in text[:_SIGNED] else "foreign"
    if state == "foreign":
        return [error("emit.not_ours:other-command", path=path, by=by, help=help)]
    return [error("emit.edited", path=path, help=help)] if state == "edited" else []


def write_file(path: Path, text: str) -> list[Diagnostic]:
    """Write a file; return emit.unwritable, with nothing changed, if the system refuses."""
    try:
        replace_file(path, text)
    except OSError as refused:
        return [_unwritable_file(path, refused)]
    return []


def replace_file(path: Path, text: str) -> None:
    """Replace a file atomically, keeping its mode; a link stays a link."""
    target = path.resolve()
    mode = target.stat().st_mode if target.exists() else None
    os.replace(write_temporary(target, text.encode(), mode), target)


def _unwritable_file(path: Path, refused: OSError | RuntimeError) -> Diagnostic:
    reason = refused.strerror or refused if isinstance(refused, OSError) else "a link to itself"
    return error("emit.unwritable:file", path=path, reason=reason)


def mixed(folder: Path) -> str:
    """Name the unedited files that are from another compile than the lock; empty if there are none.

    A compile that is killed while renaming leaves such a mixture.
    """
    lock = _lock(folder / LOCK)
    here = {name: hash for name, hash in (lock["files"] if lock else {}).items() if "/" not in name}
    others = [name for name, hash in here.items() if written_as(folder / name) not in (None, hash)]
    return f"{', '.join(others)} and {LOCK} are of different compiles" if others else ""


@frozen
class LeftOver:
    """Files of an earlier compile, as paths below the folder."""

    folder: Path
    ours: tuple[str, ...]
    """Unedited files, which are to be removed."""
    edited: tuple[str, ...]
    unsure: tuple[str, ...]
    """Run folders that may belong to another program."""

    def diagnostics(self) -> list[Diagnostic]:
        """Report what is removed and what stays."""
        found = list[Diagnostic]()
        ours, edited = (", ".join(str(self.folder / name) for name in names) for names in (self.ours, self.edited))
        if ours:
            below = ["/" in name for name in self.ours]
            launch = "`moedsl compile --emit launch` writes files of a launch"
            runs = "a program that has those runs writes their folders; `-o` names another folder for this one"
            again = (*([] if all(below) else [launch]), *([runs] if any(below) else []))
            found.append(note("emit.removed", named=ours, help=again))
        if edited:
            found.append(warning("emit.left_over:edited", named=edited))
        if self.unsure:
            found.append(warning("emit.left_over:folders", folder=self.folder, unsure=", ".join(self.unsure)))
        return found


def left_over(directory: str | Path, files: Mapping[str, str]) -> LeftOver:
    """Find an earlier compile's files in `directory` that are not in `files`; call it before `write_all`.

    A folder's lock names its files. A subfolder is from an earlier compile into this folder if it has its run's name
    and another subfolder has the same source, because one compile of several runs made both.
    """
    folder = Path(directory)
    now = {(folder / name).parent for name in files}
    locks = {p.parent: _lock(p) for p in sorted(folder.glob(f"*/{LOCK}"))}
    sources = {p: lock["inputs"]["source"] for p, lock in locks.items() if lock and lock["decided"]["name"] == p.name}
    shared = Counter(sources.values())
    gone = [p for p, source in sources.items() if p not in now and shared[source] > 1]
    old = dict[str, list[str]](ours=[], edited=[], foreign=[])
    for part in dict.fromkeys([folder, *now, *gone]):
        lock = _lock(part / LOCK)
        for name in (*lock["files"], LOCK) if lock else ():
            path = part / name
            shown = str(path.relative_to(folder))
            if Path(name).name == name and shown not in files and path.is_file() and not path.is_symlink():
                old[written_by_us(name, _text(path))].append(shown)
    plans = sorted(p for p in folder.glob("*/plan.json") if p.parent not in {*now, *gone} and p.is_file())
    unsure = () if now == {folder} else (p.parent.name for p in plans if written_by_us(p.name, _text(p)) != "foreign")
    return LeftOver(folder, tuple(old["ours"]), tuple(old["edited"]), tuple(unsure))


def _lock(path: Path) -> dict[str, Any] | None:
    """Read a compile's lock; None if there is none, or if it is from another version."""
    try:
        lock = foreign.load_json(text_of(path))
        known = (lock["inputs"]["source"], lock["decided"]["name"], *lock["files"], *lock["files"].values())
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return lock if all(isinstance(k, str) for k in known) else None
