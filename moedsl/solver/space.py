"""Many searches of one space: the best layout, and the best of each variant of the question. Exact, as `Search`.

A variant narrows the space (one value of an axis, one more law) or changes the score (one advice dropped). The meshes,
their bounds and the rows priced so far are kept between questions: most meshes that a variant has to look at are
those that another looked at before it, so that twenty answers cost little more than one.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from attrs import define, evolve, field, frozen

from moedsl.schema import axes
from moedsl.schema.axes import HELD, MESH, MOVED
from moedsl.solver import least_time
from moedsl.solver.laws import Compiled, Law, obeyed
from moedsl.solver.question import Answer, Question
from moedsl.solver.queue import Index, Queue
from moedsl.solver.search import Search, mesh_table, policy_table
from moedsl.solver.table import Mask, Row, Table
from moedsl.solver.top_k import Floats, at_most

FIRST, GROWTH, MOST = 16, 4, 65_536
"""Meshes that each variant asks for in its first round, how that grows, and up to what."""
MESHES, POLICIES = frozenset(MESH), frozenset(HELD + MOVED)
PART, LARGEST = 16_384, 60_000
"""Expanded rows that are priced at once in the first part of a round, and at most."""


@frozen
class _Priced:
    """Rows with all their prices, their keys, and by advice with a worth what it multiplies the score with."""

    table: Table
    keys: Floats
    factors: Mapping[str, Floats]


@define
class _Group:
    """Policies that some variants may use; its bounds are (keys, meshes), its pool what was priced with all of them."""

    policies: Table
    ordered: Floats
    """The bounds that order the meshes."""
    bounds: Floats
    """Those of meshes that somebody looked at are sharper."""
    sharp: Mask
    visited: Mask
    lean: Search
    """Knows the least memory with these policies."""
    memory: Floats
    """Bytes that these policies do not go below, by mesh; NaN where nobody asked."""
    pool: list[_Priced] = field(factory=list)


@define
class _Asked:
    """A variant on its way: its meshes, its place in the order of their bounds, and the best row so far."""

    question: Question
    mask: Mask
    queue: Queue
    group: _Group | None
    wish: int | None
    """The key that does not count."""
    at: int = 0
    done: bool = False
    best: Row | None = None

    def next(self, count: int) -> Index:
        """The next meshes that could be better than the best so far."""
        assert self.group is not None
        window = self.queue.read(self.at, count)
        self.at += len(window)
        hopeful = self._hopeful(self.group.ordered, window)
        self.done = not len(window) or not hopeful[-1]
        return window[hopeful]

    def wants(self, meshes: Index) -> Mask:
        """Which meshes are its own and could be better than the best so far."""
        assert self.group is not None
        return self.mask[meshes] & self._hopeful(self.group.bounds, meshes)

    def _hopeful(self, bounds: Floats, meshes: Index) -> Mask:
        found = bounds[:, meshes]
        if self.wish is not None:
            found[self.wish] = 0.0
        return at_most(found, self.best.keys if self.best else None)

    def offer(self, row: Row) -> None:
        self.best = row if self.best is None or row.keys < self.best.keys else self.best


class Space(Search):
    """The meshes of a compiled problem with their bounds, ready for any number of variants at any time."""

    @cached_property
    def legal(self) -> Table:
        """Every mesh that obeys the laws on meshes."""
        return mesh_table(self.c, self.dropped)

    @cached_property
    def policies(self) -> Table:
        """Every combination of policies that obeys the laws on policies."""
        return policy_table(self.c, HELD + MOVED)

    @cached_property
    def bounds(self) -> Floats:
        """(keys, meshes): never above the true key."""
        if any("peak_memory" in law.needs for law, _ in self._laws()):
            memory = self._least_memory(self.legal)
            return self._bounds(self.legal.with_columns(peak_memory=memory), self.policies)
        return self._bounds(self.legal, self.policies)

    @cached_property
    def _groups(self) -> dict[bytes, _Group]:
        return {}

    @cached_property
    def _queues(self) -> dict[tuple[bytes, int | None], Queue]:
        return {}

    def answers(self, variants: Sequence[Question]) -> list[Answer]:
        """The best row of each variant."""
        if not self.legal.rows or not self.policies.rows:
            return [Answer(None, int(v.rows(self.legal, MESHES).sum()), np.inf) for v in variants]
        asked = [self._asked(v) for v in variants]
        groups: dict[int, list[_Asked]] = {}
        for a in asked:
            groups.setdefault(id(a.group), []).append(a)
        for members in groups.values():
            if members[0].group is not None:
                self._visit_group(members[0].group, members)
        return [self._found(a) for a in asked]

    def _found(self, a: _Asked) -> Answer:
        legal = int(a.mask.sum())
        if a.best is not None:
            return Answer(a.best, legal, a.best.peak_memory)
        least = self._memory_of(a.group, np.flatnonzero(a.mask)).min() if legal and a.group is not None else np.inf
        return Answer(None, legal, float(least))

    # ------------------------------------------------------------ what is asked

    def _asked(self, v: Question) -> _Asked:
        mask = v.rows(self.legal, MESHES)
        wish = next((i for i, w in enumerate(self.c.wishes) if w.rule.id == v.dropped), None)
        key = (mask.tobytes(), wish)
        if key not in self._queues:
            self._queues[key] = Queue(_without_key(self.bounds, wish), np.flatnonzero(mask))
        return _Asked(v, mask, self._queues[key], self._group(v), wish)

    def _group(self, v: Question) -> _Group | None:
        """The policies of a variant; None where it has none."""
        mask = v.rows(self.policies, POLICIES)
        key = mask.tobytes()
        if key not in self._groups and mask.any():
            policies, rows = self.policies.take(mask), self.legal.rows
            ordered = self._narrowed(policies)
            unseen, unknown = np.zeros(rows, dtype=bool), np.full(rows, np.nan)
            lean = Search(_holding(self.c, policies), self.prices, 1)
            self._groups[key] = _Group(policies, ordered, ordered.copy(), unseen, unseen.copy(), lean, unknown)
        return self._groups.get(key)

    def _narrowed(self, policies: Table) -> Floats:
        """The bounds with the keys that policies alone decide at their least among fewer policies.

        Such a key is the same for every mesh, so the order of the bounds stays.
        """
        out = self.bounds.copy()
        for i, (law, negate) in enumerate(self._laws()):
            if law.needs.isdisjoint(MESH) and not law.priced and law.needs:
                value = np.broadcast_to(np.asarray(law.value(policies), dtype=np.float64), (policies.rows,))
                out[i] = (1.0 - value if negate else value).min()
        return out

    # ------------------------------------------------------------ the search

    def _visit_group(self, g: _Group, asked: list[_Asked]) -> None:
        """Rounds over variants with the same policies, until none has anything left that could be better."""
        self._recall(g, asked)
        for turn in itertools.count():
            open_ = [a for a in asked if not a.done]
            if not open_:
                return
            count = min(FIRST * GROWTH**turn, MOST)
            meshes = np.unique(np.concatenate([a.next(count) for a in open_]))
            meshes = self._wanted(g, meshes[~g.visited[meshes]], asked)
            self._judge_in_parts(g, meshes[self._could_hold_any(g, meshes)], asked)

    def _recall(self, g: _Group, asked: list[_Asked]) -> None:
        """What earlier questions priced: every row of a group's own meshes, and those of every policy."""
        pools = [g.pool]
        widest = self._groups.get(np.ones(self.policies.rows, dtype=bool).tobytes(), g)
        if widest is not g:
            pools.append(widest.pool)
            g.visited |= widest.visited
        for priced, a in itertools.product(itertools.chain(*pools), asked):
            self._offer(a, priced)

    def _wanted(self, g: _Group, meshes: Index, asked: list[_Asked]) -> Index:
        """Those of some meshes that are still hopeful with the least seconds that the laws on single policies leave."""
        new = meshes[~g.sharp[meshes]]
        if len(new):
            table = self.legal.take(new)
            seconds = least_time.seconds(self, table, g.policies)
            ideal = table.assume(step_time=seconds, score=seconds)
            for i, (law, _) in enumerate(self._laws()):
                if law.is_price and "peak_memory" not in law.needs:
                    g.bounds[i, new] = np.broadcast_to(np.asarray(law.value(ideal), dtype=np.float64), (len(new),))
            g.sharp[new] = True
        return _any_wants(asked, meshes)

    def _memory_of(self, g: _Group, meshes: Index) -> Floats:
        """Bytes that a group's policies do not go below, found once for each mesh."""
        unknown = meshes[np.isnan(g.memory[meshes])]
        if len(unknown):
            g.memory[unknown] = g.lean._least_memory(self.legal.take(unknown))
        return g.memory[meshes]

    def _could_hold_any(self, g: _Group, meshes: Index) -> Mask:
        """The meshes that could fit, by what no policy of a group goes below."""
        if not len(meshes):
            return np.zeros(0, dtype=bool)
        memory = self._memory_of(g, meshes)
        table = self.c.empty().with_columns(peak_memory=memory)
        return np.isfinite(memory) & obeyed(self._memory_caps(), table)

    def _judge_in_parts(self, g: _Group, meshes: Index, asked: list[_Asked]) -> None:
        """Prices meshes, the best bounds first; those that a better row has ruled out meanwhile are left."""
        meshes = meshes[np.lexsort(g.bounds[::-1, meshes])]
        at, rows = 0, PART
        while at < len(meshes):
            size = max(1, rows // g.policies.rows)
            part = _any_wants(asked, meshes[at : at + size])
            if len(part):
                self._judge(g, part, asked)
            at, rows = at + size, min(rows * GROWTH, LARGEST)

    def _judge(self, g: _Group, meshes: Index, asked: list[_Asked]) -> None:
        """Prices some meshes with every policy once, and gives each variant its best of them."""
        g.visited[meshes] = True
        table = self._moved(self._could_hold(self._held(self.legal.take(meshes), g.policies)), g.policies)
        if not table.rows:
            return
        factors = {w.rule.id: _factor(w, table) for w in self.c.advice if w.rule.worth}
        priced = _Priced(table, self._keys(table), factors)
        g.pool.append(priced)
        for a in asked:
            self._offer(a, priced)

    def _offer(self, a: _Asked, priced: _Priced) -> None:
        table, keys = self._without(priced, a)
        at = _best_of(keys, table, a.question.rows(table))
        if at is not None:
            a.offer(self._row(table, keys, at))

    def _without(self, priced: _Priced, a: _Asked) -> tuple[Table, Floats]:
        """The rows and their keys as if one advice, or one preference of the run, had not been given."""
        if a.question.dropped not in priced.factors:
            return priced.table, _without_key(priced.keys, a.wish)
        factor = np.ones(priced.table.rows)
        for f in (f for id, f in priced.factors.items() if id != a.question.dropped):
            factor = factor * f
        scored = priced.table.with_columns(score=priced.table.axes["step_time"] * factor)
        return scored, self._keys(scored)


def _holding(c: Compiled, policies: Table) -> Compiled:
    """The problem with no values of its policies but those that occur."""
    seen = {n: np.unique(policies.axes[n]) for n in HELD + MOVED}
    return evolve(c, problem=evolve(c.problem, domains={**c.problem.domains, **seen}))


def _factor(law: Law, table: Table) -> Floats:
    return np.where(law.holds(table), 1.0, 1.0 + law.rule.worth)


def _without_key(keys: Floats, wish: int | None) -> Floats:
    """Keys, or their bounds, with one of them the same everywhere."""
    if wish is None:
        return keys
    out = keys.copy()
    out[wish] = 0.0
    return out


def _any_wants(asked: list[_Asked], meshes: Index) -> Index:
    return meshes[np.logical_or.reduce([a.wants(meshes) for a in asked])]


def _best_of(keys: Floats, table: Table, mask: Mask) -> int | None:
    """The first of some rows by the keys and then by the axes; none where the mask is empty."""
    at = np.flatnonzero(mask)
    for column in (*keys, *(table.axes[a.name] for a in axes.AXES)):
        if len(at) < 2:
            break
        values = column[at]
        at = at[values == values.min()]
    return int(at[0]) if len(at) else None
