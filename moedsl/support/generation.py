"""Tell whether the files of a folder are of one compile: a writer that is killed while it renames leaves a mixture."""

from __future__ import annotations

from pathlib import Path

from moedsl.support import foreign_json
from moedsl.support.owned_files import written_as
from moedsl.support.regular_file import text_of

LOCK = "moedsl.lock.json"
"""The file with the hashes of the others."""
AGAIN = "compile into this folder again: a compile that wrote there was killed"


def mixed(folder: Path) -> str:
    """Name the files that are as moedsl wrote them, but of another compile than the lock; empty if there are none."""
    try:
        files = foreign_json.loads(text_of(folder / LOCK))["files"]
        here = [name for name in files if "/" not in name and (folder / name).is_file()]
        others = [name for name in here if written_as(folder / name) not in (None, files[name])]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # no lock, or not one of this version
        return ""
    return f"{', '.join(others)} and {LOCK} are of different compiles" if others else ""
