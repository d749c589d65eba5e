"""Open what a person gives as a trace: an sqlite export, a report of Nsight Systems, or JSON, by its first bytes."""

from __future__ import annotations

import gzip
import io
import shutil
import sqlite3
import subprocess
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

from moedsl.runs.profile import kineto, nsight
from moedsl.runs.profile.json_stream import Malformed, Truncated
from moedsl.runs.profile.trace import Trace
from moedsl.support.diagnostics import Diagnostic, Label, error
from moedsl.support.foreign import Until, refused
from moedsl.support.source import Span
from moedsl.support.text import size

SQLITE, GZIP = b"SQLite format 3\0", b"\x1f\x8b"
REPORT = ".nsys-rep"
EXPORT = "nsys export --type sqlite -o {stem}.sqlite {path}"
LINES, LEAST = 8, 1 << 24
"""A large file has so many lines of progress; none is for fewer bytes."""
HELP = "give the sqlite export of Nsight Systems, or the JSON of PyTorch's profiler, plain or compressed with gzip"

IsStep = Callable[[str], bool]
Said = Callable[[str], object]


def traces(path: Path, is_step: IsStep, said: Said) -> list[Trace] | Diagnostic:
    """Read the traces of a file, or say why not."""
    if path.is_fifo():
        return _wrong("read.special", path, "is not a regular file", "save it as a file first")
    try:
        with path.open("rb") as stream:
            start = stream.read(16)
    except OSError as e:
        return refused(path, e, "name the traces in it")
    if not start:
        return _wrong("profile.empty", path, "is empty", "profile again, and let the run end or the profiler stop")
    try:
        return _read(path, start, is_step, said)
    except Truncated as e:
        return _wrong(
            "profile.truncated",
            path,
            f"is incomplete: {e}",
            "copy it again; a profiler that was killed wrote only a part",
        )
    except (Malformed, UnicodeDecodeError) as e:
        return _wrong("profile.schema", path, f"cannot be read as a trace: {e}", HELP)
    except sqlite3.Error as e:
        help = "export the report again: " + EXPORT.format(stem=path.stem, path=path.with_suffix(REPORT).name)
        return _wrong("profile.truncated", path, f"is a damaged sqlite file: {e}", help)


def _read(path: Path, start: bytes, is_step: IsStep, said: Said) -> list[Trace] | Diagnostic:
    if start.startswith(SQLITE):
        return nsight.read(path, is_step, _counter(f"reading {path.name}", said))
    if path.suffix == REPORT:
        return _exported(path, is_step, said)
    if start.startswith(GZIP) or start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        return _json(path, start.startswith(GZIP), is_step, said)
    raise Malformed("it is neither sqlite nor JSON")


def _exported(path: Path, is_step: IsStep, said: Said) -> list[Trace] | Diagnostic:
    """Export a report with `nsys`, if that is installed, and read the export."""
    nsys = shutil.which("nsys")
    if nsys is None:
        help = "where Nsight Systems is installed: " + EXPORT.format(stem=path.stem, path=path)
        return _wrong(
            "profile.no_nsys", path, "is a report that only Nsight Systems reads, and `nsys` is not here", help
        )
    with tempfile.TemporaryDirectory(prefix="moedsl-profile-") as folder:
        out = Path(folder, path.stem + ".sqlite")
        said(f"exporting {path.name} with nsys")
        done = subprocess.run(
            [nsys, "export", "--type", "sqlite", "-o", str(out), str(path)], capture_output=True, text=True, check=False
        )
        if done.returncode or not out.exists():
            text = f"cannot be exported by nsys: {(done.stderr or done.stdout).strip().splitlines()[-1:]}"
            return _wrong(
                "profile.no_nsys", path, text, "run the export by hand: " + EXPORT.format(stem=path.stem, path=path)
            )
        return nsight.read(out, is_step, _counter(f"reading {out.name}", said))


def _json(path: Path, packed: bool, is_step: IsStep, said: Said) -> list[Trace]:
    whole = path.stat().st_size
    with path.open("rb") as raw:
        told = 0

        def progress() -> None:
            nonlocal told
            if raw.tell() - told >= max(whole // LINES, LEAST):
                told = raw.tell()
                said(f"reading {path.name}: {told / whole:.0%} of {size(whole / 1e9)}")

        here = io.BufferedReader(Until(raw))
        unpacked = gzip.GzipFile(fileobj=here) if packed else here
        with io.TextIOWrapper(unpacked, encoding="utf-8-sig", errors="replace") as text:
            try:
                return kineto.read(path.name, text, is_step, progress)
            except (EOFError, zlib.error, gzip.BadGzipFile) as e:
                raise Truncated(f"the compressed data end early ({e})") from None


def _counter(text: str, said: Said) -> Callable[[], object]:
    """Make the report of progress of a reader that does not know how much there is."""
    rows = 0

    def progress() -> None:
        nonlocal rows
        rows += nsight.ROWS
        if rows % (16 * nsight.ROWS) == 0:
            said(f"{text}: {rows / 1e6:.0f} million rows")

    return progress


def _wrong(id: str, path: Path, what: str, help: str) -> Diagnostic:
    return error(id, f"{path} {what}", Label(Span(str(path), 0, 0)), help=help)
