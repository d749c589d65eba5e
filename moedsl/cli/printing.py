"""Print plans for several commands."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import Any

from moedsl.cli import talk
from moedsl.compiler import Result
from moedsl.planner import sweep_table
from moedsl.planner.model.ladder import Ladder
from moedsl.planner.model.plan import Plan
from moedsl.planner.text.plan import plan_text
from moedsl.solver.solve import Chosen
from moedsl.support import limits


def with_ladders(result: Result) -> None:
    """Add its ladder to each plan; plans of a workflow have theirs."""
    pairs = zip(result.chosen, result.plans, strict=True)
    result.plans = tuple(p.replace(ladder=p.ladder or _ladder(c)) for c, p in pairs)


def _ladder(c: Chosen) -> Ladder:
    from moedsl.planner import ladder

    with limits.of_part(c.problem.program):
        return ladder.of_run(c)


def show(a: Namespace, result: Result) -> None:
    """Print the plans, or the output of the requested stage."""
    if a.stop_after and a.stop_after != "plan":
        from moedsl.cli import stages

        talk.print_json(stages.dump(result, a.stop_after))
    elif a.json:
        talk.print_json(one(result.plans))
    else:
        print("\n".join(_texts(result.plans)), end="")


def _texts(plans: Sequence[Plan]) -> Iterator[str]:
    """Print every plan; of an isolation, only the first, then the variants side by side."""
    if any(p.isolation for p in plans):
        from moedsl.isolate import table  # it reads the fields of recipes

        for group in table.groups(plans):
            yield plan_text(group[0])
            if group[0].isolation:
                yield table.text(table.comparison(group))
    else:
        yield from map(plan_text, plans)
    for compared in sweep_table.comparisons(plans):
        yield sweep_table.text(compared)


def one(plans: Sequence[Plan]) -> dict[str, Any]:
    """The plan of a file with one run; for several runs, an object with all."""
    if len(plans) == 1:
        return plans[0].to_json()
    compared = _compared(plans)
    return {"version": 1, "runs": [p.to_json() for p in plans], **({"comparisons": compared} if compared else {})}


def _compared(plans: Sequence[Plan]) -> list[dict[str, Any]]:
    """Compare the variants of each isolation, and the values of each sweep."""
    swept = sweep_table.comparisons(plans)
    if not any(p.isolation for p in plans):
        return swept
    from moedsl.isolate import table

    return [*table.comparisons(plans), *swept]
