"""Layouts next to the plan that a reader should know: a faster one that may run out of memory, and those without a pin.

- `risky`: the faster layout that may run out of memory; a run gets it only if it asks for it.
- `unpinned`: what each pin of the run file costs, by the layout that the run would have without that one pin.
- `rebalance`: balanced pipeline stages, where Megatron's even split makes the last stage the slowest. The even split
  counts only layers, so the stage with the loss and MTP has more work than the others. A plan uses it where the layers
  divide, because it is Megatron's default; the balanced layout is shown as an alternative.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from moedsl.cost import pipeline
from moedsl.facts import axes
from moedsl.facts.recipes import LIKE
from moedsl.rules.check.program import Program
from moedsl.rules.effects import EXPERIMENT, of_rules
from moedsl.solver import neighbours
from moedsl.solver.question import Question, TopK
from moedsl.solver.search import Search
from moedsl.solver.solve import Chosen, fit_is_read, solve
from moedsl.solver.table import Row

STATEMENT = "risk oom"
LEAST = 5e-4
"""Least gain that is shown, as a share of the step."""


def faster(chosen: Chosen, row: Row) -> Row | None:
    """The layout that `STATEMENT` would choose instead of `row`; None if it is not faster."""
    problem = chosen.problem
    if chosen.must_fit != "high" or problem.program.isolate is not None:
        return None
    same = {n: problem.values[n] for n in ("seq", "global_batch")}
    risky = solve(problem.program, problem.gpus, keep=0, must_fit="best", **same)
    query = TopK(1, Question(but=row.codes), row.keys)
    Search(risky.compiled, risky.cost, None if fit_is_read(problem.program) else chosen.search).fill([query])
    return next((r for r in query.rows if r.step_time < row.step_time * (1 - LEAST)), None)


def free_choices(chosen: Chosen, row: Row) -> dict[str, Row]:
    """The best layout without each pin, where its value is another."""
    found = ((axis, _without(chosen, row, axis)) for axis in _pinned(chosen.problem.program))
    return {axis: other for axis, other in found if other is not None}


def _pinned(p: Program) -> Iterator[str]:
    """The axes that the user fixed, without those that the run varies, takes from a recipe, or needs for its loss."""
    effects = of_rules(p.of("effect"))
    varied = {p.sweep[0]} if p.sweep else {*p.isolate.variants[0].codes} if p.isolate else set[str]()
    for axis, pin in p.pins.items():
        learns = effects.word(axis, axes.BY_NAME[axis].decode(pin.code)) == EXPERIMENT
        if axis not in varied and not learns and not pin.span.file.startswith(LIKE):
            yield axis


def _without(chosen: Chosen, row: Row, axis: str) -> Row | None:
    problem, p = chosen.problem, chosen.problem.program
    same = {n: problem.values[n] for n in ("seq", "global_batch")}
    free = evolve(p, pins={a: pin for a, pin in p.pins.items() if a != axis})
    other = solve(free, problem.gpus, keep=0, must_fit=chosen.must_fit, **same)
    query = TopK(1, Question(but=row.codes), row.keys)
    Search(other.compiled, other.cost, near=chosen.search).fill([query])
    return next((r for r in query.rows if r.codes[axis] != row.codes[axis]), None)


WORTH = 0.01
"""Least share of the step that a layout must save to be shown."""


def rebalanced(chosen: Chosen, row: Row) -> tuple[str, Row] | None:
    """The most balanced layout of the plan's stages, with its prices.

    None if the plan has this layout, or if the layout breaks a law or saves less than `WORTH`.
    """
    p, pp, vpp = chosen.problem.program, row.codes["pp"], row.codes["vpp"]
    if pp == 1 or p.pipeline_layout is not None or pipeline.layout_string(p.model, pp, vpp) is not None:
        return None
    text = pipeline.balanced(p.model, pp, vpp)
    if text is None:
        return None
    other = neighbours.repriced(chosen.compiled, evolve(chosen.cost, layout=text), row)
    if other.refused_by is not None or other.step_time > (1 - WORTH) * row.step_time:
        return None
    prices = {**other.prices, "score": row.score + other.step_time - row.step_time}
    return text, evolve(row, prices=prices)
