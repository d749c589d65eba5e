"""`moedsl what-if`: print the effect of each change of a run, a line each."""

from __future__ import annotations

from argparse import Namespace

from moedsl.cli import answers, console
from moedsl.cli.console import compiled
from moedsl.queries.what_if import profiles, what_if, what_if_text


def run(a: Namespace) -> int:
    if answers.unpriced(a):
        return 1
    result, code = compiled(a, "solve")
    if result is None or code:
        return code
    progress, budget = console.Progress(), answers.budget_of(a)
    found = [what_if(c, result.library, budget, progress) for c in result.chosen if not profiles(c)]
    if a.json:
        console.print_json({"version": 1, "runs": [f.to_json() for f in found]})
    else:
        console.print_text(lambda: "\n".join(map(what_if_text, found)), end="")
    return 0
