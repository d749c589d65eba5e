"""Find what an earlier compile wrote into a folder and this one does not write again: files, and folders of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from moedsl.support import foreign
from moedsl.support.diagnostics import Diagnostic, note, warning
from moedsl.support.files import LOCK, written_by_us
from moedsl.support.foreign import text_of


@frozen
class LeftOver:
    """Files of an earlier compile, by their paths below the folder."""

    folder: Path
    ours: tuple[str, ...]
    """Those that are as moedsl wrote them, to be removed."""
    edited: tuple[str, ...]
    unsure: tuple[str, ...]
    """Folders of runs that may be of another program."""

    def diagnostics(self) -> list[Diagnostic]:
        """Name what is removed and what stays."""
        found = list[Diagnostic]()
        if self.ours:
            text = f"removed {self._named(self.ours)}, which an earlier compile wrote and this one does not write"
            found.append(note("emit.removed", text, help=_again(self.ours)))
        if self.edited:
            text = f"kept {self._named(self.edited)}, edited since an earlier compile: this compile does not write it"
            help = "it belongs to the earlier plan: move it away, or do not use it with the new recipe"
            found.append(warning("emit.left_over", text, help=help))
        if self.unsure:
            text = f"{self.folder} also holds {', '.join(self.unsure)}, from an earlier compile"
            help = (
                "remove those folders, or write to another one with -o: `results` and `verify` read all that is there"
            )
            found.append(warning("emit.left_over", text, help=help))
        return found

    def _named(self, names: Iterable[str]) -> str:
        return ", ".join(str(self.folder / name) for name in names)


def _again(names: Iterable[str]) -> tuple[str, ...]:
    """How to write them again: the option of a file next to the recipe, or the runs of a folder."""
    below = ["/" in name for name in names]
    launch = "`moedsl compile --emit launch` writes files of a launch"
    runs = "a program that has those runs writes their folders; `-o` names another folder for this one"
    return (*([] if all(below) else [launch]), *([runs] if any(below) else []))


def find(directory: str | Path, files: Mapping[str, str]) -> LeftOver:
    """Find what is in `directory` before a compile writes `files` there: ask before `write_all`.

    The lock of a folder names its files. A folder below is of an earlier compile into this one if it has the name of
    its run, and another has the same source: one compile of several runs made both.
    """
    folder = Path(directory)
    now = {(folder / name).parent for name in files}
    locks = {p.parent: _lock(p) for p in sorted(folder.glob(f"*/{LOCK}"))}
    sources = {p: lock["inputs"]["source"] for p, lock in locks.items() if lock and lock["decided"]["name"] == p.name}
    shared = Counter(sources.values())
    gone = [p for p, source in sources.items() if p not in now and shared[source] > 1]
    old = dict(_old(folder, files, [*dict.fromkeys([folder, *now]), *gone]))
    unsure = () if now == {folder} else _plans(folder, {*now, *gone})
    return LeftOver(
        folder,
        tuple(n for n, state in old.items() if state == "ours"),
        tuple(n for n, state in old.items() if state == "edited"),
        tuple(unsure),
    )


def _old(folder: Path, files: Mapping[str, str], parts: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """The files that the locks of some folders name and `files` does not have, each with its state."""
    for part in parts:
        lock = _lock(part / LOCK)
        for name in (*lock["files"], LOCK) if lock else ():
            path = part / name
            shown = str(path.relative_to(folder))
            if Path(name).name == name and shown not in files and path.is_file() and not path.is_symlink():
                yield shown, _state(path)


def _state(path: Path) -> str:
    """Whether a file is "ours", "edited" or "foreign", which one that cannot be read is."""
    try:
        return written_by_us(path.name, path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return "foreign"


def _lock(path: Path) -> dict[str, Any] | None:
    """The lock of a compile; None if there is none, or not one of this version."""
    try:
        lock = foreign.load_json(text_of(path))
        known = (lock["inputs"]["source"], lock["decided"]["name"], *lock["files"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return lock if all(isinstance(k, str) for k in known) else None


def _plans(folder: Path, known: Iterable[Path]) -> list[str]:
    """The folders below with the plan of a run, without those that are `known`."""
    plans = sorted(p for p in folder.glob("*/plan.json") if p.parent not in known and p.is_file())
    return [p.parent.name for p in plans if _state(p) != "foreign"]
