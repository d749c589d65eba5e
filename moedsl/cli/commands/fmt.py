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
    codes: list[int] = []
    for file in a.files:
        with limits.of_part(limits.File(file)):
            codes.append(_one(file, a.check))
    return max(codes)


def _one(file: str, check: bool) -> int:
    source, diagnostics = reader.read(file)
    if source is None:
        talk.say(diagnostics, {})
        return 1
    text, diagnostics = format_source(source)
    talk.say(diagnostics, {source.name: source})
    if text is None:
        return 1
    if file == "-" and not check:
        print_file(text)
    elif text != source.text and check:
        print(f"would change {file}", file=sys.stderr)
        return 1
    elif text != source.text:
        diagnostics = write(Path(file), text)
        talk.say(diagnostics, {})
        return int(bool(diagnostics))
    return 0
