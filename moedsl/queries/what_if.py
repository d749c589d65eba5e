"""What other GPUs, lengths, number formats, freezing and sharding would buy: each change compiled for itself."""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from moedsl.queries.changes import Change, changes
from moedsl.queries.experiments import another
from moedsl.queries.figures import Budget, Figures, Json, step_tokens
from moedsl.queries.gpus import held
from moedsl.queries.top import shared
from moedsl.rules.library import Library
from moedsl.solver.solve import Chosen, solve
from moedsl.syntax.printer import print_expr

BY_SPEED = ("score", "step_time")
"""First keys of a ranking that are the step time, with or without what advice multiplies it with."""
Progress = Callable[[str], None]


def what_if(
    chosen: Chosen, library: Library, budget: Budget | None = None, progress: Progress = lambda _: None
) -> Json:
    """`name`, `phase`, `ranks_by`, `by_speed` (whether that is the step time first), `step`, `base`, `lines`.

    `step` is what every line holds: tokens, now `global_batch` x `seq`.
    A line has `kind`, `change`, `hardware`, `seq` and `global_batch`; then the keys of `Figures.of`, `speedup`,
    `layout`, `changes` (of axes, against the base) and `another_experiment` (the names that make it one), or `why` not.
    """
    base = _alone(chosen)
    step = {"tokens": step_tokens(base), "global_batch": base.problem.global_batch, "seq": base.problem.values["seq"]}
    answers = _Answers(base, budget, progress)
    first = {**_sizes(base), **Figures(base, budget).of(base.solution.rows[0]), "layout": base.solution.rows[0].layout}
    lines = [answers.line(c) for c in changes(base, library)]
    p, first_key = chosen.problem.program, chosen.compiled.ranks[0]
    ranked = {"ranks_by": first_key.rule.name, "by_speed": print_expr(first_key.expr) in BY_SPEED}
    return {"name": p.name, "phase": p.phase, **ranked, "step": step, "base": first, "lines": lines}


def _alone(chosen: Chosen) -> Chosen:
    """The run with the layout that is best for itself, where its own was chosen for others too."""
    if not shared(chosen):
        return chosen
    alone = solve(held(chosen), chosen.problem.gpus, keep=1)
    return alone if alone.solution.rows else chosen


@frozen
class _Answers:
    base: Chosen
    budget: Budget | None
    progress: Progress

    def line(self, c: Change) -> Json:
        """One change, solved."""
        head = {"kind": c.kind, "change": c.label}
        if c.program is None or c.program.gpus is None:
            return {**head, "why": c.why}
        self.progress(f"what if {c.label}")
        found = solve(c.program, c.program.gpus, keep=1)
        head |= _sizes(found)
        if not found.solution.rows:
            return {**head, "gpus": found.problem.gpus, "why": _why(found)}
        return {**head, **self._against(found)}

    def _against(self, found: Chosen) -> Json:
        row, now = found.solution.rows[0], self.base.solution.rows[0]
        return {
            **Figures(found, self.budget).of(row),
            "speedup": now.step_time / row.step_time,
            "layout": row.layout,
            "changes": row.changes(now.codes),
            "another_experiment": another(self.base, found),
        }


def _sizes(c: Chosen) -> Json:
    p = c.problem
    return {"hardware": p.program.hardware.name, "seq": p.values["seq"], "global_batch": p.global_batch}


def _why(found: Chosen) -> str:
    """Why a change has no layout, in one line."""
    from moedsl.explainer.infeasible import briefly
    from moedsl.explainer.infeasible_report import message

    return message(briefly(found))
