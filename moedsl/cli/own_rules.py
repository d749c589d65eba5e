"""Load the stdlib with the rules that a run file declares, and plan its runs: what `--run` adds to a command."""

from __future__ import annotations

from argparse import Namespace

from moedsl.cli import console
from moedsl.compiler import ABSENT, Result, compile_source, load_stdlib
from moedsl.lang import reader
from moedsl.lang.parser import parse
from moedsl.rules import collect
from moedsl.rules.library import Library, use
from moedsl.runs.profile import steps
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.source import Source


def library_of(path: str | None) -> tuple[Library, Source | None, list[Diagnostic]]:
    """Load the stdlib with the rules that a run file declares, and that file; its errors if it has any."""
    library = load_stdlib()
    if path is None:
        return library, None, []
    source, found = reader.read(path)
    if source is None:
        return library, None, list(found)
    module, found = parse(source)
    if module is None or found:
        return library, None, list(found)
    use(library, source, module, parse)
    *_, wrong = collect.of_library(library)
    return library, source, [d for d in (*library.diagnostics, *wrong) if d.is_error]


def plans_of(source: Source) -> Result | None:
    """Plan the runs of a file; None if it has only rules."""
    result = compile_source(source, "plan", console.Progress())
    only_rules = result.failed and all(d.id in ABSENT for d in result.diagnostics if d.is_error)
    return None if only_rules else result


def judged_by(a: Namespace) -> tuple[steps.Classes, Result | None] | int:
    """Return the classes and the plans, None without `--run` or if it has only rules; the exit code if one is wrong."""
    library, source, found = library_of(a.run)
    classes, wrong = steps.read(library)
    if found or wrong:
        return console.refused(a, [*found, *wrong], library.sources)
    planned = plans_of(source) if source else None
    if planned and planned.failed:
        return console.refused(a, planned.diagnostics, planned.sources)
    return classes, planned
