"""`moedsl report`: the plan as one HTML file, to look at instead of reading."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from moedsl.commands import answers
from moedsl.commands.fmt import replace
from moedsl.commands.programs import compiled
from moedsl.report.page import SIGN, page


def run(a: Namespace) -> int:
    a.json = False
    result, code = compiled(a, "plan")
    if result is None or code:
        return code
    if a.pareto:
        answers.with_fronts(result)
    path = Path(a.output)
    if path.exists() and not a.force and SIGN not in path.read_text(encoding="utf-8", errors="replace")[:400]:
        print(f"{path} was not written by `moedsl report`; --force overwrites it", file=sys.stderr)
        return 1
    replace(path, page(result.plans))
    print(f"wrote {path}", file=sys.stderr)
    return 0
