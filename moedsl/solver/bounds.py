"""Find the policies that make a layout fastest or smallest, on which every bound of the search is based."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from moedsl.facts import axes
from moedsl.rules.vectorizer import Column
from moedsl.solver.laws import Compiled, Law, obeyed
from moedsl.solver.table import Mask, Table

Domains = Mapping[str, NDArray[np.int64]]
Policies = Sequence[Mapping[str, int]]
"""Values of some policies."""
SLACK = 1e-9
"""Largest share by which rounding lifts a bound above its price."""
Price = Literal["least_memory", "least_time"]
FASTER = tuple(n for n in axes.MOVED if axes.BY_NAME[n].least_time == "high")
"""Policies of communication whose larger value is never slower; laws limit each."""
OPEN = ("recompute", *(n for n in axes.POLICY if not axes.BY_NAME[n].least_time and n != "cuda_graph"))
"""Policies whose fastest value is unknown; of `recompute`, `none` is the fastest if it is legal."""
SETTLED = tuple(n for n in axes.POLICY if n not in (*FASTER, *OPEN, "cuda_graph"))
"""Policies with an end that is never slower."""


class Prices(Protocol):
    """A cost model as the search uses it: bytes and seconds for whole columns."""

    def memory(self, cols: Mapping[str, Column], *, policies: Policies = ()) -> NDArray[np.floating[Any]]: ...

    def held(self, cols: Mapping[str, Column]) -> NDArray[np.floating[Any]]: ...

    def spare(
        self, cols: Mapping[str, Column], case: str = "high", dispatchers: Sequence[int] = (), policies: Policies = ()
    ) -> NDArray[np.floating[Any]]: ...

    def time(self, cols: Mapping[str, Column]) -> NDArray[np.floating[Any]]: ...

    def work(self, cols: Mapping[str, Column]) -> NDArray[np.floating[Any]]: ...

    @property
    def overhead(self) -> float: ...


def extremes(domains: Domains, price: Price, names: Sequence[str], but: str) -> Iterator[dict[str, int]]:
    """Combinations of policies, one of which is best by a price: the end that the axis names, or every value."""
    chosen = {n: ends(axes.BY_NAME[n], getattr(axes.BY_NAME[n], price), domains[n]) for n in names if n != but}
    return (dict(zip(chosen, values, strict=True)) for values in itertools.product(*chosen.values()))


def ends(axis: axes.Axis, end: str, domain: NDArray[np.int64]) -> list[int]:
    """One end of a domain, or every value; the low end of a set is the empty set."""
    if end == "low":
        return [axis.off if axis.kind == "set" else int(domain.min())]
    return [int(domain.max())] if end == "high" else [int(v) for v in domain]


def slowest(domains: Domains, names: Sequence[str]) -> Iterator[dict[str, int]]:
    """Combinations of policies, one of which no layout is slower than: the other end of each axis with an end that is
    never slower; of sets, nothing captured or a whole iteration, and all that is recomputed or copied at once."""
    chosen = {n: _slow(axes.BY_NAME[n], domains[n].tolist()) for n in names}
    return (dict(zip(chosen, values, strict=True)) for values in itertools.product(*chosen.values()))


def _slow(axis: axes.Axis, domain: list[int]) -> list[int]:
    if axis.name == "cuda_graph":
        return [0, *(mask for mask in domain if graph_strength(mask)[0])]
    if axis.kind == "set":
        whole = axis.encode("full") if "full" in axis.words else 0
        return [functools.reduce(operator.or_, (mask for mask in domain if mask != whole), 0), *({whole} & {*domain})]
    if axis.least_time and len(domain) == 2:
        return [min(domain) if axis.least_time == "high" else max(domain)]
    return domain


def graph_strength(mask: int) -> tuple[bool, int]:
    graphs = axes.BY_NAME["cuda_graph"]
    full = bool(mask & graphs.encode("full_iteration"))
    return full, mask.bit_count()


def least_seconds(c: Compiled, prices: Prices, meshes: Table, policies: Table) -> NDArray[np.float64]:
    """The least seconds of each mesh with any of the policies; infinite if the laws allow none."""
    columns, possible = _fastest(c, meshes, policies)
    table = meshes.with_columns(**columns)
    least = np.full(meshes.rows, np.inf)
    for values in _open(policies):
        # The values of the other policies that are never slower
        (settled,) = extremes(policies.axes, "least_time", SETTLED, but="cuda_graph")
        graphs = max(_values(policies, "cuda_graph"), key=graph_strength)
        time = prices.time(table.assume(**values, **{**settled, "cuda_graph": graphs}))
        bound = {n: v for n, v in values.items() if v or n != "recompute"}  # without recompute no value is slower
        least = np.minimum(least, np.where(may_have(c, meshes, bound), time, np.inf))
    return np.where(possible, least, np.inf)


def _fastest(c: Compiled, meshes: Table, policies: Table) -> tuple[dict[str, NDArray[np.int64]], Mask]:
    """The largest legal value of each policy of `FASTER` by mesh, and a mask of meshes that have one of each."""
    columns, possible = dict[str, NDArray[np.int64]](), np.ones(meshes.rows, dtype=bool)
    for name in FASTER:
        column = np.full(meshes.rows, -1, dtype=np.int64)
        for value in _values(policies, name):
            column = np.where(may_have(c, meshes, {name: value}), value, column)
        columns[name], possible = np.maximum(column, 0), possible & (column >= 0)
    return columns, possible


def _values(policies: Table, name: str) -> list[int]:
    return sorted({*policies.axes[name].tolist()})


def may_have(c: Compiled, meshes: Table, values: Mapping[str, int]) -> Mask:
    """A mask of the meshes that may have these values, by the laws that read one of them and no other policy."""
    judged = ((reading(c, name, meshes.axes), meshes.assume(**{name: value})) for name, value in values.items())
    return np.logical_and.reduce([obeyed(laws, table) for laws, table in judged] or [np.ones(meshes.rows, dtype=bool)])


def reading(c: Compiled, name: str, mesh: Iterable[str]) -> list[Law]:
    """The laws that read a policy, and besides it only some axes of the mesh."""
    return [w for w in c.laws if name in w.needs and len(w.needs) > 1 and w.needs <= {*mesh, name}]


def _open(policies: Table) -> Iterator[dict[str, int]]:
    columns = {n: _values(policies, n) for n in OPEN}
    if 0 in columns["recompute"]:
        columns["recompute"] = [0]
    return (dict(zip(OPEN, values, strict=True)) for values in itertools.product(*columns.values()))
