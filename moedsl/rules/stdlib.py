"""Parse, collect and check the stdlib once and cache it, so that a start reads one file if nothing changed.

The cache's name depends on the content of every file of the stdlib and of the modules that made it, so a change of
either leads to another name. The blocks of rules themselves are read only when they are needed.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections import ChainMap
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import TypeVar, cast

from attrs import frozen

from moedsl.facts.calibration import Constants
from moedsl.lang import ast, parse_cache
from moedsl.rules import collect, ids, library
from moedsl.rules.calibrations import EVERY
from moedsl.rules.library import Library
from moedsl.rules.rule import Collected
from moedsl.support import disk_cache, resources
from moedsl.support.packed import Packed
from moedsl.support.source import Source

V = TypeVar("V")
PACKAGES = ("facts", "rules")
"""The packages that the cache depends on, besides those of a parsed module (`disk_cache.PACKAGES`)."""


@frozen
class Kept:
    """The declarations by name, and the rules of a run with the scope that they see."""

    models: Packed[ast.ModelDecl]
    hardware: Packed[ast.HardwareDecl]
    clusters: Packed[ast.ClusterDecl]
    calibrations: Packed[ast.CalibrationDecl]
    profiles: Packed[ast.ProfileDecl]
    constants: Packed[Constants]
    collected: Collected


_IN_MEMORY: dict[str, Kept] = {}
"""The stdlib that this process read or made last, by its name: a notebook, a server and a test compile many times."""


@frozen
class _Read:
    """Files that were read, with what tells whether one changed since, and their texts."""

    stamps: tuple[tuple[str, int, int, int], ...]
    sources: list[Source]
    name: str


_last: _Read | None = None


def load() -> Library:
    """Load the whole stdlib; one with an error is not cached, and one without an id that Python names raises."""
    global _last
    files = resources.stdlib_paths()
    stamps = tuple((f, s.st_mtime_ns, s.st_size, s.st_ino) for f, s in ((f, os.stat(f)) for f in files))
    if _last is None or _last.stamps != stamps:
        sources = library.sources(map(Path, files))
        _last = _Read(stamps, sources, key(sources))
    return _loaded(_last.sources, _last.name)


def _loaded(sources: list[Source], name: str) -> Library:
    kept = _load(name)
    return _made(sources, kept) if kept is not None else _make(sources, name)


def _make(sources: Sequence[Source], name: str) -> Library:
    found = _read(sources)
    ids.require_known(found.own_rules)
    known, scope, wrong = collect.collect(found.rules)
    if wrong or found.diagnostics:
        return found
    collected = Collected(known, scope, collect.used(known, scope))
    read = {arch: found.constants(arch) for arch in found.calibrations if EVERY in found.calibrations}
    constants = {arch: made for arch, (made, mistakes) in read.items() if made and not mistakes}
    kept = Kept(
        Packed(found.models), Packed(found.hardware), Packed(found.clusters), Packed(found.calibrations),
        Packed(found.profiles), Packed(constants), collected,
    )  # fmt: skip
    disk_cache.save_value(name, kept)
    _remember(name, kept)
    return _made(sources, kept)


def _made(sources: Sequence[Source], kept: Kept) -> Library:
    return Library(
        _open(kept.models), _open(kept.hardware), _open(kept.clusters), _open(kept.calibrations),
        profiles=_open(kept.profiles), sources={s.name: s for s in sources}, collected=kept.collected,
        constants_known=kept.constants, blocks=lambda: _blocks(tuple(sources)),
    )  # fmt: skip


def _open(kept: Packed[V]) -> MutableMapping[str, V]:
    """The declarations, to which a file can add its own."""
    return ChainMap({}, cast(dict[str, V], kept))


@functools.lru_cache(maxsize=1)
def _blocks(sources: tuple[Source, ...]) -> list[tuple[str, ast.RulesDecl]]:
    """Read the stdlib's blocks of rules, once in a process unless a file changes."""
    return _read(sources).own_rules


def _read(sources: Sequence[Source]) -> Library:
    with parse_cache.together() as parse:
        return library.of_sources(sources, parse)


def key(sources: Sequence[Source]) -> str:
    """The name of the cache of these sources by this code."""
    digest = hashlib.sha256(_code())
    for source in sources:
        digest.update(f"{source.name}\0{source.text}\0".encode("utf-8", "surrogatepass"))
    return f"{digest.hexdigest()[:40]}.stdlib"


@functools.cache
def _code() -> bytes:
    return resources.code(*PACKAGES)


def _load(name: str) -> Kept | None:
    if name not in _IN_MEMORY:
        kept = disk_cache.load_value(name)
        if not isinstance(kept, Kept):
            return None
        _remember(name, kept)
    return _IN_MEMORY[name]


def _remember(name: str, kept: Kept) -> None:
    _IN_MEMORY.clear()
    _IN_MEMORY[name] = kept
