"""The advice of the rules on one layout: whether it is followed, and what following it would cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from attrs import evolve, frozen

from moedsl.planner.model.decisions import Advice
from moedsl.schema import axes
from moedsl.schema.units import GIB
from moedsl.solver.laws import Law
from moedsl.solver.question import Question
from moedsl.solver.solve import Chosen
from moedsl.solver.table import Row
from moedsl.solver.top_k import Kept
from moedsl.support.text import change

NEAR = 0.1
"""How far behind a layout may rank that is named for its memory."""


@frozen
class Answers:
    """What one more pass over the space says beside a plan."""

    advice: tuple[Advice, ...]
    """Every advice and every preference of the run, in their order."""
    certain: Row | None
    """Of a layout that is TIGHT, the best that FITS `within` its step."""
    within: float | None
    """How much longer a step may be than the plan's; None where the phase ranks by something else before the time."""


def answers(chosen: Chosen, row: Row, env: Mapping[str, Any], tight: bool) -> Answers:
    """Whether each advice is followed and what it would cost; and for a layout that is TIGHT what FITS would cost."""
    laws, limit = chosen.compiled.advice + chosen.compiled.wishes, _limit(chosen, row)
    unfollowed = {law.rule.id: law for law in laws if not law.rule.holds(env)}
    sure = Kept(1, Question(law=_certain(chosen)), limit) if tight else None
    # a law on prices may be one that no layout obeys, which nothing but pricing them all would show
    asked = {n: Kept(1, Question(law=law), limit if law.priced else None) for n, law in unfollowed.items() if law.needs}
    chosen.search.fill([*asked.values(), *([sure] if sure else [])])
    costs = {n: _cost(asked.get(n), row) for n in unfollowed}
    rules = [law.rule for law in laws]
    entries = [Advice(r.id, r.id not in costs, r.because, r.cites, r.worth, costs.get(r.id)) for r in rules]
    return Answers(tuple(entries), next(iter(sure.rows), None) if sure else None, None if limit is None else NEAR)


def _cost(asked: Kept | None, row: Row) -> str:
    if asked is None:
        return "the run itself decides it, no layout does"
    if asked.rows:
        return against(asked.rows[0], row)
    within = "" if asked.limit is None else f" within {NEAR:.0%} of the step"
    return f"no fitting layout follows this{within}"


def _limit(chosen: Chosen, row: Row) -> tuple[float, ...] | None:
    """The rank of a layout as good as the plan's but for a step longer by `NEAR`; None where the phase ranks by
    something else before the time."""
    at, ranks = len(chosen.compiled.wishes), chosen.compiled.ranks
    first = ranks[0].is_price and ranks[0].needs <= {"score", "step_time"}
    return (*row.keys[:at], row.keys[at] * (1 + NEAR), math.inf) if first else None


def _certain(chosen: Chosen) -> Law:
    """The law that a layout FITS."""
    some = chosen.compiled.ranks[0]
    return evolve(some, needs=frozenset(a.name for a in axes.AXES), value=lambda t: chosen.cost.spare(t) >= 0)


def against(other: Row, row: Row) -> str:
    """How another layout compares with the plan's, in a few words."""
    return change(other.step_time / row.step_time - 1, (other.peak_memory - row.peak_memory) / GIB)
