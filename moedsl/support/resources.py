"""Find the grammar, the stdlib and the examples: in a wheel in ``moedsl/_data``, in a checkout next to the package."""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
DOCUMENTS = "documents"


def installed() -> bool:
    """Whether this is an installed wheel, no checkout."""
    return (PACKAGE / "_data" / "grammar").is_dir()


def data_dir(name: str) -> Path:
    """The directory of `name` (``grammar``, ``stdlib`` or ``examples``)."""
    return PACKAGE / "_data" / name if installed() else PACKAGE.parent / name


def grammar_file() -> Path:
    """The one grammar of .moe files."""
    return data_dir("grammar") / "moe.lark"


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
