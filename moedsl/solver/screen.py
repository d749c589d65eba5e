"""Rule out meshes by what some of their axes decide, before all of them are enumerated."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import numpy as np

from moedsl.facts.symbols import SPARES
from moedsl.solver.bounds import SLACK, Policies, Prices
from moedsl.solver.could import could_obey, required
from moedsl.solver.frugal import by_meshes, of_weights
from moedsl.solver.laws import TIME, Compiled, Law
from moedsl.solver.order import growing
from moedsl.solver.space import pipelines_table, weights_table
from moedsl.solver.table import Mask, Table


def weights(c: Compiled, prices: Prices, policies: Policies) -> tuple[Table, Mask]:
    """What decides the weights of a rank in every legal mesh, with a mask of the rows that a rank may hold with any of
    some policies under the laws on memory; one row that it may hold if there are none."""
    caps = [law for law in c.laws if law.bounded - {TIME}]
    if not caps:
        return c.empty(), np.ones(1, dtype=bool)
    table, shown, fitting = weights_table(c), c.problem.program.hardware.shown, required(c)
    kept = np.zeros(table.rows, dtype=bool)
    for may, group in by_meshes(c, table, of_weights(policies)):
        for some in group:
            held = prices.held(table.assume(**some))
            bounds = {"peak_memory": held, **dict.fromkeys(SPARES, shown - held)}
            kept |= may & could_obey(c.problem, caps, table, bounds, fitting)
    return table, kept


def in_time(c: Compiled, prices: Prices, policies: Iterable[dict[str, int]], limits: Sequence[Law]) -> list[Table]:
    """The legal meshes without VPP whose work with the best of some policies obeys limits of the step time, in growing
    parts, the least work first."""
    meshes = pipelines_table(c)
    if not meshes.rows:
        return []
    most = meshes.assume(vpp=int(c.problem.domains["vpp"].max()))
    seconds = functools.reduce(np.minimum, (prices.work(most.assume(**some)) for some in policies))
    least = (seconds + prices.overhead) * (1 - SLACK) - SLACK  # a price is in whole nanoseconds
    left = np.flatnonzero(could_obey(c.problem, limits, meshes, {TIME: least}))
    return [meshes.take(at) for at in growing(left[np.argsort(seconds[left], kind="stable")])]
