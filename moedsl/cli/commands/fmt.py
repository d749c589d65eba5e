"""`moedsl fmt`: format files. A file that does not parse stays unchanged."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from moedsl.cli import console
from moedsl.cli.terminal import print_file
from moedsl.lang import reader
from moedsl.lang.formatter import format_source
from moedsl.support.diagnostics import Diagnostic, to_json
from moedsl.support.files import write_file as write
from moedsl.support.source import Source


def run(a: Namespace) -> int:
    if a.json and "-" in a.files:
        print("--json lists files, and standard output has the text of `-`", file=sys.stderr)
        return 1
    done = [(file, *_one(file, a.check)) for file in a.files]
    if a.json:
        files = [{"file": file, "status": status, "diagnostics": found} for file, status, found in done]
        console.print_json({"version": 1, "files": files})
    return int(any(status in ("refused", "would change") for _, status, _ in done))


def _one(file: str, check: bool) -> tuple[str, list[dict[str, Any]]]:
    """Format one file, and say what became of it: formatted, unchanged, would change or refused, and why."""
    source, diagnostics = reader.read(file)
    text = None
    if source is not None:
        text, diagnostics = format_source(source)
    status = "refused"
    if source is not None and text is not None:
        status, more = _kept(file, source, text, check)
        diagnostics = (*diagnostics, *more)
    sources = {source.name: source} if source else {}
    console.say(diagnostics, sources)
    return status, [to_json(d, sources) for d in diagnostics]


def _kept(file: str, source: Source, text: str, check: bool) -> tuple[str, Sequence[Diagnostic]]:
    """Write the formatted text where it belongs, unless it is only checked."""
    if file == "-" and not check:
        print_file(text)
    elif text != source.text and check:
        print(f"would change {file}", file=sys.stderr)
        return "would change", ()
    elif text != source.text:
        diagnostics = write(Path(file), text)
        return "refused" if diagnostics else "formatted", diagnostics
    return "unchanged", ()
