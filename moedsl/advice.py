"""The advice of the rules on one layout: whether it is followed, and what following it would cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import evolve

from moedsl.choose import Chosen
from moedsl.neighbours import GIB
from moedsl.scalar import evaluate, holds
from moedsl.solve import Row, Search
from moedsl.tables import Law

Json = dict[str, Any]


def advice(chosen: Chosen, row: Row, env: Mapping[str, Any]) -> list[Json]:
    """Every advice and every preference of the run, in their order."""
    laws = chosen.compiled.advice + chosen.compiled.wishes
    unfollowed = [law for law in laws if not _followed(law, env)]
    costs = dict(zip((law.rule.id for law in unfollowed), _costs(chosen, unfollowed, row), strict=True))
    return [
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


def _followed(law: Law, env: Mapping[str, Any]) -> bool:
    return not holds(law.rule.when, env) or bool(evaluate(law.rule.expr, env))


def _costs(chosen: Chosen, laws: Iterable[Law], row: Row) -> list[str]:
    """What the best layout that follows one advice more costs against the plan, for each advice."""
    open_ = [law for law in laws if law.needs]
    best = dict(zip((law.rule.id for law in open_), _following(chosen, open_), strict=True))
    return [_cost(best.get(law.rule.id), row) for law in laws]


def _cost(best: tuple[Row, ...] | None, row: Row) -> str:
    if best is None:
        return "the run itself decides it, no layout does"
    return against(best[0], row) if best else "nothing that the run leaves open follows it and fits"


def _following(chosen: Chosen, laws: list[Law]) -> list[tuple[Row, ...]]:
    """The best layout that obeys one law more, for each: among the meshes that the plan's own search left, if any."""
    c, space = chosen.compiled, chosen.solution.space
    if space is None or space.c is not c:
        return [Search(evolve(c, laws=(*c.laws, law)), chosen.cost, 1).run().rows for law in laws]
    return Search(c, chosen.cost, 1).each(space, laws)


def against(other: Row, row: Row) -> str:
    """How another layout compares with the plan's, in a few words."""
    slower, more = (other.step_time / row.step_time - 1) * 100, (other.peak_memory - row.peak_memory) / GIB
    return f"{slower:+.1f}% step time, {more:+.1f} GiB"
