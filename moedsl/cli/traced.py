"""Load what a trace is judged by: the classes of the stdlib and of `--run`, and the plans of `--run`."""

from __future__ import annotations

from argparse import Namespace

from moedsl.cli import talk
from moedsl.cli.own_rules import library_of, plans_of
from moedsl.compiler import Result
from moedsl.runs.profile import kinds


def judged_by(a: Namespace) -> tuple[kinds.Classes, Result | None] | int:
    """Return the classes and the plans, None without `--run` or if it has only rules; the exit code if one is wrong."""
    library, source, found = library_of(a.run)
    classes, wrong = kinds.read(library)
    if found or wrong:
        return talk.refused(a, [*found, *wrong], library.sources)
    planned = plans_of(source) if source else None
    if planned and planned.failed:
        return talk.refused(a, planned.diagnostics, planned.sources)
    return classes, planned
