"""Read a path, `-` or a text to a `Source`; anything that cannot be a .moe file is an error value, quickly."""

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
"""The most bytes of a run file."""
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

    Ids: read.missing, read.directory, read.special, read.denied, and those of `from_bytes`. Reads at most `LIMIT` + 1
    bytes.
    """
    if str(path) == "-":
        return from_bytes(sys.stdin.buffer.read(LIMIT + 1), "<stdin>")
    name = os.fspath(path)
    try:
        # Open without waiting: a FIFO without a writer must not block
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
        if os.path.isdir(name):
            raise IsADirectoryError(name)
        with os.fdopen(os.open(name, flags), "rb") as f:
            mode = os.fstat(f.fileno()).st_mode
            if not stat.S_ISREG(mode):
                return _failed(
                    name, "read.special", "is not a regular file", "give a file, or - to read standard input"
                )
            return from_bytes(f.read(LIMIT + 1), name)
    except FileNotFoundError:
        return _failed(name, "read.missing", "does not exist", _similar(name))
    except (IsADirectoryError, PermissionError, OSError, ValueError) as e:
        if isinstance(e, IsADirectoryError):
            return _failed(name, "read.directory", "is a directory", "name one .moe file in it")
        if isinstance(e, PermissionError):
            return _failed(name, "read.denied", "is not readable", "check its permissions")
        return _failed(name, "read.missing", f"cannot be opened: {getattr(e, 'strerror', None) or e}", "check the path")


def _similar(name: str) -> str:
    """The .moe files in the folder of a missing one."""
    parent = Path(name).parent
    found = sorted(p.name for p in parent.glob("*.moe"))[:5] if parent.is_dir() else []
    return f"{parent} holds {', '.join(found)}" if found else "check the path, or pass the text with -e"


def _failed(name: str, id: str, what: str, help: str) -> Read:
    return None, (error(id, f"{_shown(name)} {what}", Label(Span(name, 0, 0)), help=help),)


def _shown(name: str) -> str:
    return "standard input" if name == "<stdin>" else "".join(c if c.isprintable() else "?" for c in name)


def from_bytes(data: bytes, name: str) -> Read:
    """Decode UTF-8, with or without byte-order mark. Ids: parse.too_large, parse.encoding, read.other_kind, and
    those of `from_text`."""
    if other := _other_kind(data, name):
        return _failed(name, "read.other_kind", *other)
    if len(data) > LIMIT:
        return _failed(
            name,
            "parse.too_large",
            f"is larger than {LIMIT // 1024} KiB",
            "a run file is a few lines; is this the right file?",
        )
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return _failed(name, "parse.encoding", f"is {encoding}", "save it as UTF-8")
    if b"\0" in data:
        return _failed(
            name, "parse.encoding", f"is binary (a zero byte at {data.index(0)})", "a .moe file is UTF-8 text"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        what = f"is not UTF-8: byte 0x{data[e.start]:02x} on line {line}"
        return _failed(name, "parse.encoding", what, "save it as UTF-8 (it may be Latin-1 or Windows-1252)")
    return from_text(text, name)


def _other_kind(data: bytes, name: str) -> tuple[str, str] | None:
    """What a file of Python or JSON is, and which command reads it; None for any other file."""
    if name.endswith(".py"):
        file = _shown(name)
        help = f"`moedsl lint {file}` judges a recipe, and `moedsl import {file}` writes its layout as a run file"
        return "is Python, not a run file", help
    if not name.endswith(".json") or not data.lstrip().startswith((b"{", b"[")):
        return None
    if b'"model_type"' in data:
        return (
            "is the configuration of a model, not a run file",
            f"`moedsl models add {_shown(name)}` declares the model",
        )
    if name.endswith("plan.json"):
        return "is a plan, which moedsl writes", "name the .moe file that it was made from"
    return "is JSON, not a run file", "name a .moe file; `moedsl models add` reads the config.json of Hugging Face"


def from_text(text: str, name: str = "<text>") -> Read:
    """Make a source whose line ends are newlines. Ids: parse.empty, parse.encoding, parse.too_large, parse.nested."""
    source = Source(name, text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n"))
    if len(text) > LIMIT:
        return _failed(name, "parse.too_large", f"is larger than {LIMIT // 1024} KiB", "a run file is a few lines")
    if _NOTHING.fullmatch(source.text):
        what = "has no statements" if source.text.strip() else "is empty"
        return _failed(
            name, "parse.empty", what, "name a model and a machine: `qwen3_30b_a3b; h100 x 16; seq 4k; fit first`"
        )
    if "\0" in text:
        return _failed(
            name, "parse.encoding", f"is binary (a zero byte at {text.index(chr(0))})", "a .moe file is UTF-8 text"
        )
    if half := _HALF.search(text):
        return _failed(name, "parse.encoding", f"holds half a character at {half.start()}", "save it as UTF-8")
    deep = too_deep(source, brackets(source.text))
    return (None, (deep,)) if deep else (source, ())
