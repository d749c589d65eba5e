"""The least seconds of a mesh with the fastest policies that the laws leave it, one policy at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moedsl.schema import axes
from moedsl.schema.axes import MESH
from moedsl.solver.laws import Law, obeyed
from moedsl.solver.search import Search, extremes, graph_strength
from moedsl.solver.table import Mask, Table

FASTER = tuple(n for n in axes.MOVED if axes.BY_NAME[n].least_time == "high")
"""Policies of communication of which a larger value is never slower: the laws on each decide how large it may be."""
OPEN = ("recompute", *(n for n in axes.POLICY if not axes.BY_NAME[n].least_time and n != "cuda_graph"))
"""Policies of which any value may be the fastest; of `recompute` none is, where it may be none."""
SETTLED = tuple(n for n in axes.POLICY if n not in (*FASTER, *OPEN, "cuda_graph"))
"""Policies of which one end is never slower."""


def seconds(search: Search, meshes: Table, policies: Table) -> NDArray[np.float64]:
    """Seconds that no legal row with some policies goes below, by mesh; infinite where the laws leave none."""
    columns, possible = _fastest(search, meshes, policies)
    table = meshes.with_columns(**columns)
    least = np.full(meshes.rows, np.inf)
    for values in _open(policies):
        time = search.prices.time(table.assume(**values, **_usual(policies)))
        least = np.minimum(least, np.where(_allowed(search, meshes, values), time, np.inf))
    return np.where(possible, least, np.inf)


def _fastest(search: Search, meshes: Table, policies: Table) -> tuple[dict[str, NDArray[np.int64]], Mask]:
    """For each policy of `FASTER` the largest legal value of each mesh, and which meshes have one of each."""
    columns, possible = dict[str, NDArray[np.int64]](), np.ones(meshes.rows, dtype=bool)
    for name in FASTER:
        column = np.full(meshes.rows, -1, dtype=np.int64)
        for value in np.unique(policies.axes[name]):
            column = np.where(_allowed(search, meshes, {name: int(value)}), value, column)
        columns[name], possible = np.maximum(column, 0), possible & (column >= 0)
    return columns, possible


def _allowed(search: Search, meshes: Table, values: Mapping[str, int]) -> Mask:
    """The meshes that may have these values, by the laws that read one of them and no other policy."""
    asked = ((_reading(search, name), meshes.assume(**{name: value})) for name, value in values.items())
    return np.logical_and.reduce([obeyed(laws, table) for laws, table in asked])


def _reading(search: Search, name: str) -> Iterable[Law]:
    laws = (w for w in search.c.laws if w.rule.id not in search.dropped)
    return [w for w in laws if name in w.needs and w.needs & frozenset(MESH) and w.needs <= {*MESH, name}]


def _open(policies: Table) -> Iterator[dict[str, int]]:
    columns = {n: [int(v) for v in np.unique(policies.axes[n])] for n in OPEN}
    if 0 in columns["recompute"]:
        columns["recompute"] = [0]
    return (dict(zip(OPEN, values, strict=True)) for values in itertools.product(*columns.values()))


def _usual(policies: Table) -> dict[str, Any]:
    """The value that is never slower than another, of the rest."""
    (settled,) = extremes(policies.axes, "least_time", SETTLED, but="cuda_graph")
    graphs = max((int(v) for v in np.unique(policies.axes["cuda_graph"])), key=graph_strength)
    return {**settled, "cuda_graph": graphs}
