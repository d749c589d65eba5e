"""Find the exact Pareto front of memory and speed: every layout that no other one beats in both.

A mesh, and then a mesh with its policies of memory, is skipped only if a known layout needs no more memory than its
lower bound and less time than its lower bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moedsl.solver.bounds import SLACK
from moedsl.solver.search import Search
from moedsl.solver.solve import Chosen
from moedsl.solver.space import LARGEST_CHUNK
from moedsl.solver.table import Row, Table

FIRST_CHUNK = 32
"""Meshes in the first chunk, before any are skipped."""
Floats = NDArray[np.floating[Any]]


def front(chosen: Chosen) -> tuple[Row, ...]:
    """The layouts that no other beats in both memory and step time, the smallest memory first; empty if none fits.

    Of layouts with the same memory and time, only the one that the run ranks highest is included.
    """
    return tuple(_Front(chosen.compiled, chosen.cost).front())


class _Front(Search):
    """A search that keeps all rows that no other dominates."""

    def front(self) -> list[Row]:
        if not self.legal.rows or not self.policies.rows:
            return []
        found: list[Row] = []
        for part in self._parts(self._could_fit(self.legal, "peak_memory"), self.policies, found):
            held = self._could_hold(self._held(part, self.policies), "peak_memory")
            if held.rows:
                held = _undominated(held, held["peak_memory"], self._least_times(held), found)
            found[:] = _front_of([*found, *self._rows(self._moved(held, self.policies))])
        return found

    def _parts(self, meshes: Table, policies: Table, found: list[Row]) -> Iterator[Table]:
        """The meshes in growing chunks, the promising ones first, without those that `found` dominates by then."""
        if not meshes.rows:
            return
        left = meshes.with_columns(least_time=self._least_time(meshes))
        left = left.take(_promising(left["peak_memory"], left["least_time"]))
        size = FIRST_CHUNK
        while left.rows:
            yield left.take(np.arange(min(size, left.rows)))
            left = left.take(np.arange(size, max(left.rows, size)))
            left = _undominated(left, left["peak_memory"], left["least_time"], found)
            size = min(size * 2, max(1, LARGEST_CHUNK // policies.rows))

    def _rows(self, table: Table) -> list[Row]:
        """The Pareto front of some priced rows."""
        if not table.rows:
            return []
        table = self._within_memory(table, [n for n in self.c.memory_prices if n not in self.c.memory_read], [])
        table = table.take(_lowest(table["peak_memory"], table["step_time"]))
        keys = self._keys(table)
        return _front_of(self._row(table, keys, i) for i in range(table.rows))


def _promising(memory: Floats, time: Floats) -> NDArray[np.intp]:
    """An order that starts with the smallest, the fastest and the best of both in turn."""
    ranks = [np.argsort(np.argsort(v, kind="stable"), kind="stable") for v in (memory, time, np.log(memory * time))]
    return np.argsort(np.minimum.reduce(ranks), kind="stable")


def _lowest(memory: Floats, time: Floats) -> NDArray[np.intp]:
    """The rows that no other beats in both prices, ties included."""
    order = np.lexsort((time, memory))
    return order[time[order] <= np.minimum.accumulate(time[order])]


def _front_of(rows: Iterable[Row]) -> list[Row]:
    """One row for each pair of prices that no other pair beats, in the order of their memory."""
    out: list[Row] = []
    for row in sorted(rows, key=lambda r: (r.peak_memory, r.step_time, r.keys)):
        if not out or row.step_time < out[-1].step_time:
            out.append(row)
    return out


def _undominated(table: Table, memory: Floats, time: Floats, found: list[Row]) -> Table:
    """The rows whose bounds allow a layout that the front `found` does not dominate."""
    if not found or not table.rows:
        return table
    known = np.array([r.peak_memory for r in found])
    fastest = np.array([np.inf, *(r.step_time for r in found)])
    within = np.searchsorted(known, memory * (1 - SLACK), side="right")
    return table.take(fastest[within] >= time * (1 - SLACK))
