"""Judge the advice of the rules on one layout: whether it is followed, and what following it would cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from attrs import evolve, frozen

from moedsl.facts import axes
from moedsl.facts.units import GIB
from moedsl.lang.printer import print_expr
from moedsl.planner.model.decisions import Advice
from moedsl.rules.check.program import Program
from moedsl.rules.rule import Rule
from moedsl.solver.laws import Law
from moedsl.solver.members import shown
from moedsl.solver.question import Question, TopK
from moedsl.solver.solve import Chosen
from moedsl.solver.table import Row
from moedsl.support.text import change

NEAR = 0.1
"""How much longer a step may be in a layout that is named for its memory, as a share."""


@frozen
class Answers:
    """Answers of one more pass over the space."""

    advice: tuple[Advice, ...]
    """Every advice and every preference of the run, in their order."""
    certain: Row | None
    """The best layout that FITS `within` the step of a plan that is TIGHT."""
    within: float | None
    """How much longer its step may be than the plan's, as a share; None if every layout was tried."""


def answers(chosen: Chosen, row: Row, env: Mapping[str, Any], tight: bool, judged: bool = True) -> Answers:
    """Judge each advice and price it, if it is to be `judged`, and for a plan that is TIGHT find the best layout that
    FITS."""
    laws, limit = chosen.compiled.advice + chosen.compiled.wishes if judged else (), _limit(chosen, row)
    unfollowed = {law.rule.id: law for law in laws if not law.rule.holds(env)}
    sure = TopK(1, Question(law=_certain(chosen)), limit) if tight and not chosen.fell_back else None
    # a law on prices needs a limit: if no layout obeys it, only pricing all of them would show that
    open_ = {n: TopK(1, Question(law=law), limit if law.priced else None) for n, law in unfollowed.items() if law.needs}
    chosen.search.fill([*open_.values(), *([sure] if sure else [])])
    p = chosen.problem.program
    costs = {n: _cost(open_.get(n), row, law, p) for n, law in unfollowed.items()}
    rules = [law.rule for law in laws]
    entries = [Advice(r.id, r.id not in costs, reason(r), r.cites, r.worth, costs.get(r.id)) for r in rules]
    within = None if limit is None or chosen.fell_back else NEAR
    return Answers(tuple(entries), next(iter(sure.rows), None) if sure else None, within)


def reason(r: Rule) -> str:
    """Why a rule advises something; a `prefer` of a run may state no reason, and its name says nothing."""
    return r.because or f"the run prefers `{print_expr(r.expr)}`"


def unanswered(law: Law, p: Program, within: str = "") -> str:
    """Say why no layout follows an advice: the run states what it reads, or every layout that does
    breaks a law or does not fit."""
    stated = {n: f"{n}={shown(n, pin.code)}" for n, pin in p.pins.items() if n in law.needs}
    if not stated:
        return f"no legal layout that follows it fits{within}"
    values = ", ".join(stated.values())
    if law.needs <= stated.keys():
        return f"the run excludes it by {values}"
    return f"no legal layout with {values} that follows it fits{within}"


def _cost(query: TopK | None, row: Row, law: Law, p: Program) -> str:
    if query is None:
        return "takes a change of the run, not of the layout"
    if query.rows:
        return against(query.rows[0], row)
    return unanswered(law, p, "" if query.limit is None else f" with a step at most {NEAR:.0%} longer")


def _limit(chosen: Chosen, row: Row) -> tuple[float, ...] | None:
    """The rank of the plan with a step longer by `NEAR`; None if the phase does not rank by time first."""
    at, ranks = len(chosen.compiled.wishes), chosen.compiled.ranks
    first = ranks[0].is_price and ranks[0].needs <= {"score", "step_time"}
    return (*row.keys[:at], row.keys[at] * (1 + NEAR), math.inf) if first else None


def _certain(chosen: Chosen) -> Law:
    """The law that a layout FITS."""
    some = chosen.compiled.ranks[0]
    return evolve(some, needs=frozenset(a.name for a in axes.AXES), value=lambda t: chosen.cost.spare(t) >= 0)


def against(other: Row, row: Row, close: bool = False) -> str:
    """Compare another layout with the plan's in a few words; `close` if the estimate cannot tell their steps apart."""
    return change(other.step_time / row.step_time - 1, (other.peak_memory - row.peak_memory) / GIB, close)
