"""Keep the compiled forms of files that ship with moedsl: the grammar's tables and the standard library.

They are in ``moedsl/_data/compiled``, beside the code that reads them. A wheel contains them from its build on
(hatch_build.py); a checkout makes them at the first start and again when a source changes. If the folder is not
writable, every process compiles for itself. moedsl reads no other pickles.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import pickle
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from moedsl.support.files import write_temporary
from moedsl.support.resources import PACKAGE, installed

V = TypeVar("V")
FOLDER = PACKAGE / "_data" / "compiled"


class Packed(Mapping[str, V], Generic[V]):
    """A mapping that unpickles each value at its first use, because a plan needs few of the library's declarations."""

    def __init__(self, values: Mapping[str, V]) -> None:
        self._packed = {name: pickle.dumps(value, pickle.HIGHEST_PROTOCOL) for name, value in values.items()}
        self._read: dict[str, V] = {}

    def __getitem__(self, name: str) -> V:
        if name not in self._read:
            self._read[name] = pickle.loads(self._packed[name])
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        return name in self._packed

    def __iter__(self) -> Iterator[str]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)

    def __getstate__(self) -> dict[str, Any]:
        return {"_packed": self._packed, "_read": {}}


def stamp(packages: Iterable[str], files: Iterable[str]) -> bytes:
    """Hash the times and sizes of files and of packages' modules; a constant in a wheel, where nothing changes."""
    if installed():
        return hashlib.sha256().digest()
    folders = [str(PACKAGE / name) for name in packages]
    modules = (f"{folder}/{f}" for folder in folders for f in os.listdir(folder) if f.endswith(".py"))
    stats = ((path, os.stat(path)) for path in sorted((*modules, *files)))
    return hashlib.sha256(repr([(path, s.st_mtime_ns, s.st_size) for path, s in stats]).encode()).digest()


def load(name: str, stamp: bytes) -> Any:
    """Return the value saved under this name with this stamp; None if there is none."""
    try:
        body = (FOLDER / name).read_bytes()
    except OSError:
        return None
    if body[:32] != stamp:
        return None
    collecting = gc.isenabled()
    gc.disable()  # it would visit each of a hundred thousand new objects several times
    try:
        return pickle.loads(memoryview(body)[32:])
    finally:
        if collecting:
            gc.enable()


def save(name: str, stamp: bytes, value: Any) -> None:
    """Save a value if the folder is writable."""
    with contextlib.suppress(OSError):
        FOLDER.mkdir(parents=True, exist_ok=True)
        data = stamp + pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        os.replace(write_temporary(FOLDER / name, data, 0o644), FOLDER / name)
