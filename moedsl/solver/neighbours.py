"""Price the layouts that differ from the chosen one in one axis, with the law that refuses each."""

from __future__ import annotations

from collections.abc import Iterable
from math import log2

import numpy as np

from moedsl.schema import axes
from moedsl.schema.frozen import frozen
from moedsl.schema.units import GIB
from moedsl.solver.laws import Compiled, first_broken
from moedsl.solver.problem import divisors
from moedsl.solver.search import Prices
from moedsl.solver.table import Row
from moedsl.support.text import change


@frozen
class Neighbour:
    """A row that differs from the chosen one in one axis; `refused_by` is the id of the first law that it breaks."""

    axis: str
    code: int
    refused_by: str | None
    peak_memory: float
    step_time: float
    spare_memory: float = float("nan")
    """As in `Row`."""


def neighbours(c: Compiled, prices: Prices, row: Row) -> list[Neighbour]:
    """Price all rows that differ in one value, in one batch."""
    return judged(c, prices, row, [(a, v) for a in axes.AXES for v in _values(c, a, row.codes[a.name])])


def judged(c: Compiled, prices: Prices, row: Row, tried: Iterable[tuple[axes.Axis, int]]) -> list[Neighbour]:
    """Price the rows with each tried value, in one batch; values that the row already has are skipped."""
    changes = [(a, v) for a, v in tried if v != row.codes[a.name]]
    return _judged(c, prices, row, changes) if changes else []


def repriced(c: Compiled, prices: Prices, row: Row) -> Neighbour:
    """Price the row itself again, with other prices."""
    axis = axes.AXES[0]
    return _judged(c, prices, row, [(axis, row.codes[axis.name])])[0]


def _judged(c: Compiled, prices: Prices, row: Row, changes: list[tuple[axes.Axis, int]]) -> list[Neighbour]:
    table = c.table([{**row.codes, axis.name: code} for axis, code in changes])
    refused = first_broken([w for w in c.laws if not w.priced], table)
    legal = np.array([r is None for r in refused])
    memory, time, spare = np.full((3, len(changes)), np.nan)
    if legal.any():
        part = table.take(legal)
        memory[legal], time[legal] = prices.memory(part), prices.time(part)
        if c.asks_for_spare:
            spare[legal] = prices.spare(part)
        table = table.with_columns(peak_memory=memory, spare_memory=spare, step_time=time, score=time)
        by_price = first_broken([w for w in c.laws if w.priced], table)
        refused = [a or b for a, b in zip(refused, by_price, strict=True)]
    rules = [None if law is None else law.rule.id for law in refused]
    return [Neighbour(a.name, v, rules[i], memory[i], time[i], spare[i]) for i, (a, v) in enumerate(changes)]


def _values(c: Compiled, axis: axes.Axis, chosen: int) -> list[int]:
    """The values that the solver chose from, nearest sizes first; for a mesh axis all divisors of the GPUs."""
    domain = [int(v) for v in c.problem.domains[axis.name]]
    if axis.name in c.problem.program.pins or len(domain) < 2:
        return []
    values = divisors(c.problem.gpus) if axis.name in axes.SIZES else domain
    return sorted(values, key=lambda v: abs(log2(v / chosen))) if axis.kind == "int" else values


def effect(n: Neighbour, row: Row) -> str:
    """Write the effect of a neighbour in a few words."""
    if n.refused_by is not None:
        over = f" ({n.peak_memory / GIB:.0f} GiB)" if n.refused_by.endswith(".fits") else ""
        return f"refused by {n.refused_by}{over}"
    return change(n.step_time / row.step_time - 1, (n.peak_memory - row.peak_memory) / GIB)
