"""Price the layouts that differ from the chosen one in one axis, and find the law that refuses each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import log2

import numpy as np
from attrs import evolve, frozen

from moedsl.facts import axes
from moedsl.facts.symbols import COSTS
from moedsl.facts.units import GIB
from moedsl.lang.printer import print_expr
from moedsl.rules.stdlib import NEEDS
from moedsl.solver.bounded_space import memory_prices
from moedsl.solver.laws import Compiled, Row, first_broken
from moedsl.solver.problem import divisors
from moedsl.solver.space import Prices
from moedsl.support.text import change


@frozen
class Neighbour:
    """A row that differs from the chosen one in one axis; `refused_by` is the id of the first law that it breaks."""

    axis: str
    code: int
    codes: Mapping[str, int]
    """The codes of the whole row."""
    refused_by: str | None
    prices: Mapping[str, float]
    """As in `Row`; all NaN if a law that reads no price refuses the row."""
    needed: float
    """Bytes that the row needs in the case of the memory estimate in which the plan fits."""
    close: bool = False
    """Whether the estimate cannot tell the row's step time from the plan's; False until they are compared."""

    @property
    def peak_memory(self) -> float:
        return self.prices["peak_memory"]

    @property
    def step_time(self) -> float:
        return self.prices["step_time"]


def neighbours(c: Compiled, prices: Prices, row: Row) -> list[Neighbour]:
    """Price all rows that differ in one value, in one batch."""
    return judged(c, prices, row, around(c, row))


def around(c: Compiled, row: Row) -> list[tuple[axes.Axis, int]]:
    """Return the values that the solver chose from, nearest sizes first; for a mesh axis all divisors of the GPUs."""
    out = list[tuple[axes.Axis, int]]()
    for a in axes.AXES:
        domain, chosen = [int(v) for v in c.problem.domains[a.name]], row.codes[a.name]
        if a.name not in c.problem.program.pins and len(domain) > 1:
            values = divisors(c.problem.gpus) if a.name in axes.SIZES else domain
            values = sorted(values, key=lambda v: abs(log2(v / chosen))) if a.kind == "int" else values
            out += [(a, v) for v in values]
    return out


def judged(c: Compiled, prices: Prices, row: Row, tried: Iterable[tuple[axes.Axis, int]]) -> list[Neighbour]:
    """Price the rows with each tried value, in one batch; skip values that the row already has."""
    changes = [(a, v) for a, v in tried if v != row.codes[a.name]]
    return _judged(c, prices, row, changes) if changes else []


def repriced(c: Compiled, prices: Prices, row: Row) -> Neighbour:
    """Price the row itself again, with other prices."""
    axis = axes.AXES[0]
    return _judged(c, prices, row, [(axis, row.codes[axis.name])])[0]


def _judged(c: Compiled, prices: Prices, row: Row, changes: list[tuple[axes.Axis, int]]) -> list[Neighbour]:
    # Without a pipeline there are no virtual stages, unless they are pinned
    unpiped = {"vpp": 1} if 1 in c.problem.domains["vpp"] else {}
    codes = [{**row.codes, a.name: v, **(unpiped if (a.name, v) == ("pp", 1) else {})} for a, v in changes]
    table = c.table(codes)
    refused = first_broken([w for w in c.laws if not w.priced], table)
    legal = np.array([r is None for r in refused])
    priced = {n: np.full(len(changes), np.nan) for n in COSTS}
    if legal.any():
        part = table.take(legal)
        time = prices.time(part)
        for name, column in {**memory_prices(prices, c.memory_prices, part), "step_time": time, "score": time}.items():
            priced[name][legal] = column
        by_price = first_broken([w for w in c.laws if w.priced], table.with_columns(**priced))
        refused = [a or b for a, b in zip(refused, by_price, strict=True)]
    rules = [None if law is None else law.rule.id for law in refused]
    each = [{n: float(column[i]) for n, column in priced.items()} for i in range(len(changes))]
    needed = c.problem.program.hardware.shown - priced[c.spare]
    return [Neighbour(a.name, v, codes[i], rules[i], each[i], float(needed[i])) for i, (a, v) in enumerate(changes)]


def outranked(c: Compiled, n: Neighbour, row: Row) -> str:
    """Say why a legal neighbour with a shorter step is not the plan: the first key of the ranking in which it is worse,
    or the advice that it goes against."""
    other = evolve(row, codes=n.codes, prices=n.prices)
    table = c.table([other.codes]).with_columns(**{name: np.array([v]) for name, v in n.prices.items()})
    for law, mine in zip((*c.wishes, *c.ranks), row.keys, strict=False):
        if "score" in law.needs:
            break
        value = float(np.asarray(law.value(table), dtype=float).reshape(-1)[0])
        if (1.0 - value if law in c.wishes else value) > mine:
            return f", but worse by `{print_expr(law.expr)}`"
    against = sorted({*c.unfollowed(other)} - {*c.unfollowed(row)})
    return f", but goes against {' and '.join(against)}" if against else ""


def effect(n: Neighbour, row: Row) -> str:
    """Format the effect of a neighbour in a few words."""
    if n.refused_by is not None:
        over = f" ({NEEDS[n.refused_by]} {n.needed / GIB:.0f} GiB)" if n.refused_by in NEEDS else ""
        return f"refused by {n.refused_by}{over}"
    return change(n.step_time / row.step_time - 1, (n.peak_memory - row.peak_memory) / GIB, n.close)
