"""`moedsl gap LOG|ID`: from measured to predicted and published. Exit 1 if an input is wrong or nothing is measured."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from attrs import evolve

from moedsl.cli import console
from moedsl.cli.own_rules import library_of, plans_of
from moedsl.compiler import load_stdlib
from moedsl.diagnose.scan import symptoms
from moedsl.facts.axes import pairs
from moedsl.planner.experiment import settings
from moedsl.planner.plan import Plan
from moedsl.runs.gap import report, text
from moedsl.runs.measured_runs import Measured, priced
from moedsl.runs.published import State
from moedsl.runs.results.gather import DAMAGED, Given, Numbers, Run, disambiguate, gather, numbers
from moedsl.runs.results.log import read_all
from moedsl.runs.results.measure import BATCH, RATE, last_settings, measure, remedy, warning_texts
from moedsl.support.diagnostics import Diagnostic, error


def run(a: Namespace) -> int:
    stated = _stated(a)
    if isinstance(stated, int):
        return stated
    gathered, found = gather([a.target])
    found = [d for d in found if stated is None or d.id != DAMAGED]
    runs = disambiguate(gathered)
    others = [d for r in runs for d in _another(r, stated[0], a.run)] if stated else []
    stated_runs = [(evolve(r, plan=stated[0]) if stated else r, stated[1] if stated else None) for r in runs]
    each = [] if found or others else [_one(r, s, a.warmup) for r, s in stated_runs]
    wrong = [*found, *others, *(d for one in each if isinstance(one, list) for d in one)]
    if wrong:
        return console.refused(a, wrong)
    reports = [one for one in each if isinstance(one, dict)]
    if a.json:
        console.print_json({"version": 1, "runs": reports})
    else:
        console.print_text(lambda: "\n".join([*map(text, reports), _next(a)]))
    return 0


def _next(a: Namespace) -> str:
    """Name the command that goes on from here."""
    command = shlex.join(["moedsl", "next", a.target, *(["--run", a.run] if a.run else [])])
    return f"next: `{command}` proposes one change, and says what it should gain"


def _stated(a: Namespace) -> tuple[Plan, State] | int | None:
    """The plan of `--run`; the exit code if it has none, or several."""
    library, source, found = library_of(a.run)
    result = plans_of(source) if source and not found else None
    if found or (result and result.failed):
        sources = {**library.sources, **({source.name: source} if source else {})}
        return console.refused(a, found or (result.diagnostics if result else ()), sources)
    if a.run and (result is None or len(result.plans) != 1):
        return console.refused(a, [error("gap.runs", run=a.run)])
    if result is None:
        return None
    chosen = result.chosen[0]
    return result.plans[0], State(chosen.cost, chosen.solution.rows[0].codes)


_FOLLOWING = ("dp", "num_microbatches", "pipeline_layout")
"""What mostly follows from what else differs."""


def _another(run: Run, stated: Plan, file: str) -> Iterator[Diagnostic]:
    """Report what the plan in the folder of the log, which ran, decides unlike that of `--run`."""
    if run.plan is None:
        return
    ran, said = _decided(run.plan), _decided(stated)
    different = [n for n in ran if ran[n] != said.get(n)]
    other = [n for n in different if n not in _FOLLOWING] or different
    if other:
        theirs, ours = (pairs({n: v.get(n) for n in other}) for v in (said, ran))
        yield error("gap.other_run", file=file, theirs=theirs, plan_file=run.plan_file, ours=ours)


def _decided(plan: Plan) -> dict[str, Any]:
    """The machines of a plan with its sizes and policies."""
    machines = {"model": plan.model, "hardware": plan.hardware, "gpus": plan.gpus}
    return {**machines, **settings(plan.layout, plan.batch, plan.policy)}


def _one(run: Run, state: State | None, warmup: int | None) -> dict[str, object] | list[Diagnostic]:
    """Report one run, or say why it cannot be."""
    if run.plan is None:
        return [error("gap.no_plan", run=run.name)]
    if state is None:
        made = priced(run.plan)
        if not isinstance(made, Measured):
            return [*made]
        state = State(made.cost, made.row)
    (sizes,) = numbers([run], Given())
    assert isinstance(sizes, Numbers)  # a plan has them
    log = read_all(run.logs, symptoms(load_stdlib()))
    row = measure(run, log, sizes, warmup)
    if not row[RATE] or not row[RATE]["median"]:
        return [error("gap.nothing", run=run.name, status=row["status"], cause=row["cause"], help=remedy(row))]
    if other := warning_texts(row, (BATCH,)):
        return [error("results.batch", run=run.name, other=other[0])]
    return report(row, last_settings(log, sizes.global_batch), run.plan, state)
