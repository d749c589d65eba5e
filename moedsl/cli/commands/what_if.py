"""`moedsl what-if`: print the effect of each change of a run, a line each."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from moedsl.cli import answers, talk
from moedsl.cli.talk import compiled
from moedsl.queries.text import what_if_text
from moedsl.queries.what_if import profiles, what_if
from moedsl.support import limits


def run(a: Namespace) -> int:
    if answers.unpriced(a):
        return 1
    result, code = compiled(a, "solve")
    if result is None or code:
        return code
    progress, budget = talk.Progress(), answers.budget_of(a)
    found: list[dict[str, Any]] = []
    for i, c in enumerate(result.chosen):
        if not profiles(c):
            with limits.of_part(c.problem.program, i, len(result.chosen), "answered"):
                found.append(what_if(c, result.library, budget, progress))
    if a.json:
        talk.print_json({"version": 1, "runs": found})
    else:
        talk.print_text(lambda: "\n".join(map(what_if_text, found)), end="")
    return 0
