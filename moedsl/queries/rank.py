"""Which key of a run's ranking puts a layout behind the plan."""

from __future__ import annotations

from moedsl.queries.figures import Json
from moedsl.queries.top import shared
from moedsl.solver.solve import Chosen
from moedsl.solver.table import Row
from moedsl.syntax.printer import print_expr


def behind(chosen: Chosen, row: Row) -> Json | None:
    """The first key in which a layout differs from the plan: `rule`, `key`, its `value` and the plan's, `plan`.

    A wish that is not kept counts 1, and so does a condition that holds. None where the plan is not the best by these
    keys, since other runs share its layout.
    """
    if shared(chosen):
        return None
    laws = (*chosen.compiled.wishes, *chosen.compiled.ranks)
    keys = zip(laws, row.keys, chosen.solution.rows[0].keys, strict=True)
    law, value, own = next(((law, a, b) for law, a, b in keys if a != b), (None, 0.0, 0.0))
    if law is None or value < own:
        return None
    return {"rule": law.rule.id, "key": print_expr(law.expr), "value": value, "plan": own}
