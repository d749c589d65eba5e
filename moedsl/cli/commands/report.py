"""`moedsl report`: write the plan as one HTML file."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from moedsl.cli import answers, console
from moedsl.cli.console import compiled
from moedsl.planner import charts
from moedsl.planner.report import SIGN, page
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.files import refusals, stamp


def run(a: Namespace) -> int:
    path = Path(a.output)
    diagnostics = refusals(path, "report", SIGN, a.force)
    if diagnostics:
        return console.refused(a, diagnostics)
    found = charts.read(a.profile, a.memory)
    if isinstance(found, Diagnostic):
        return console.refused(a, [found])
    result, code = compiled(a, "plan")
    if result is None or code:
        return code
    if a.pareto:
        answers.add(result, None, True, None)
    code = console.written(path, stamp(path.name, page(result.plans, found)), "")
    if a.json and not code:
        console.print_json({"version": 1, "file": str(path), "runs": [p.name for p in result.plans]})
    return code
