"""Read a path, `-` or a text to a `Source`; return an error early for anything that cannot be a .moe file."""

from __future__ import annotations

import codecs
import os
import re
import stat
import sys
from pathlib import Path

from moedsl.lang.tokens import brackets, too_deep
from moedsl.support.diagnostics import Diagnostic, Label, error
from moedsl.support.source import Source, Span

LIMIT = 1 << 18
"""The most bytes in a run file."""
_NOTHING = re.compile(r"(?:\s|#[^\n]*)*")
_HALF = re.compile("[\ud800-\udfff]")
_BOMS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)

Read = tuple[Source | None, tuple[Diagnostic, ...]]


def read(path: str | os.PathLike[str]) -> Read:
    """Read a file, or standard input for ``-``; None with an error if that fails.

    Ids: read.missing, read.directory, read.special, read.denied, and the ids of `from_bytes`. Reads at most `LIMIT` + 1
    bytes.
    """
    if str(path) == "-":
        return from_bytes(sys.stdin.buffer.read(LIMIT + 1), "<stdin>")
    name = os.fspath(path)
    at, shown = _place(name)
    try:
        # Open without waiting: a FIFO without a writer must not block
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
        if os.path.isdir(name):
            return None, (error("read.directory:directory", at, path=shown),)
        with os.fdopen(os.open(name, flags), "rb") as f:
            if not stat.S_ISREG(os.fstat(f.fileno()).st_mode):
                help = "give a file, or - to read standard input"
                return None, (error("read.special", at, path=shown, help=help),)
            return from_bytes(f.read(LIMIT + 1), name)
    except FileNotFoundError:
        parent = Path(name).parent
        near = sorted(p.name for p in parent.glob("*.moe"))[:5] if parent.is_dir() else []
        help = f"{parent} holds {', '.join(near)}" if near else "check the path, or pass the text with -e"
        return None, (error("read.missing:absent", at, path=shown, help=help),)
    except PermissionError:
        return None, (error("read.denied:permission", at, path=shown),)
    except (OSError, ValueError) as e:
        return None, (error("read.missing:closed", at, path=shown, reason=getattr(e, "strerror", None) or e),)


def _place(name: str) -> tuple[Label, str]:
    """Return the start of a file as an error's label, and the file's name for messages."""
    shown = "standard input" if name == "<stdin>" else "".join(c if c.isprintable() else "?" for c in name)
    return Label(Span(name, 0, 0)), shown


def from_bytes(data: bytes, name: str) -> Read:
    """Decode UTF-8, with or without byte-order mark. Ids: parse.too_large, parse.encoding, read.other_kind, and
    the ids of `from_text`."""
    at, path = _place(name)
    if name.endswith(".py"):
        return None, (error("read.other_kind:python", at, path=path),)
    if name.endswith(".json") and data.lstrip().startswith((b"{", b"[")):
        if b'"model_type"' in data:
            return None, (error("read.other_kind:config", at, path=path),)
        if name.endswith("plan.json"):
            return None, (error("read.other_kind:plan", at, path=path),)
        return None, (error("read.other_kind:json", at, path=path),)
    if len(data) > LIMIT:
        return None, (error("parse.too_large:bytes", at, path=path, most=LIMIT // 1024),)
    encoding = next((encoding for bom, encoding in _BOMS if data.startswith(bom)), None)
    if encoding is not None:
        return None, (error("parse.encoding:encoding", at, path=path, encoding=encoding),)
    if b"\0" in data:
        return None, (error("parse.encoding:binary", at, path=path, offset=data.index(0)),)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        return None, (error("parse.encoding:byte", at, path=path, byte=data[e.start], line=line),)
    return from_text(text, name)


def from_text(text: str, name: str = "<text>") -> Read:
    """Make a source with all line ends as newlines. Ids: parse.empty, parse.encoding, parse.too_large, parse.nested."""
    source = Source(name, text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n"))
    at, path = _place(name)
    if len(text) > LIMIT:
        help = "a run file is a few lines"
        return None, (error("parse.too_large:bytes", at, path=path, most=LIMIT // 1024, help=help),)
    if not source.text.strip():
        return None, (error("parse.empty:empty", at, path=path),)
    if _NOTHING.fullmatch(source.text):
        return None, (error("parse.empty:blank", at, path=path),)
    if "\0" in text:
        return None, (error("parse.encoding:binary", at, path=path, offset=text.index("\0")),)
    if half := _HALF.search(text):
        return None, (error("parse.encoding:half", at, path=path, offset=half.start()),)
    deep = too_deep(source, brackets(source.text))
    return (None, (deep,)) if deep else (source, ())
