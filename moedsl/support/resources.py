"""Find the grammar, the stdlib and the examples: in a wheel in ``moedsl/_data``, in a checkout next to the package."""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
DOCUMENTS = "documents"


def data_dir(name: str) -> Path:
    """The directory of `name` (``grammar``, ``stdlib`` or ``examples``)."""
    installed = PACKAGE / "_data" / name
    return installed if installed.is_dir() else PACKAGE.parent / name


def grammar_file() -> Path:
    """The one grammar of .moe files."""
    return data_dir("grammar") / "moe.lark"


def tables_file() -> Path:
    """The tables that `tools/make_grammar.py` makes of the grammar."""
    return data_dir("grammar") / "tables.json"


def stdlib_dir() -> Path:
    """The root of the stdlib; its files are named relative to the parent of this in diagnostics."""
    return data_dir("stdlib")


def stdlib_files() -> list[Path]:
    """Every .moe file of the stdlib that a plan needs, sorted by path."""
    return [Path(path) for path in stdlib_paths()]


def stdlib_paths() -> list[str]:
    """`stdlib_files` as texts: each compile lists them, and to make the others takes longer than to list."""
    root = str(stdlib_dir())
    folders = [f.name for f in os.scandir(root) if f.is_dir() and f.name != DOCUMENTS]
    found = ((d, name) for d in folders for name in os.listdir(f"{root}/{d}") if name.endswith(".moe"))
    return [f"{root}/{folder}/{name}" for folder, name in sorted(found)]


def document_files() -> list[Path]:
    """The .moe files of the documents' claims, sorted by path."""
    return sorted((stdlib_dir() / DOCUMENTS).glob("*.moe"))


def example_files() -> list[Path]:
    """The .moe files of the examples, sorted by path."""
    return sorted(data_dir("examples").rglob("*.moe"))


def code(*packages: str) -> bytes:
    """Join the texts of all modules of some packages, as a key for what they make."""
    folders = [str(PACKAGE / name) for name in packages]
    files = (f"{folder}/{f}" for folder in folders for f in sorted(os.listdir(folder)) if f.endswith(".py"))
    return b"".join(map(_read, files))


def _read(file: str) -> bytes:
    with open(file, "rb", buffering=0) as f:
        return f.read()
