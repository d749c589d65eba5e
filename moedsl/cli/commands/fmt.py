"""`moedsl fmt`: format files. A file that does not parse stays unchanged."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from moedsl.cli import talk
from moedsl.cli.terminal import print_file
from moedsl.support import limits
from moedsl.support.atomic_file import write
from moedsl.syntax import reader
from moedsl.syntax.formatter import format_source


def run(a: Namespace) -> int:
    if a.json and "-" in a.files:
        print("--json lists files, and standard output has the text of `-`", file=sys.stderr)
        return 1
    done: list[tuple[str, str]] = []
    for file in a.files:
        with limits.of_part(limits.File(file)):
            done.append((file, _one(file, a.check)))
    if a.json:
        talk.print_json({"version": 1, "files": [{"file": f, "status": status} for f, status in done]})
    return int(any(status in ("refused", "would change") for _, status in done))


def _one(file: str, check: bool) -> str:
    """Format one file, and say what became of it: formatted, unchanged, would change or refused."""
    source, diagnostics = reader.read(file)
    if source is None:
        talk.say(diagnostics, {})
        return "refused"
    text, diagnostics = format_source(source)
    talk.say(diagnostics, {source.name: source})
    if text is None:
        return "refused"
    if file == "-" and not check:
        print_file(text)
    elif text != source.text and check:
        print(f"would change {file}", file=sys.stderr)
        return "would change"
    elif text != source.text:
        diagnostics = write(Path(file), text)
        talk.say(diagnostics, {})
        return "refused" if diagnostics else "formatted"
    return "unchanged"
