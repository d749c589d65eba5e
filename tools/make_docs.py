"""Regenerate what the documents take from the program: the tables of docs/ and the output under each `$ moedsl` line.

usage: .venv/bin/python tools/make_docs.py [--check]     --check writes nothing and exits 1 if a file would change

A ```text block whose first line is `$ moedsl ...` holds what that command prints, stderr before stdout; `| head -N`
keeps the first N lines of stdout. tests/docs/test_docs.py checks the documents against this.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import doc_tables

from moedsl.cli import console, terminal
from moedsl.cli.main import main as moedsl

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```text\n\$ moedsl (?P<command>.*)\n(?P<output>(?:.*\n)*?)```$", re.MULTILINE)
_HEAD = re.compile(r" \| head -(\d+)$")
HARMLESS = ("plan", "what-if", "check", "explain", "models", "hardware")
"""Commands that a document may run, as it may run dry runs: none writes a file. The output of others goes into a
```console block."""


def documents() -> list[Path]:
    """List README.md, CONTRIBUTING.md, SECURITY.md and docs/."""
    roots = (ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY"))
    return [*roots, *sorted((ROOT / "docs").glob("*.md"))]


def regenerated() -> Iterator[tuple[Path, str]]:
    """Yield every document with its current text."""
    tables = {ROOT / "docs" / name: text for name, text in doc_tables.tables().items()}
    yield from tables.items()
    for path in documents():
        if path not in tables:
            yield path, BLOCK.sub(_refresh, path.read_text(encoding="utf-8"))


def _refresh(block: re.Match[str]) -> str:
    return f"```text\n$ moedsl {block['command']}\n{output_of(block['command'])}```"


def output_of(command: str) -> str:
    """Return the output of a command that runs at the root of the repository."""
    head = _HEAD.search(command)
    words = shlex.split(_HEAD.sub("", command))
    if words[0] not in HARMLESS and "--dryrun" not in words:
        raise ValueError(f"a document runs {', '.join(HARMLESS)}, not {words[0]}: write ```console")
    err, out = io.StringIO(), io.StringIO()
    console.QUIET_FOR = float("inf")
    wide = mock.patch.dict(os.environ, COLUMNS=str(terminal.WIDTH))  # the same in every terminal
    with wide, redirect_stderr(err), redirect_stdout(out):
        moedsl(words)
    lines = out.getvalue().splitlines()[: int(head[1]) if head else None]
    return "".join(f"{line}\n" for line in (err.getvalue() + "\n".join(lines)).rstrip("\n").split("\n"))


def _now(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def main(check: bool) -> int:
    os.chdir(ROOT)
    stale = [(path, text) for path, text in regenerated() if _now(path) != text]
    for path, text in stale:
        if not check:
            path.write_text(text, encoding="utf-8")
        print(f"{'would change' if check else 'wrote'} {path.relative_to(ROOT)}", file=sys.stderr)
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
