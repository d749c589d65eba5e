"""Enumerate the space of a compiled problem: the legal meshes and the legal policies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from moedsl.facts.axes import BY_NAME, MESH, WEIGHTS
from moedsl.solver.laws import Compiled, Law, allowed, obeying
from moedsl.solver.table import Table
from moedsl.support import limits

MOST = 1_000_000
"""The most rows that a table grows to before laws take some away: a row with its lets takes some 60 bytes."""
MOST_POLICIES = 1_000_000
"""The most combinations of policies, all of which a search holds at once."""


def mesh_table(c: Compiled) -> Table:
    """Enumerate all legal meshes."""
    return _table(c.empty(), _domains(c, MESH), _unpriced(c))


def weights_table(c: Compiled) -> Table:
    """Enumerate what decides the weights of a rank: the legal combinations of `WEIGHTS`."""
    return _table(c.empty(), _domains(c, WEIGHTS), _unpriced(c))


def pipelines_table(c: Compiled) -> Table:
    """Enumerate what decides the microbatches and the work of a rank: the legal meshes without VPP."""
    return _table(c.empty(), _domains(c, [name for name in MESH if name != "vpp"]), _unpriced(c))


def halves(c: Compiled) -> tuple[Table, Table]:
    """Enumerate the legal pipelines, and what decides the work of a layer: the legal meshes without them."""
    pipes = [name for name in MESH if BY_NAME[name].mesh == "pipeline"]
    rest = [name for name in MESH if name not in pipes]
    first, second = (_table(c.empty(), _domains(c, names), _unpriced(c)) for names in (pipes, rest))
    return first, second


def meshes_of(c: Compiled, some: Table) -> Table:
    """Enumerate the legal meshes of some rows of a table of fewer axes."""
    left = [law for law in _unpriced(c) if not law.needs <= some.axes.keys()]
    return _table(some, _domains(c, [name for name in MESH if name not in some.axes]), left)


def _domains(c: Compiled, names: Iterable[str]) -> dict[str, NDArray[np.int64]]:
    return {name: np.sort(c.problem.domains[name]) for name in names}


def _unpriced(c: Compiled) -> list[Law]:
    return [law for law in c.laws if not law.priced]


def _table(
    table: Table, domains: Mapping[str, NDArray[np.int64]], laws: Sequence[Law], most: float = math.inf
) -> Table:
    """Combine the rows of a table with the combinations of more axes that obey laws on all of them, each law as soon as
    its axes are bound."""
    alone, bound, pending = table.without_axes(), frozenset(table.axes), laws
    for name, domain in domains.items():
        bound |= {name}
        ready = [law for law in pending if law.needs <= bound]
        pending = [law for law in pending if not law.needs <= bound]
        values = allowed(alone, name, domain, [law for law in ready if law.needs <= {name}])
        ready = [law for law in ready if not law.needs <= {name}]
        parts, rows = list[Table](), 0
        for part in table.parts(max(1, MOST // max(1, len(values)))):
            limits.go_on()
            parts.append(obeying(part.grow(name, values), ready))
            rows += parts[-1].rows
            if rows > most:
                raise limits.too_large(f"has more than {most:,} combinations of policies")
        table = Table.joined(parts)
    return table


def combinations_of(policies: Table, names: tuple[str, ...]) -> dict[str, NDArray[np.int64]]:
    """The columns of some policies, with each combination once."""
    distinct = policies.distinct(names)
    return {n: distinct.axes[n] for n in names}


def policy_table(c: Compiled, names: tuple[str, ...]) -> Table:
    """Enumerate the combinations of policies that obey the laws on policies alone."""
    domains = {name: c.problem.domains[name] for name in names}
    laws = [law for law in c.laws if law.needs and law.needs <= frozenset(names)]
    return _table(c.empty(), domains, laws, MOST_POLICIES)
