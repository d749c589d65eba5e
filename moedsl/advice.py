"""The advice of the rules on one layout: whether it is followed, and what following it would cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from attrs import evolve, frozen

from moedsl import axes
from moedsl.choose import Chosen
from moedsl.kept import Kept
from moedsl.neighbours import GIB
from moedsl.scalar import evaluate, holds
from moedsl.solve import Row, Search
from moedsl.tables import Law

Json = dict[str, Any]
NEAR = 0.1
"""How far behind a layout may rank that is named for its memory."""


@frozen
class Answers:
    """What one more pass over the space says beside a plan."""

    advice: list[Json]
    """Every advice and every preference of the run, in their order."""
    certain: Row | None
    """Of a layout that is TIGHT, the best that FITS within `NEAR`."""


def answers(chosen: Chosen, row: Row, env: Mapping[str, Any], tight: bool) -> Answers:
    """Whether each advice is followed and what it would cost; and for a layout that is TIGHT what FITS would cost."""
    laws = chosen.compiled.advice + chosen.compiled.wishes
    unfollowed = [law for law in laws if not _followed(law, env)]
    open_ = [law for law in unfollowed if law.needs]
    sure = _certain(chosen, row) if tight else []
    best, found = _best(chosen, open_, sure)
    costs = {law.rule.id: _cost(best.get(law.rule.id), row) for law in unfollowed}
    entries = [
        {
            "rule": law.rule.id,
            "followed": law.rule.id not in costs,
            "because": law.rule.because,
            "cite": list(law.rule.cites),
            "worth": law.rule.worth,
            "cost": costs.get(law.rule.id),
        }
        for law in laws
    ]
    return Answers(entries, next(iter(found), None))


def _followed(law: Law, env: Mapping[str, Any]) -> bool:
    return not holds(law.rule.when, env) or bool(evaluate(law.rule.expr, env))


def _cost(best: list[Row] | None, row: Row) -> str:
    if best is None:
        return "the run itself decides it, no layout does"
    return against(best[0], row) if best else "nothing that the run leaves open follows it and fits"


def _best(chosen: Chosen, laws: list[Law], sure: list[Kept]) -> tuple[dict[str, list[Row]], list[Row]]:
    """By law, the best layout that obeys it too, among the meshes that the plan's own search left, if any; and what is
    kept for `sure`."""
    c, space = chosen.compiled, chosen.solution.space
    if space is None or space.c is not c:
        searches = (Search(evolve(c, laws=(*c.laws, law)), chosen.cost, 1) for law in laws)
        return {law.rule.id: list(s.run().rows) for law, s in zip(laws, searches, strict=True)}, []
    kept = [Kept(1, law) for law in laws]
    Search(c, chosen.cost, 1).each(space, [*kept, *sure])
    return {k.law.rule.id: k.rows for k in kept if k.law}, [r for k in sure for r in k.rows]


def _certain(chosen: Chosen, row: Row) -> list[Kept]:
    """The question for the best layout that FITS and ranks no further behind than `NEAR`; none where the phase does not
    rank by time."""
    c = chosen.compiled
    keys = [*c.wishes, *c.ranks]
    at = next((i for i, law in enumerate(keys) if law.is_price and law.needs <= {"score", "step_time"}), None)
    if at is None:
        return []
    law = evolve(keys[at], needs=frozenset(a.name for a in axes.AXES), holds=lambda t: chosen.cost.spare(t) >= 0)
    return [Kept(1, law, (*row.keys[:at], row.keys[at] * (1 + NEAR), math.inf))]


def against(other: Row, row: Row) -> str:
    """How another layout compares with the plan's, in a few words."""
    slower, more = (other.step_time / row.step_time - 1) * 100, (other.peak_memory - row.peak_memory) / GIB
    return f"{slower:+.1f}% step time, {more:+.1f} GiB"
