"""Parse Python that somebody else may have written. Its parser cannot be stopped, so the size of a text is bounded."""

from __future__ import annotations

import ast
from pathlib import Path

from moedsl.support.limits import File, TooLarge

MOST = 400_000
"""Characters of a file. Each takes up to 4 µs of a core and 1 kB of memory; Megatron's largest file has 245,000."""


def parse_file(path: Path) -> ast.Module | None:
    """Parse a file; None as in `parse`. Raises TooLarge, and OSError if the file cannot be read."""
    try:
        with path.open(encoding="utf-8") as stream:
            text = stream.read(MOST + 1)
    except UnicodeDecodeError:
        return None
    if len(text) > MOST:
        raise TooLarge(f"has more than {MOST // 1000} kB of Python", File(str(path)))
    return parse(text)


def parse(text: str) -> ast.Module | None:
    """Parse a text; None if it is not Python, or too long or nested too deep to be parsed."""
    try:
        return ast.parse(text) if len(text) <= MOST else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested too deep
        return None
