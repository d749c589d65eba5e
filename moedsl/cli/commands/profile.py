"""`moedsl profile TRACE...`: what a training step was spent on. Exit 1 if a trace cannot be read or has no steps."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from moedsl.cli import console
from moedsl.cli.own_rules import judged_by
from moedsl.runs.profile import report
from moedsl.runs.profile.predicted import compare
from moedsl.runs.profile.report import text
from moedsl.support.diagnostics import Diagnostic


def run(a: Namespace) -> int:
    judged = judged_by(a)
    if isinstance(judged, int):
        return judged
    classes, planned = judged
    each, progress = list[report.Json](), console.Progress()
    problems = list[Diagnostic]()
    for path in a.traces:
        more, wrong = report.reports(Path(path), classes, progress)
        each += more
        problems += wrong
    if any(d.is_error for d in problems):
        return console.refused(a, problems)
    data, remarks = report.whole(each)
    console.say([*problems, *remarks], {})
    if planned:
        data["plans"] = [compare(data, c, p) for c, p in zip(planned.chosen, planned.plans, strict=True)]
    if a.json:
        console.print_json(data)
    else:
        console.print_text(lambda: text(data), end="")
    return 0
