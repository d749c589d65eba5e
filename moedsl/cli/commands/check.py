"""`moedsl check`: print only diagnostics. The search runs too, because an infeasible wish is a mistake of the file."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from moedsl.cli import console
from moedsl.compiler import compile_source


def run(a: Namespace) -> int:
    """Check every file, even after errors in others; returns the worst exit code."""
    files: list[str | None] = [*a.files] or [None]
    checked = [_one(Namespace(file=f, expression=a.expression, like=a.like)) for f in files]
    if a.sarif:
        console.print_sarif(d for _, found in checked for d in found["diagnostics"])
    elif a.json:
        several = {"version": 1, "files": [{"file": f, **found} for f, (_, found) in zip(files, checked, strict=True)]}
        console.print_json(checked[0][1] if len(files) == 1 else several)
    return max(code for code, _ in checked)


def _one(a: Namespace) -> tuple[int, dict[str, Any]]:
    """The exit code of one file, and its diagnostics as JSON; text is printed already."""
    source, found = console.source_of(a)
    if source is None:
        console.say(found, {})
        return 1, console.failed_json(found, {})
    result = compile_source(source, "plan", console.Progress(), a.like, asks="diagnostics")
    console.say(result.diagnostics, result.sources)
    return int(result.failed), console.failed_json(result.diagnostics, result.sources)
