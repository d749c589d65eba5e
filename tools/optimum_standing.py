"""Where a known layout stands among all that are feasible for the same run: the search, going on beyond its best.

The order is the solver's own, by the first key of the phase. Meshes come in the order of their bounds, and the count
stops where `MOST` of them are ahead, so a layout is placed as quickly as one is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from moedsl.facts import axes
from moedsl.facts.axes import MESH, SIZES
from moedsl.solver.laws import Table
from moedsl.solver.search import Search

CHUNK = 30_000
"""Rows priced at a time."""
MOST = 50
"""Meshes ahead of a layout beyond which it is not placed."""


@frozen
class Standing:
    """Ranks from 1 of a layout that is feasible. `whole` is false where counting stopped: ranks are then the least that
    they can be."""

    row: int
    """Among meshes with policies."""
    policy: int
    """Among the policies of its own mesh."""
    mesh: int
    """Of its mesh with the best policies, among meshes (`axes.MESH`), as ``--top`` lists them."""
    sizes: int
    """The same among parallel sizes, virtual stages and the microbatch aside."""
    whole: bool
    key: float
    """Its first key: of `throughput` the score in seconds."""
    best: float
    """That of its mesh with the best policies."""


def outside(search: Search, row: Mapping[str, int]) -> dict[str, str]:
    """The values of a layout that the search does not try, by axis, in words."""
    domains = search.c.problem.domains
    tried = {a.name: domains[a.name].tolist() for a in axes.AXES}
    return {a.name: _spelled(a.decode(row[a.name])) for a in axes.AXES if row[a.name] not in tried[a.name]}


def standing(search: Search, row: Mapping[str, int]) -> Standing | None:
    """Where a row of the space stands; None where it is not feasible."""
    return _Field(search.c, search.prices, keep=search.keep).standing(row)


class _Field(Search):
    """A search that counts what is ahead of one row."""

    def standing(self, row: Mapping[str, int]) -> Standing | None:
        meshes = self._could_fit(self.legal)
        policies = self.policies
        mine = np.logical_and.reduce([meshes.axes[n] == row[n] for n in MESH])
        table, keys = self._feasible(meshes.take(mine), policies)
        if not table.rows:
            return None
        own = np.logical_and.reduce([table.axes[a.name] == row[a.name] for a in axes.AXES])
        if not own.any():
            return None
        key = float(keys[own][0])
        return self._placed(row, key, keys, meshes.take(~mine), policies)

    def _placed(
        self, row: Mapping[str, int], key: float, own: NDArray[np.float64], others: Table, policies: Table
    ) -> Standing:
        policy = rows = 1 + int((own < key).sum())
        best, meshes, sizes = own.min(), 1, {tuple(row[n] for n in SIZES)}
        for part in self._nearest(others, policies, key):
            table, keys = self._feasible(part, policies)
            ahead = keys < best
            rows += int((keys < key).sum())
            meshes += len(np.unique(table.axes["mesh"][ahead])) if table.rows else 0
            sizes |= set(zip(*(table.axes[n][ahead].tolist() for n in SIZES), strict=True)) if table.rows else set()
            if meshes > MOST:
                return Standing(rows, policy, meshes, len(sizes), False, key, float(best))
        return Standing(rows, policy, meshes, len(sizes), True, key, float(best))

    def _nearest(self, meshes: Table, policies: Table, key: float) -> Iterator[Table]:
        """The meshes that may be ahead, by their bounds, in pieces."""
        if not meshes.rows:
            return
        bounds = self._least_keys(meshes, frozenset(MESH), self._least_time(meshes), policies)[0]
        order = np.argsort(bounds, kind="stable")[: int((bounds < key).sum())]
        step = max(1, CHUNK // policies.rows)
        for at in range(0, len(order), step):
            yield meshes.take(order[at : at + step])

    def _feasible(self, part: Table, policies: Table) -> tuple[Table, NDArray[np.float64]]:
        """Every feasible row of some meshes, and its first key."""
        if not part.rows:
            return part, np.empty(0)
        table = self._moved(self._could_hold(self._held(part, policies)), policies)
        return table, self._keys(table)[0] if table.rows else np.empty(0)


def _spelled(value: object) -> str:
    return f"[{', '.join(value)}]" if isinstance(value, list) else str(value)
