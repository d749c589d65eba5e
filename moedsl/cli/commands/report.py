"""`moedsl report`: write the plan as one HTML file instead of reading."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from moedsl.cli import answers, talk
from moedsl.cli.talk import compiled
from moedsl.report.page import SIGN, page
from moedsl.support.atomic_file import refusals, write


def run(a: Namespace) -> int:
    a.json = False
    path = Path(a.output)
    diagnostics = refusals(path, "report", lambda text: SIGN in text[:400], a.force)
    if diagnostics:
        talk.say(diagnostics, {})
        return 1
    result, code = compiled(a, "plan")
    if result is None or code:
        return code
    if a.pareto:
        answers.with_fronts(result)
    diagnostics = write(path, page(result.plans))
    talk.say(diagnostics, {})
    if diagnostics:
        return 1
    print(f"wrote {path}", file=sys.stderr)
    return 0
