"""Enumerate the space of a compiled problem: the legal meshes and the legal policies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from moedsl.schema.axes import MESH
from moedsl.solver.laws import Compiled, Law, allowed, obeying
from moedsl.solver.table import Table
from moedsl.support import limits

MOST = 1_000_000
"""The most rows that a table grows to before laws take some away: a row with its lets takes some 60 bytes."""
MOST_POLICIES = 1_000_000
"""The most combinations of policies, all of which a search holds at once."""


def mesh_table(c: Compiled) -> Table:
    """Enumerate all legal meshes."""
    domains = {name: np.sort(c.problem.domains[name]) for name in MESH}
    return _table(c, domains, [law for law in c.laws if not law.priced])


def _table(c: Compiled, domains: Mapping[str, NDArray[np.int64]], laws: Sequence[Law], most: float = math.inf) -> Table:
    """Enumerate the combinations of some axes that obey laws on them, each as soon as its axes are bound."""
    table, bound, pending = c.empty(), frozenset[str](), laws
    for name, domain in domains.items():
        bound |= {name}
        ready = [law for law in pending if law.needs <= bound]
        pending = [law for law in pending if not law.needs <= bound]
        values = allowed(c.empty(), name, domain, [law for law in ready if law.needs <= {name}])
        ready = [law for law in ready if not law.needs <= {name}]
        parts, rows = list[Table](), 0
        for part in table.parts(max(1, MOST // max(1, len(values)))):
            parts.append(_grown(part, name, values, ready))
            rows += parts[-1].rows
            if rows > most:
                raise limits.too_large(f"has more than {most:,} combinations of policies")
        table = Table.joined(parts)
    return table


def _grown(part: Table, name: str, domain: NDArray[np.int64], laws: Sequence[Law]) -> Table:
    limits.go_on()
    return obeying(part.grow(name, domain), laws)


def combinations_of(policies: Table, names: tuple[str, ...]) -> dict[str, NDArray[np.int64]]:
    """The columns of some policies, with each combination once."""
    distinct = policies.distinct(names)
    return {n: distinct.axes[n] for n in names}


def policy_table(c: Compiled, names: tuple[str, ...]) -> Table:
    """Enumerate the combinations of policies that obey the laws on policies alone."""
    domains = {name: c.problem.domains[name] for name in names}
    return _table(c, domains, [law for law in c.laws if law.needs and law.needs <= frozenset(names)], MOST_POLICIES)
