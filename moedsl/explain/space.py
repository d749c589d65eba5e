"""Many searches of one space at once: the best layout, and the best of each variant of the question.

A variant narrows the space (one value of an axis, one more law) or changes the score (one advice dropped). All share
the enumeration, the bounds and the priced rows, so that twenty answers cost little more than one. Exact, as `Search`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray

from moedsl import axes
from moedsl.solve import (
    HELD,
    MESH,
    MOVED,
    Row,
    Search,
    as_mask,
    combinations_of,
    graph_strength,
    mesh_table,
    policy_table,
)
from moedsl.tables import Law, Mask, Table

FIRST, GROWTH, LARGEST = 512, 4, 60_000
"""Expanded rows that each variant asks for in its first round, how that grows, and the most that are priced at once."""
SHARPEN_FROM, SHARPENED = 40_000, 150_000
"""Expanded rows to come from which sharper bounds pay, and the most rows that are priced for them at once."""


@frozen
class Variant:
    """One question: `only` fixes axes or lets to a value, `law` must hold, `dropped` advice does not count."""

    only: Mapping[str, int] = field(factory=dict)
    law: Law | None = None
    dropped: str | None = None


@frozen
class Found:
    """The best row of a variant, or none; `legal` is how many meshes obey the laws with its values, prices aside."""

    row: Row | None
    legal: int
    least_memory: float
    """Bytes that every legal mesh needs at least; infinite where there is none."""


@define
class _Asked:
    """A variant on its way: the meshes still to visit, in the order of their bounds, and the best row so far."""

    variant: Variant
    meshes: NDArray[np.intp]
    policies: Table
    bounds: NDArray[np.float64]
    at: int = 0
    sharp: int = 0
    """Up to where the bounds of the meshes are the sharper ones, in an order of their own."""
    step: int = 1
    best: Row | None = None

    def next(self, visited: Mask) -> NDArray[np.intp]:
        """The next meshes that could be better than the best so far; empty when none can."""
        taken = list[int]()
        while self.at < len(self.meshes) and len(taken) < self.step:
            mesh = int(self.meshes[self.at])
            if self.best is not None and tuple(self.bounds[:, mesh]) > self.best.keys[: len(self.bounds)]:
                self.at = self.sharp if self.at < self.sharp else len(self.meshes)
                continue
            self.at += 1
            if not visited[mesh]:
                taken.append(mesh)
        return np.array(taken, dtype=np.intp)

    def left(self, visited: Mask) -> NDArray[np.intp]:
        """The unvisited meshes whose bound is no worse than the best row."""
        rest = self.meshes[self.at :]
        rest = rest[~visited[rest]]
        if self.best is None or not len(rest):
            return rest
        better, equal = np.zeros(len(rest), dtype=bool), np.ones(len(rest), dtype=bool)
        for bound, key in zip(self.bounds[:, rest], self.best.keys, strict=False):
            better |= equal & (bound < key)
            equal &= bound == key
        return rest[better | equal]


class Space(Search):
    """The meshes of a compiled problem with their bounds, ready for any number of variants."""

    def answers(self, variants: Sequence[Variant]) -> list[Found]:
        """The best row of each variant."""
        legal = mesh_table(self.c, self.dropped)
        policies = policy_table(self.c, HELD + MOVED)
        if not legal.rows or not policies.rows:
            return [Found(None, self._legal_meshes(legal, v), np.inf) for v in variants]
        memory = self._least_memory(legal)
        meshes = self._capped(legal, memory)
        bounds = self._bounds(meshes, policies) if meshes.rows else np.zeros((0, 0))
        order = np.lexsort(bounds[::-1]) if meshes.rows else np.zeros(0, dtype=np.intp)
        asked = [self._asked(v, meshes, policies, bounds, order) for v in variants]
        for group in _by_policies(asked):
            self._visit_group(group, meshes)
        return [self._found(a, legal, memory) for a in asked]

    def _capped(self, legal: Table, memory: NDArray[np.floating[Any]]) -> Table:
        """The meshes that could fit, by what no policy goes below."""
        table = legal.with_columns(peak_memory=memory)
        keep = np.isfinite(memory)
        for law in self.c.laws:
            if law.is_memory_cap and law.rule.id not in self.dropped:
                keep = keep & as_mask(law.holds(table), table.rows)
        return table.take(keep)

    def _found(self, a: _Asked, legal: Table, memory: NDArray[np.floating[Any]]) -> Found:
        if a.best is not None:
            return Found(a.best, self._legal_meshes(legal, a.variant), a.best.peak_memory)
        mask = _mesh_mask(legal, a.variant)
        return Found(None, int(mask.sum()), float(memory[mask].min()) if mask.any() else np.inf)

    @staticmethod
    def _legal_meshes(legal: Table, v: Variant) -> int:
        return int(_mesh_mask(legal, v).sum())

    def _asked(
        self, v: Variant, meshes: Table, policies: Table, bounds: NDArray[np.float64], order: NDArray[np.intp]
    ) -> _Asked:
        """A key of policies alone is the same for every mesh, so one order of the bounds is every variant's."""
        kept = policies.take(_policy_mask(policies, v))
        if not kept.rows or not meshes.rows:
            return _Asked(v, np.zeros(0, dtype=np.intp), kept, bounds)
        mask = _mesh_mask(meshes, v)
        ignoring = self._ignoring(bounds, v.dropped)
        order = order if ignoring is bounds else np.lexsort(ignoring[::-1])
        mine = order if mask.all() else order[mask[order]]
        return _Asked(v, mine, kept, self._narrowed(ignoring, kept), step=max(1, FIRST // kept.rows))

    def _narrowed(self, bounds: NDArray[np.float64], policies: Table) -> NDArray[np.float64]:
        """The bounds with the keys that policies alone decide at their least among fewer policies."""
        out = bounds.copy()
        for i, (law, negate) in enumerate(self._laws()):
            if law.needs.isdisjoint(MESH) and not law.priced and law.needs:
                value = np.broadcast_to(np.asarray(law.holds(policies), dtype=np.float64), (policies.rows,))
                out[i] = (1.0 - value if negate else value).min()
        return out

    def _visit_group(self, group: list[_Asked], meshes: Table) -> None:
        """Rounds over variants that share their policies, until each has nothing left that could be better."""
        policies = group[0].policies
        visited = np.zeros(meshes.rows, dtype=bool)
        most = max(1, LARGEST // max(1, policies.rows))
        for turn in itertools.count():
            for a in group if turn else ():
                self._sharpen(a, meshes, visited)
            chosen = np.unique(np.concatenate([a.next(visited) for a in group]))
            if not len(chosen):
                return
            visited[chosen] = True
            for i in range(0, len(chosen), most):
                self._judge(meshes.take(chosen[i : i + most]), policies, group)
            for a in group:
                a.step *= GROWTH

    def _sharpen(self, a: _Asked, meshes: Table, visited: Mask) -> None:
        """Bounds by recompute and offload apart, where many meshes are left: only policies that fit count for time."""
        held = combinations_of(a.policies, HELD)
        count = len(next(iter(held.values())))
        left = a.left(visited)
        if a.at < a.sharp or len(left) * a.policies.rows < SHARPEN_FROM:
            return
        left, rest = np.split(left, [max(1, SHARPENED // count)])
        table = meshes.take(left)
        memory, time = self._by_held(table, held, a.policies)
        ideal = table.with_columns(peak_memory=memory).assume(step_time=time, score=time)
        for i, (law, _) in enumerate(self._laws()):
            if law.is_price:
                a.bounds[i, left] = np.broadcast_to(np.asarray(law.holds(ideal), dtype=np.float64), (len(left),))
        fits = np.isfinite(time)
        left = left[fits][np.lexsort(a.bounds[::-1, left[fits]])]
        a.meshes, a.at, a.sharp = np.concatenate([left, rest]), 0, len(left)

    def _by_held(
        self, table: Table, held: Mapping[str, NDArray[np.int64]], policies: Table
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Least bytes and least seconds of each mesh over what may be held; infinite where nothing fits."""
        least = {n: int(policies.axes[n].min()) for n in MOVED}
        crossed = table.with_columns(mesh=np.arange(table.rows)).times(held)
        crossed = crossed.with_columns(peak_memory=self.prices.memory(crossed.assume(**least)))
        caps = [w for w in self.c.laws if w.is_memory_cap and w.rule.id not in self.dropped]
        for law in caps:
            crossed = crossed.take(as_mask(law.holds(crossed), crossed.rows))
        memory, time = np.full(table.rows, np.inf), np.full(table.rows, np.inf)
        if crossed.rows:
            np.minimum.at(memory, crossed.axes["mesh"], crossed.axes["peak_memory"])
            seconds = self.prices.time(crossed.assume(**_swiftest(policies)))
            np.minimum.at(time, crossed.axes["mesh"], seconds)
        return memory, time

    def _judge(self, part: Table, policies: Table, asked: list[_Asked]) -> None:
        """Prices some meshes with every policy once, and gives each variant its best of them."""
        held = self._could_hold(part.with_columns(mesh=np.arange(part.rows)).times(combinations_of(policies, HELD)))
        table = self._priced(self._legal(held.times(combinations_of(policies, MOVED))))
        if not table.rows:
            return
        keys = self._keys(table)
        for a in asked:
            scored, ranked = self._without(table, keys, a.variant.dropped)
            at = _best(ranked, scored, _row_mask(table, a.variant))
            if at is not None:
                row = self._row(scored, ranked, at)
                a.best = row if a.best is None or row.keys < a.best.keys else a.best

    def _without(
        self, table: Table, keys: NDArray[np.float64], dropped: str | None
    ) -> tuple[Table, NDArray[np.float64]]:
        """The rows and their keys as if one advice, or one preference of the run, had not been given."""
        law = next((w for w in self.c.advice if w.rule.id == dropped), None)
        if law is None:
            return table, self._ignoring(keys, dropped)
        factor = np.where(as_mask(law.holds(table), table.rows), 1.0, 1.0 + law.rule.worth)
        scored = table.with_columns(score=table["score"] / factor)
        return scored, self._keys(scored)

    def _ignoring(self, keys: NDArray[np.float64], wish: str | None) -> NDArray[np.float64]:
        """Keys, or their bounds, with the key of one preference of the run the same everywhere."""
        same = np.array([w.rule.id == wish for w, _ in self._laws()])
        return np.where(same[:, None], 0.0, keys) if same.any() else keys


def _best(keys: NDArray[np.float64], table: Table, mask: Mask) -> int | None:
    """The first of some rows by the keys and then by the axes; none where the mask is empty."""
    at = np.flatnonzero(mask)
    for column in (*keys, *(table.axes[a.name] for a in axes.AXES)):
        if len(at) < 2:
            break
        values = column[at]
        at = at[values == values.min()]
    return int(at[0]) if len(at) else None


def _by_policies(asked: Sequence[_Asked]) -> list[list[_Asked]]:
    """The variants that have something to visit, those with the same policies together."""
    groups: dict[tuple[tuple[str, int], ...], list[_Asked]] = {}
    for a in asked:
        narrowed = tuple((n, v) for n, v in a.variant.only.items() if n in HELD + MOVED)
        if len(a.meshes):
            groups.setdefault(narrowed, []).append(a)
    return [*groups.values()]


def _swiftest(policies: Table) -> dict[str, int]:
    """For each policy that moves tokens or launches kernels, its fastest value among some, as `Search` bounds it."""
    fastest = {n: int(policies.axes[n].max()) for n in ("dispatcher", "ep_overlap", "delay_wgrad")}
    return {**fastest, "cuda_graph": max((int(v) for v in np.unique(policies.axes["cuda_graph"])), key=graph_strength)}


def _row_mask(table: Table, v: Variant) -> Mask:
    """The priced rows that answer a variant's question."""
    keep = np.ones(table.rows, dtype=bool)
    for name, value in v.only.items():
        keep = keep & as_mask(np.equal(table[name], value), table.rows)
    return keep if v.law is None else keep & as_mask(v.law.holds(table), table.rows)


def _mesh_mask(meshes: Table, v: Variant) -> Mask:
    """The meshes that may, as far as their axes alone tell."""
    keep = np.ones(meshes.rows, dtype=bool)
    for name, value in v.only.items():
        if name not in HELD + MOVED:
            keep = keep & as_mask(np.equal(meshes[name], value), meshes.rows)
    if v.law is not None and v.law.needs <= frozenset(MESH):
        keep = keep & as_mask(v.law.holds(meshes), meshes.rows)
    return keep


def _policy_mask(policies: Table, v: Variant) -> Mask:
    keep = np.ones(policies.rows, dtype=bool)
    for name, value in v.only.items():
        if name in HELD + MOVED:
            keep = keep & (policies.axes[name] == value)
    if v.law is not None and v.law.needs <= frozenset(HELD + MOVED):
        keep = keep & as_mask(v.law.holds(policies), policies.rows)
    return keep
