"""Where a known layout stands among all that are feasible for the same run: the search, without stopping at the best.

The order is the solver's own: the keys of the phase. Of the layouts with a bound above the known one's keys nothing is
priced, so a layout near the top is placed quickly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from moedsl import axes
from moedsl.solve import HELD, MESH, MOVED, Search, combinations_of, mesh_table, policy_table
from moedsl.tables import Table

CHUNK = 60_000
"""Rows priced at a time."""


@frozen
class Standing:
    """A layout among the feasible ones; ranks count from 1. `meshes` and `priced` say how many are ahead or were asked."""

    fits: bool
    """Whether the laws on memory and time hold for it."""
    row: int
    """Its rank among meshes with policies."""
    mesh: int
    """The rank of its mesh with the best policies, among meshes (`solve.MESH`), as ``--top`` lists them."""
    within: int
    """Its rank among the policies of its own mesh."""
    sizes: int
    """The rank of its parallel sizes, whatever the virtual stages and the microbatch."""


SIZES = ("pp", "tp", "cp", "etp", "ep")


def outside(search: Search, row: Mapping[str, int]) -> dict[str, str]:
    """The values of a layout that the search does not try, by axis, in words."""
    domains = search.c.problem.domains
    return {
        a.name: _spelled(a.decode(row[a.name])) for a in axes.AXES if row[a.name] not in domains[a.name].tolist()
    }


def standing(search: Search, row: Mapping[str, int]) -> Standing:
    """Where a row with all its values in the space stands; its mesh has to obey the laws."""
    return _Field(search.c, search.prices, search.keep, search.dropped).standing(row)


class _Field(Search):
    """A search that counts what is ahead of one row."""

    def standing(self, row: Mapping[str, int]) -> Standing:
        meshes = self._could_fit(mesh_table(self.c, self.dropped))
        policies = policy_table(self.c, HELD + MOVED)
        mine = np.logical_and.reduce([meshes.axes[n] == row[n] for n in MESH])
        table, keys = self._all(meshes.take(mine), policies)
        own = np.logical_and.reduce([table.axes[a.name] == row[a.name] for a in axes.AXES])
        if not own.any():
            return Standing(False, 0, 0, 0, 0)
        key, best = keys[own][0], keys.min()
        ahead, better, sizes = int((keys < key).sum()), 0, set[tuple[int, ...]]()
        for some in self._others(meshes.take(~mine), policies, key):
            table, keys = self._all(some, policies)
            ahead += int((keys < key).sum())
            first = _least(table, keys, "mesh")
            better += int((first < best).sum())
            faster = keys < best
            sizes |= set(zip(*(table.axes[n][faster].tolist() for n in SIZES), strict=True))
        sizes.discard(tuple(row[n] for n in SIZES))
        within = 1 + int((self._all(meshes.take(mine), policies)[1] < key).sum())
        return Standing(True, 1 + ahead, 1 + better, within, 1 + len(sizes))

    def _others(self, meshes: Table, policies: Table, key: float) -> Iterator[Table]:
        """The meshes that may be ahead, in pieces."""
        if not meshes.rows:
            return
        near = meshes.take(self._bounds(meshes, policies)[0] < key)
        step = max(1, CHUNK // policies.rows)
        for at in range(0, near.rows, step):
            yield near.take(np.arange(at, min(at + step, near.rows)))

    def _all(self, part: Table, policies: Table) -> tuple[Table, NDArray[np.float64]]:
        """Every feasible row of some meshes, and its first key."""
        held = self._could_hold(part.with_columns(mesh=np.arange(part.rows)).times(combinations_of(policies, HELD)))
        table = self._priced(self._legal(held.times(combinations_of(policies, MOVED))))
        return table, self._keys(table)[0] if table.rows else np.empty(0)


def _least(table: Table, keys: NDArray[np.float64], by: str) -> NDArray[np.float64]:
    """The least key of each group."""
    if not table.rows:
        return np.empty(0)
    order = np.lexsort((keys, table.axes[by]))
    _, first = np.unique(table.axes[by][order], return_index=True)
    return keys[order][first]


def _spelled(value: object) -> str:
    return f"[{', '.join(value)}]" if isinstance(value, list) else str(value)
