"""`moedsl check`: diagnostics alone. The search runs too, since an infeasible wish is a mistake of the file."""

from __future__ import annotations

from argparse import Namespace

from moedsl.commands import talk
from moedsl.commands.programs import compiled


def run(a: Namespace) -> int:
    result, code = compiled(a, "plan")
    if result is not None and not code and a.json:
        talk.print_json(talk.failed_json(result.diagnostics, result.library.sources))
    return code
