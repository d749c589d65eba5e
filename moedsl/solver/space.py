"""Enumerate the space of a compiled problem: the legal meshes and the legal policies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from moedsl.schema.axes import HELD, MESH
from moedsl.solver.laws import Compiled, Law, obeying
from moedsl.solver.table import Table
from moedsl.support import limits

MOST = 1_000_000
"""The most rows that a table grows to before laws take some away: a row with its lets takes some 60 bytes."""


def mesh_table(c: Compiled) -> Table:
    """Enumerate all legal meshes."""
    table, bound = c.empty(), frozenset[str]()
    pending = [law for law in c.laws if not law.priced]
    for name in MESH:
        bound |= {name}
        ready = [law for law in pending if law.needs <= bound]
        pending = [law for law in pending if not law.needs <= bound]
        domain = np.sort(c.problem.domains[name])
        table = Table.joined([_grown(part, name, domain, ready) for part in table.parts(max(1, MOST // len(domain)))])
    return table


def _grown(part: Table, name: str, domain: NDArray[np.int64], laws: Sequence[Law]) -> Table:
    limits.go_on()
    return obeying(part.grow(name, domain), laws)


def _project(policies: Table, axes_: frozenset[str]) -> Table:
    """The distinct combinations of some policies."""
    names = [n for n in policies.axes if n in axes_] or [HELD[0]]
    if not policies.rows:
        return policies
    _, first = np.unique(np.stack([policies.axes[n] for n in names]), axis=1, return_index=True)
    return policies.take(np.sort(first))


def combinations_of(policies: Table, names: tuple[str, ...]) -> dict[str, NDArray[np.int64]]:
    """The columns of some policies, with each combination once."""
    distinct = _project(policies, frozenset(names))
    return {n: distinct.axes[n] for n in names}


def policy_table(c: Compiled, names: tuple[str, ...]) -> Table:
    """Enumerate the combinations of policies that obey the laws on policies alone."""
    table = c.empty()
    for name in names:
        table = table.grow(name, c.problem.domains[name])
    return obeying(table, [law for law in c.laws if law.needs and law.needs <= frozenset(names)])
