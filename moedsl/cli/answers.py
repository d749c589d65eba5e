"""Print what `plan` adds to a plan, or prints instead: the best layouts, both fronts, the cost of a token budget."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from attrs import evolve

from moedsl.cli import printing, talk
from moedsl.cli.talk import compiled
from moedsl.compiler import Result
from moedsl.queries.figures import Budget, Figures
from moedsl.queries.text import budget_text
from moedsl.solver.solve import Chosen


def run(a: Namespace) -> int:
    """Print the tables of `plan` with --top, --pareto or --tokens instead of the plans, with a budget below them."""
    if unpriced(a) or _unmixed(a):
        return 1
    result, code = compiled(a, "plan")
    if result is None or code:
        return code
    if a.ladder:
        printing.with_ladders(result)
    add(a, result)
    if a.json or not (a.top or a.pareto):
        printing.show(a, result)
    else:
        print("\n".join(tables(a, result)), end="")
    if a.tokens and not a.json:
        print(*(f"\n{budget_text(p)}" for p in result.plans), sep="", end="")
    return 0


def unpriced(a: Namespace) -> bool:
    """Whether there is a price without tokens; reports this on stderr."""
    if a.price is None or a.tokens is not None:
        return False
    print("--price needs a number of tokens: write --tokens 10T --price 2.5", file=sys.stderr)
    return True


def _unmixed(a: Namespace) -> bool:
    """Whether --json needs a plan that the other options do not make; reports this on stderr."""
    other = "--lengths" if a.lengths else "--stop-after" if a.stop_after not in (None, "plan") else None
    if other is not None:
        print(f"{other} does not print a plan: leave out --top, --pareto, --tokens", file=sys.stderr)
    return other is not None


def budget_of(a: Namespace) -> Budget | None:
    """Read the budget from the arguments."""
    return None if a.tokens is None else Budget(a.tokens, a.price)


def add(a: Namespace, result: Result) -> None:
    """Add `top`, `pareto` and `budget` to every plan, if requested."""
    progress, budget = talk.Progress(), budget_of(a)
    pairs = zip(result.chosen, result.plans, strict=True)
    result.plans = tuple(evolve(p, **_answers(a, c, budget, progress)) for c, p in pairs)


def with_fronts(result: Result) -> None:
    """Add `pareto` to every plan."""
    from moedsl.queries.pareto import pareto

    pairs, progress = zip(result.chosen, result.plans, strict=True), talk.Progress()
    result.plans = tuple(evolve(p, pareto=pareto(c, None, progress)) for c, p in pairs)


def _answers(a: Namespace, c: Chosen, budget: Budget | None, progress: talk.Progress) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if a.top:
        from moedsl.queries.top import top

        out["top"] = top(c, a.top, budget)
    if a.pareto:
        from moedsl.queries.pareto import pareto

        out["pareto"] = pareto(c, budget, progress)
    if budget is not None:
        out["budget"] = Figures(c, budget).of(c.solution.rows[0])["budget"]
    return out


def tables(a: Namespace, result: Result) -> Iterator[str]:
    """Print the tables that replace the plans."""
    for c, p in zip(result.chosen, result.plans, strict=True):
        if a.top:
            from moedsl.queries.text import top_text
            from moedsl.queries.top import because

            yield top_text(p, p.top or (), because(c))
        if a.pareto:
            from moedsl.queries.text import pareto_text

            yield pareto_text(p, p.pareto or {})
