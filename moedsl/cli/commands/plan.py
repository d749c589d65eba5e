"""`moedsl plan`: print the plan of each run, as text or as JSON."""

from __future__ import annotations

import sys
from argparse import Namespace

from attrs import evolve

from moedsl.cli import console
from moedsl.cli.console import compiled
from moedsl.cli.printing import after_plan, only, prints_notes, show, typed, with_ladders


def plan(a: Namespace) -> int:
    tables = a.top or a.pareto or a.tokens
    stops = a.stop_after not in (None, "plan")
    options = {"--stop-after": stops, "--lengths": a.lengths, "--ladder": a.ladder, "--top, --pareto, --tokens": tables}
    given = [name for name, value in options.items() if value]
    if len(given) > 1 and given[0] != "--ladder":
        print(f"{given[0]} does not print a plan: leave out {given[1]}", file=sys.stderr)
        return 1
    if tables or a.price is not None:
        from moedsl.cli.commands import answers

        return answers.tables(a)
    if a.lengths:  # the file is only checked, because its own GPUs may be too few for a plan
        from moedsl.queries import pareto
        from moedsl.solver.problem import lower

        programs = compiled(a, "check", run=a.run).programs
        asked = [(p, lower(p, p.gpus or p.hardware.gpus_per_node).values["seq"]) for p in programs]
        found = [(p.name, pareto.lengths(p, p.gpus, seq, console.Progress())) for p, seq in asked]
        data = {"version": 1, "lengths": {name: n.to_json() for name, n in found}}
        console.print_answer(a, data, lambda: "\n".join(n.text(name) for name, n in found))
        return 0
    asks = "plans" if prints_notes(a) or a.section else "page"
    result = compiled(a, a.stop_after or "plan", prints_notes(a), a.run, asks)
    only(result, a.run)
    if a.ladder:
        with_ladders(result)
    if a.within is not None:
        from moedsl.planner.simpler import simpler

        of = {c.problem.program.name: c for c in result.chosen}
        found = {name: simpler(c, c.solution.rows[0], a.within) for name, c in of.items()}
        for name in (name for name, s in found.items() if s is None):
            print(f"{name}: --within is for runs that rank layouts by time: write `throughput first`", file=sys.stderr)
        result.plans = tuple(evolve(p, simpler=found[p.name]) for p in result.plans)
    show(a, result, after_plan(typed(a), result.plans))
    return 0
