"""Find what each pin of the run file costs: the layout that the run would have without that one pin."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from moedsl.facts import axes
from moedsl.facts.recipes import LIKE
from moedsl.rules.check.program import Program
from moedsl.rules.effects import EXPERIMENT, of_rules
from moedsl.solver.question import Question, TopK
from moedsl.solver.search import Search
from moedsl.solver.solve import Chosen, solve
from moedsl.solver.table import Row


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
