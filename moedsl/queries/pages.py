"""Print a file's plans: on one page that a person reads before spending money, or in full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from moedsl.compiler import Result
from moedsl.emit import isolation_table
from moedsl.planner import several
from moedsl.planner.plan import Plan
from moedsl.planner.text import Command, next_text, notes_text, page_text, plan_text
from moedsl.support.diagnostics import to_json


def page(result: Result, next: Sequence[Command], width: int) -> str:
    """Print the page of a single plan, or for several plans a table with their notes."""
    notes = [to_json(d, result.sources) for d in result.diagnostics]
    if len(result.plans) == 1:
        return page_text(result.plans[0], notes, next, width)
    below = "\n".join([*notes_text(notes, width), *next_text(next, width)])
    return "\n".join([several.runs_text(result.plans, width), *_comparisons(result.plans), f"{below}\n"])


def texts(plans: Sequence[Plan]) -> Iterator[str]:
    """Yield every plan in full; of an isolation only the first variant, because a table compares the variants."""
    seen = set[tuple[str, str]]()
    for p in plans:
        group = (p.isolation.of, p.isolation.axis) if p.isolation else (p.name, "")
        if group not in seen:
            yield plan_text(p)
        seen.add(group)
    yield from _comparisons(plans)


def _comparisons(plans: Sequence[Plan]) -> Iterator[str]:
    """Yield tables that compare the variants of each isolation, and the values of each sweep."""
    yield from (c.text() for c in isolation_table.comparisons(plans))
    yield from (sweep.text() for sweep in several.sweeps(plans))
