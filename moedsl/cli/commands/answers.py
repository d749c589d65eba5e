"""`moedsl plan` with --top, --pareto or --tokens, `moedsl what-if` and `moedsl report`: print more than the plan."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from attrs import evolve

from moedsl.cli import console, printing
from moedsl.cli.console import compiled
from moedsl.compiler import Result
from moedsl.planner.plan import Plan
from moedsl.planner.report import SIGN, page, read_measured
from moedsl.queries import what_if as what_ifs
from moedsl.queries.layouts import Budget, because, budget_text, step_tokens, top, top_text
from moedsl.queries.pareto import pareto, pareto_text
from moedsl.rules.check.run_draft import hardware_like
from moedsl.solver.solve import Chosen
from moedsl.support.diagnostics import error
from moedsl.support.files import refusals, stamp


def tables(a: Namespace) -> int:
    """Print the tables of `plan` with --top, --pareto or --tokens instead of the plans, with a budget below them."""
    if unpriced(a):
        return 1
    result = compiled(a, "plan", printing.prints_notes(a), a.run)
    printing.only(result, a.run)
    if a.ladder:
        printing.with_ladders(result)
    add(result, a.top, a.pareto, budget_of(a))
    if a.json or not (a.top or a.pareto):
        printing.show(a, result, printing.after_plan(printing.typed(a), result.plans))
    else:
        console.print_text(lambda: "\n".join(tables_of(result)), end="")
    if a.tokens and not a.json:
        console.print_text(lambda: "".join(f"\n{budget_text(p, p.budget)}" for p in result.plans if p.budget), end="")
    return 0


def unpriced(a: Namespace) -> bool:
    """Whether there is a price without tokens; if so, also report it on stderr."""
    if a.price is None or a.tokens is not None:
        return False
    print("--price needs a number of tokens: write --tokens 10T --price 2.5", file=sys.stderr)
    return True


def budget_of(a: Namespace) -> Budget | None:
    """Read the budget from the arguments."""
    return None if a.tokens is None else Budget(a.tokens, a.price)


def add(result: Result, layouts: int | None, fronts: bool, budget: Budget | None) -> None:
    """Add `top`, `pareto` and `budget` to every plan, if requested."""
    progress = console.Progress()

    def answered(c: Chosen, p: Plan) -> Plan:
        best = top(c, layouts, budget) if layouts else None
        trades = pareto(c, budget, progress) if fronts else None
        cost = budget and budget.of(c.solution.rows[0].step_time, step_tokens(c), c.problem.gpus)
        return evolve(p, top=best, pareto=trades, budget=cost)

    result.plans = tuple(map(answered, result.chosen, result.plans))


def tables_of(result: Result) -> Iterator[str]:
    """Yield the tables that replace the plans."""
    for c, p in zip(result.chosen, result.plans, strict=True):
        if p.top:
            yield top_text(p, p.top, because(c))
        if p.pareto:
            yield pareto_text(p, p.pareto)


def what_if(a: Namespace) -> int:
    """Print a line for each possible change of a run, with its effect."""
    if unpriced(a):
        return 1
    result = compiled(a, "solve")
    progress, budget = console.Progress(), budget_of(a)
    gpus = [name.strip() for name in (a.gpus or "").split(",") if name.strip()]
    unknown = [name for name in gpus if name not in result.library.hardware]
    known = result.library
    console.stop_on(error("check.unknown_name:hardware", name=n, help=hardware_like(n, known)) for n in unknown)
    found = [
        what_ifs.what_if(c, known, budget, progress, gpus) for c in result.chosen if not what_ifs.profiles(c)
    ]  # fmt: skip
    data = {"version": 1, "runs": [f.to_json() for f in found]}
    console.print_answer(a, data, lambda: "\n".join(map(what_ifs.what_if_text, found)), end="")
    return 0


def report(a: Namespace) -> int:
    """Write the plan as one HTML file."""
    path = Path(a.output)
    console.stop_on(refusals(path, "report", SIGN, a.force))
    found = console.accepted(read_measured(a.profile, a.memory))
    result = compiled(a, "plan")
    if a.pareto:
        add(result, None, True, None)
    code = console.written(path, stamp(path.name, page(result.plans, found)), "")
    if a.json and not code:
        console.print_json({"version": 1, "file": str(path), "runs": [p.name for p in result.plans]})
    return code
