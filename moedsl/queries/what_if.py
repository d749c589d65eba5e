"""Answer what other GPUs, lengths, number formats, freezing and sharding would gain: each change is compiled alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moedsl.lang.printer import print_expr
from moedsl.planner.model.answers import Priced
from moedsl.queries.changes import Change, changes
from moedsl.queries.experiments import another
from moedsl.queries.figures import Budget, priced, step_tokens
from moedsl.queries.gpus import held
from moedsl.queries.top import shared
from moedsl.rules.library import Library
from moedsl.solver.saving import saving
from moedsl.solver.solve import Chosen, plan_for

BY_SPEED = ("score", "step_time")
"""First keys of a ranking that mean speed: the step time, with or without the factor of advice."""
Json = dict[str, Any]
Progress = Callable[[str], None]


def profiles(c: Chosen) -> bool:
    """Whether a run is profiling in a workflow, which has the layout of the phase before it."""
    p = c.problem.program
    return p.workflow is not None and p.phase == "profile"


def what_if(
    chosen: Chosen, library: Library, budget: Budget | None = None, progress: Progress = lambda _: None
) -> Json:
    """`name`, `phase`, `ranks_by`, `by_speed` (whether it ranks by step time first), `step`, `base`, `lines`.

    `step` has the tokens that every line keeps, and now `global_batch` x `seq`. A line has `kind`, `change`,
    `hardware`, `seq` and `global_batch`; then the keys of `Priced`, `goodput`, `speedup`, `layout`, `changes` (from
    the base) and `another_experiment` (names that make it one), or `why` it has no layout.
    """
    base = _alone(chosen)
    step = {"tokens": step_tokens(base), "global_batch": base.problem.global_batch, "seq": base.problem.values["seq"]}
    row = base.solution.rows[0]
    figures = priced(Priced, base, row, budget).to_json()
    first = {**_sizes(base), **figures, "goodput": _goodput(base), "layout": row.layout}
    lines = [_line(base, c, budget, progress) for c in changes(base, library)]
    p, first_key = chosen.problem.program, chosen.compiled.ranks[0]
    ranked = {"ranks_by": first_key.rule.name, "by_speed": print_expr(first_key.expr) in BY_SPEED}
    return {"name": p.name, "phase": p.phase, **ranked, "step": step, "base": first, "lines": lines}


def _alone(chosen: Chosen) -> Chosen:
    """Solve the run alone if it shares its layout with others."""
    if not shared(chosen):
        return chosen
    alone = plan_for(held(chosen), chosen.problem.gpus, keep=1)
    return alone if alone.solution.rows else chosen


def _line(base: Chosen, c: Change, budget: Budget | None, progress: Progress) -> Json:
    """Solve one change."""
    head = {"kind": c.kind, "change": c.label}
    if c.program is None or c.program.gpus is None:
        return {**head, "why": c.why}
    progress(f"what if {c.label}")
    changed = plan_for(c.program, c.program.gpus, keep=1)
    head |= _sizes(changed)
    if not changed.solution.rows:
        # Explain why a change has no layout, in one line
        from moedsl.solver.infeasible.analyse import briefly
        from moedsl.solver.infeasible.report import message

        return {**head, "gpus": changed.problem.gpus, "why": message(briefly(changed))}
    row, now = changed.solution.rows[0], base.solution.rows[0]
    return {
        **head,
        **priced(Priced, changed, row, budget).to_json(),
        "goodput": _goodput(changed),
        "speedup": now.step_time / row.step_time,
        "layout": row.layout,
        "changes": row.changes(now.codes),
        "another_experiment": another(base, changed),
    }


def _goodput(c: Chosen) -> float:
    """The share of a month that trains, with failures and checkpoints of as many GPUs."""
    row = c.solution.rows[0]
    return saving(c.problem, c.cost, c.environment(row.codes), row.step_time).goodput.trains


def _sizes(c: Chosen) -> Json:
    p = c.problem
    return {"hardware": p.program.hardware.name, "seq": p.values["seq"], "global_batch": p.global_batch}
