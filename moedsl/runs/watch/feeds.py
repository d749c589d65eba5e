"""Read what logs gain: each line once, from where the last call ended."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from attrs import define, field

from moedsl.diagnose import scan
from moedsl.support.foreign import Until

LAST = 64 << 20
"""The most bytes of a file that the first call reads: those at its end."""
UNFINISHED_S = 60.0
"""Seconds after which a line without an end counts as whole."""


class Feed(Protocol):
    """A log that may grow."""

    @property
    def name(self) -> str: ...

    @property
    def changed(self) -> float | None:
        """The time of its newest lines; None before its first."""
        ...

    def blocks(self, whole: bool) -> Iterator[bytes]:
        """The new lines; an unfinished last one only if `whole`."""
        ...


@define
class File:
    """A file on this machine. A file that is cut or replaced is read from its start."""

    path: Path
    changed: float | None = None
    offset: int = 0
    skipped: int = 0
    """The bytes before those that were read."""
    inode: int | None = None

    @property
    def name(self) -> str:
        return str(self.path)

    def blocks(self, whole: bool) -> Iterator[bytes]:
        try:
            stream = self.path.open("rb")
        except FileNotFoundError:  # between two files of a rotation
            return
        with stream:
            about = os.fstat(stream.fileno())
            self.changed = about.st_mtime
            whole = whole or time.time() - about.st_mtime > UNFINISHED_S
            if self.inode is None and about.st_size > LAST:
                stream.seek(about.st_size - LAST)
                stream.readline()
                self.offset = self.skipped = stream.tell()
            elif self.inode != about.st_ino or about.st_size < self.offset:
                self.offset = 0
            self.inode = about.st_ino
            stream.seek(self.offset)
            for block in scan.blocks(io.BufferedReader(Until(stream))):
                if not whole and not block.endswith(b"\n") and len(block) <= scan.LONGEST:
                    return
                self.offset += len(block)
                yield block


@define
class Tunnel:
    """The logs of a Slurm job that are read through ssh."""

    name: str
    reader: Any
    """moedsl.launch.logs.Reader"""
    changed: float | None = None

    def blocks(self, whole: bool) -> Iterator[bytes]:
        if lines := self.reader.more(whole):
            self.changed = time.time()
            yield "".join(f"{line}\n" for line in lines).encode(errors="replace")


@define
class Pods:
    """The logs of a job's pods."""

    name: str
    executor: Any
    changed: float | None = None
    seen: dict[str, str] = field(factory=dict)

    def blocks(self, whole: bool) -> Iterator[bytes]:
        from moedsl.launch import logs

        out = io.StringIO()
        logs.print_logs(self.executor, self.name, False, out, self.seen)
        if text := out.getvalue():
            self.changed = time.time()
            yield text.encode(errors="replace")
