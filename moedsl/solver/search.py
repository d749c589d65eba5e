"""Search the whole space exactly; bounds avoid pricing most of it.

1. The mesh table grows one axis at a time; each law applies as soon as its axes are bound.
2. Every mesh gets a lower bound of its rank: prices with the best policies, other keys at their least.
3. Meshes that could fit are expanded in the order of their bounds, in growing chunks, until the next bound cannot beat
   the worst of the top k: with the policies of memory first, then, if a row can still enter, with all others.
   A bound is never above the true key, so nothing better is missed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moedsl.classes.fields import evolve, field, frozen
from moedsl.rules.vectorizer import Column
from moedsl.schema import axes
from moedsl.schema.axes import HELD, MESH, MOVED
from moedsl.schema.symbols import COSTS, MEMORY, SPARES
from moedsl.solver import screen
from moedsl.solver.bounds import SLACK, Policies, Prices, extremes, graph_strength, least_seconds, slowest
from moedsl.solver.could import could_obey, required
from moedsl.solver.frugal import by_meshes, frugal, frugal_moves
from moedsl.solver.laws import SECONDS, TIME, Compiled, Law, memory_of, obeyed, obeying
from moedsl.solver.order import FIRST_BLOCK, GROWTH, GUESSED, LARGEST_CHUNK, in_turns, most_divided_first, share_of
from moedsl.solver.question import Answer, Question
from moedsl.solver.space import combinations_of, mesh_table, meshes_of, policy_table
from moedsl.solver.table import Mask, Row, Table, different
from moedsl.solver.top_k import Floats, TopK, any_of, ignoring, least
from moedsl.support import limits

FIRST_CHUNK = 2048
"""Expanded rows in the first chunk."""
BATCH = 16_384
"""Rows of which memory is bounded at a time, each with another policy: of a small table, many policies at once."""
SPREAD = 12
"""Meshes for each row of the first chunk in a large space, where more meshes have a bound below the best row."""
SEVERAL, SEVERAL_ROWS = 4, 1024
"""The least policies and rows for which one bound of all policies refuses most rows before each is priced."""
FEW = 16_384
"""Combinations of meshes and policies that are all priced: their bounds would take longer than their prices."""
MOST_VALUES = 64
"""Combinations of the policies that a wish reads besides the mesh, of which the best bounds the wish."""
MOST_KEPT = 0.5
"""The largest share of weights for which only their meshes are enumerated, not all."""
LEAST_TIME = "least_time"
"""The column of meshes whose least seconds are known."""
POLICIES = frozenset(HELD + MOVED)


@frozen
class Solution:
    """The best rows in order, each of a different mesh, with the numbers of legal meshes and of priced rows."""

    rows: tuple[Row, ...]
    legal: int
    priced: int
    search: Search | None = field(default=None, eq=False, repr=False)
    """The search that found them; it answers more questions about the same space."""


@frozen
class Search:
    """A search of one space; `run` returns the best `keep` meshes."""

    c: Compiled
    prices: Prices
    keep: int
    like: Search | None = field(default=None, eq=False, repr=False)
    """A search of the same space under other laws on prices; its tables are used again."""
    near: Search | None = field(default=None, eq=False, repr=False)
    """A search under the same laws; its meshes or its policies are used again if their domains are equal."""

    @cached_property
    def legal(self) -> Table:
        """Every mesh that obeys the laws on meshes."""
        other = self.like or self._with_same(MESH)
        return mesh_table(self.c) if other is None else other.legal

    @cached_property
    def policies(self) -> Table:
        """Every combination of policies that obeys the laws on policies."""
        other = self.like or self._with_same(HELD + MOVED)
        return policy_table(self.c, HELD + MOVED) if other is None else other.policies

    def _with_same(self, names: Iterable[str]) -> Search | None:
        """The search nearby, if its domains of some axes are those of this one."""
        if self.near is None or self.near.c.laws is not self.c.laws:
            return None
        mine, its = self.c.problem.domains, self.near.c.problem.domains
        return self.near if all(np.array_equal(mine[n], its[n]) for n in names) else None

    @cached_property
    def able(self) -> Table:
        """The legal meshes whose ranks may hold their weights and optimizer state; if most do, all of them."""
        if self._same is not None:
            return self._same.able
        weights, held = self._weights
        few = np.count_nonzero(held) <= MOST_KEPT * len(held)
        return meshes_of(self.c, weights.take(held)) if few else self.legal

    @property
    def could_hold(self) -> bool:
        """Whether a rank of some mesh may hold its weights, gradients and optimizer state; false is certain."""
        return bool(self._weights[1].any())

    @cached_property
    def _weights(self) -> tuple[Table, Mask]:
        return screen.weights(self.c, self.prices, self._frugal) if self._same is None else self._same._weights

    @property
    def _same(self) -> Search | None:
        """A search of the same space under the same laws."""
        return self.like if self.like is not None and self.like.c.laws is self.c.laws else None

    @property
    def _screened(self) -> bool:
        """Whether it is known which meshes can hold their weights: this search or one like it has looked."""
        return "_weights" in vars(self) or (self._same is not None and self._same._screened)

    @cached_property
    def _settled(self) -> dict[str, int]:
        """The policies that have one value in the whole space."""
        return {n: int(v[0]) for n, v in self.policies.axes.items() if len(v) and (v == v[0]).all()}

    @cached_property
    def _meshes(self) -> Table:
        """The legal meshes to search; if the rank reads the memory, with their least memory as its bound."""
        meshes = self.able if self._screened else self.legal
        if not meshes.rows or not any("peak_memory" in law.needs for law, _ in self._laws()):
            return meshes
        timed = None if self.like is None else self.like._timed
        known = {LEAST_TIME: timed._seconds} if timed is not None and meshes is self.legal else {}
        return self._could_fit(meshes.with_columns(**known), "peak_memory")

    @cached_property
    def _seconds(self) -> NDArray[np.floating[Any]]:
        """The least seconds of each mesh to search with any policy; 0 if nothing reads them."""
        if not self._reads_time:
            return np.zeros(self._meshes.rows)
        timed = self._timed
        return timed._seconds if timed is not None and self._meshes is self.legal else self._least_time(self._meshes)

    @property
    def _timed(self) -> Search | None:
        """Of this search and those like it, the first that has computed the least seconds of all legal meshes."""
        earlier = None if self.like is None else self.like._timed
        mine = "_seconds" in vars(self) and self._reads_time and self._meshes is self.legal
        return earlier or (self if mine else None)

    @cached_property
    def _reads_time(self) -> bool:
        """Whether a law or the ranking reads the time of a step."""
        return any(w.needs & SECONDS for w in (*self.c.laws, *self.c.wishes, *self.c.ranks))

    @property
    def least_seconds(self) -> float:
        """A lower bound of a step's seconds in any legal layout, whether it fits or not."""
        timed = self if self._reads_time and self._meshes is self.legal else self._timed
        seconds = self._least_time(self.legal) if timed is None else timed._seconds
        return float(seconds.min())

    @cached_property
    def _in_time(self) -> Mask:
        """A mask of the meshes to search whose least seconds obey the limits of the step time."""
        return self._within_time(self._time_limits, self._meshes, self._seconds * (1 - SLACK))

    @property
    def could_be_fast(self) -> bool:
        """Whether the least seconds of some legal mesh obey the limits of the step time; false is certain."""
        if not self._time_limits or self._timed is not None:
            return bool(self.legal.rows) and bool(self._in_time.any())
        return any(self._some_in_time(meshes_of(self.c, part)) for part in self._worked)

    def _some_in_time(self, meshes: Table) -> bool:
        if not meshes.rows:
            return False
        seconds = self._least_time(meshes) * (1 - SLACK)
        return bool(self._within_time(self._time_limits, meshes, seconds).any())

    @property
    def could_work(self) -> bool:
        """Whether the work of some mesh obeys the limits of the step time, whatever its VPP; false is certain."""
        return not self._time_limits or self._timed is not None or bool(self._worked)

    @cached_property
    def _time_limits(self) -> list[Law]:
        return [law for law in self.c.laws if TIME in law.bounded]

    @cached_property
    def _worked(self) -> list[Table]:
        return screen.in_time(self.c, self.prices, self.fastest(HELD + MOVED), self._time_limits)

    def could_fit(self) -> bool:
        """Whether some legal mesh fits in memory with the policies that use the least; false is certain."""
        return self._some_fit(self.able, most_divided_first(self.able))

    @property
    def seems_full(self) -> bool:
        """Whether the space is large, and of some of its meshes not even the most divided fit in memory."""
        if self.legal.rows <= FIRST_BLOCK:
            return False
        some = np.arange(0, self.legal.rows, self.legal.rows // FIRST_BLOCK)
        return not self._some_fit(self.legal, [some[np.argsort(share_of(self.legal.take(some)))[:GUESSED]]])

    def _some_fit(self, meshes: Table, parts: Iterable[NDArray[np.intp]]) -> bool:
        """Whether one of some meshes at some positions fits in memory with the policies that use the least, in any
        time."""
        in_any_time = evolve(self.c, laws=tuple(w for w in self.c.laws if TIME not in w.bounded))
        space, policies = Search(in_any_time, self.prices, 1, self), self._frugal
        return any(space._capped(meshes.take(at), policies, ()).rows for at in parts)

    def run(self) -> Solution:
        """Find the best rows of different meshes, best first."""
        best = TopK(self.keep)
        priced = self.fill([best])
        self._found.extend(best.rows[:1])
        return Solution(tuple(best.rows), self.legal.rows, priced, self)

    def fill(self, queries: Sequence[TopK]) -> int:
        """Find the best rows for several questions in one pass; returns the number of priced rows."""
        able = [k.question.rows(self.policies, POLICIES) for k in queries]
        queries = [k for k, mask in zip(queries, able, strict=True) if mask.any()]
        if not queries or not self.legal.rows:
            return 0
        policies = self.policies.take(any_of(able))
        few = self.legal.rows * policies.rows <= FEW
        priced = self._all(policies, queries) if few else self._best(policies, queries)
        self._complete(queries)
        return priced

    def _all(self, policies: Table, queries: Sequence[TopK]) -> int:
        """Add the best row of each mesh to the top k, without a bound; returns the number of priced rows."""
        meshes = self._allowed(self.legal, self._between(MESH, self._settled))
        return self._add(self._held(meshes, policies), policies, queries) if meshes.rows else 0

    def _best(self, policies: Table, queries: Sequence[TopK]) -> int:
        """Add the best row of each mesh that can enter a top k; returns the number of priced rows."""
        if not self._meshes.rows:
            return 0
        bounds = self._bounds_from(self._seconds, self._meshes, policies)
        return sum(
            self._expand(self._meshes.take(at), policies, queries)
            for at in self._promising(self._meshes, bounds, policies, queries)
        )

    def _complete(self, queries: Sequence[TopK]) -> None:
        """Price for the rows that are kept what did not choose them."""
        names = [n for n in self.c.memory_prices if n not in self.c.memory_read]
        rows = {id(row): row for k in queries for row in k.rows if any(math.isnan(row.prices[n]) for n in names)}
        if not rows:
            return
        priced = memory_prices(self.prices, names, self.c.table([row.codes for row in rows.values()]))
        for i, (at, row) in enumerate(rows.items()):
            more = {n: float(column[i]) for n, column in priced.items()}
            rows[at] = evolve(row, prices={**row.prices, **more})
        for k in queries:
            k.rows[:] = [rows.get(id(row), row) for row in k.rows]

    def answers(self, questions: Sequence[Question]) -> list[Answer]:
        """Find the best row for each question; questions about the same policies share one pass."""
        wishes = {w.rule.id: i for i, w in enumerate(self.c.wishes)}
        queries = [TopK(1, q, ignored=wishes.get(q.dropped or "")) for q in questions]
        groups: dict[bytes, list[TopK]] = {}
        for k in queries:
            groups.setdefault(k.question.rows(self.policies, POLICIES).tobytes(), []).append(k)
        for group in groups.values():
            self._recall(group)
            self.fill(group)
            self._found.extend(k.rows[0] for k in group if k.rows)
        return [self._answer(k) for k in queries]

    @cached_property
    def _found(self) -> list[Row]:
        """Rows of earlier answers: none is the best for another question, but a bound of it."""
        return []

    def _recall(self, queries: Sequence[TopK]) -> None:
        """Start from the rows of earlier answers."""
        if self._found:
            known = self.c.table([{**row.codes, **row.prices} for row in self._found])
            self._offer(self._scored(known.with_columns(mesh=np.arange(known.rows))), queries)

    def _answer(self, k: TopK) -> Answer:
        mine, policies = k.question.rows(self.legal, frozenset(MESH)), k.question.rows(self.policies, POLICIES)
        legal = int(mine.sum())
        if k.rows or not legal or not policies.any():
            return Answer(k.rows[0] if k.rows else None, legal, np.inf)
        seen = {n: different(column[policies]) for n, column in self.policies.axes.items()}
        problem = evolve(self.c.problem, domains={**self.c.problem.domains, **seen})
        lean = Search(evolve(self.c, problem=problem), self.prices, 1)
        left = lean._most_frugal(self.c.spare, self.legal.take(mine), lean._frugal)
        return Answer(None, legal, self.c.problem.program.hardware.shown - float(left.max()))

    def _promising(
        self, meshes: Table, bounds: Floats, policies: Table, queries: Sequence[TopK]
    ) -> Iterator[NDArray[np.intp]]:
        """Positions of meshes that could fit, by their bounds and in growing chunks, until none can enter a top k.

        The top k improve between chunks, so the memory of most meshes of a large space is never bounded.
        """
        able = [k.question.rows(meshes, frozenset(MESH)) & self._in_time for k in queries]
        sharp = bounds.copy() if len(queries) > 1 else bounds

        def open_(at: NDArray[np.intp]) -> NDArray[np.bool_]:
            """A mask (questions, meshes): whether a mesh could have a better row for a question."""
            return np.array([mask[at] & k.room(sharp[:, at]) for k, mask in zip(queries, able, strict=True)])

        share = np.full(len(queries), max(FIRST_CHUNK, meshes.rows // SPREAD) / policies.rows / len(queries))
        for block in in_turns(bounds, queries, able):
            left = block[open_(block).any(axis=0)]
            left = self._fitting(meshes, left) if len(left) else left
            if len(left):
                self._sharpen_spare(sharp, meshes, left)
            if len(queries) > 1 and len(left):
                self._sharpen(sharp, meshes, left, policies)
            while (mine := open_(left)).any():
                asks = mine.any(axis=1)
                share = np.minimum(share, LARGEST_CHUNK / policies.rows / asks.sum())
                now = (mine & (np.cumsum(mine, axis=1) <= np.maximum(1, share)[:, np.newaxis])).any(axis=0)
                yield left[now]
                left = left[mine.any(axis=0) & ~now]
                share = np.where(asks, share * GROWTH, share)

    def _sharpen(self, bounds: Floats, meshes: Table, at: NDArray[np.intp], policies: Table) -> None:
        """Raise the bounds of some meshes to the least seconds under the laws on single policies."""
        table = meshes.take(at)
        seconds = least_seconds(self.c, self.prices, table, policies) * (1 - SLACK)
        ideal = table.assume(step_time=seconds, score=seconds)
        for i, (law, _) in enumerate(self._laws()):
            if law.is_price and not law.needs & {*MEMORY}:
                bounds[i, at] = _number(law.value(ideal), len(at), False)

    def _sharpen_spare(self, bounds: Floats, meshes: Table, at: NDArray[np.intp]) -> None:
        """Raise the bounds of some meshes for wishes of spare memory, whose bound is not known for all meshes."""
        for i, (law, negate) in enumerate(self._laws()):
            if negate and (read := law.needs & SPARES.keys()):
                table = meshes.take(at).assume(step_time=self._seconds[at] * (1 - SLACK))
                spare = {n: self._most_frugal(n, table, self._frugal) for n in read}
                bounds[i, at] = np.maximum(bounds[i, at], self._missed(law, table.with_columns(**spare)))

    def _fitting(self, meshes: Table, at: NDArray[np.intp]) -> NDArray[np.intp]:
        """Filter positions of meshes by the bounds of memory and time."""
        known = {"mesh": np.arange(len(at)), LEAST_TIME: self._seconds[at]}
        return at[self._could_fit(meshes.take(at).with_columns(**known)).axes["mesh"]]

    def _could_fit(self, meshes: Table, *prices: str) -> Table:
        """The meshes that the laws allow with the settled policies, and that fit with those that use the least memory;
        bounds of `prices` become columns."""
        return self._capped(self._allowed(meshes, self._between(MESH, self._settled)), self._frugal, prices)

    def _capped(self, table: Table, policies: Policies, prices: Iterable[str]) -> Table:
        """The rows whose bounds of memory with any of some policies, and of time, obey the laws that cap them: what is
        known first, then the limits that the run states."""
        limits.go_on()
        bounded = {name for law in self.c.laws for name in law.bounded}
        stated = {name for law in self.c.laws if not law.rule.is_std for name in law.bounded} - {TIME}
        joint = any({TIME} < law.bounded for law in self.c.laws)  # then the seconds are a part of each other bound
        known = {TIME} if joint or LEAST_TIME in table.axes else set[str]()
        for name in sorted(bounded, key=lambda name: (name not in known, name not in stated, name)):
            caps = [law for law in self.c.laws if name in law.bounded]
            if not table.rows:
                break
            if name == TIME:
                seconds = (self._least_times if HELD[0] in table.axes else self._least_time)(table)
                table = table.with_columns(**{LEAST_TIME: seconds}) if joint else table
                table = table.take(self._within_time(caps, table, seconds * (1 - SLACK)))
            else:
                table = table.take(self._within_caps(caps, name, table, policies))
        return table.with_columns(**{n: self._most_frugal(n, table, policies) for n in prices})

    def _within_caps(self, caps: Sequence[Law], price: str, table: Table, policies: Policies) -> Mask:
        """A mask of the rows that obey laws on a price of memory with any of some policies."""
        kept = np.zeros(table.rows, dtype=bool)
        for may, group in by_meshes(self.c, table, policies):
            left = np.flatnonzero(may & ~kept)
            if len(group) >= SEVERAL and len(left) >= SEVERAL_ROWS:
                rest = table.take(left)
                left = left[self._could_obey(caps, rest, price, self._memory_price(price, rest, group))]
            for some in _batches(group, len(left)):
                rest = table.take(left)
                good = self._could_obey(caps, rest, price, self._best_with(price, rest, some))
                kept[left[good]] = True
                left = left[~good]
                if not len(left):
                    break
        return kept

    def _within_time(self, laws: Sequence[Law], table: Table, seconds: NDArray[np.floating[Any]]) -> Mask:
        """A mask of the rows of at least so many seconds that could obey some laws: if they refuse a row for too few
        seconds, by the most that it could take too."""
        keep = self._could_obey(laws, table, TIME, seconds)
        if not self._could_obey(laws, table, TIME, seconds, seconds)[keep].all():
            some = table.take(keep)
            keep[keep] = self._could_obey(laws, some, TIME, seconds[keep], self._most_score(some) * (1 + SLACK) + SLACK)
        return keep

    def _could_obey(
        self, laws: Iterable[Law], table: Table, price: str, bound: NDArray[np.floating[Any]], most: Column = np.inf
    ) -> Mask:
        """A mask of the rows that could obey some laws, by a bound of one price, and the seconds as far as known."""
        known = {TIME: table.axes[LEAST_TIME] * (1 - SLACK)} if LEAST_TIME in table.axes else {}
        return could_obey(self.c.problem, laws, table, {**known, price: bound}, self._required, most)

    @cached_property
    def _required(self) -> list[str]:
        """The cases in which a layout must fit."""
        return required(self.c)

    def _most_frugal(self, price: str, table: Table, policies: Policies) -> Floats:
        """The least peak, or the most spare memory, of each row with any of some policies that it may have."""
        least = price == "peak_memory"
        best, out = np.minimum if least else np.maximum, np.full(table.rows, np.inf if least else -np.inf)
        for may, group in by_meshes(self.c, table, policies):
            at = np.flatnonzero(may)
            for some in _batches(group, len(at)):
                out[at] = best(out[at], self._best_with(price, table.take(at), some))
        return out

    def _best_with(self, price: str, table: Table, policies: Policies) -> Floats:
        """The least peak, or the most spare memory, of each row with any of a batch of policies."""
        best = np.minimum if price == "peak_memory" else np.maximum
        return best.reduce(self._priced_with(price, table, policies), axis=1)

    def _priced_with(self, price: str, table: Table, policies: Policies) -> NDArray[np.floating[Any]]:
        """A price of memory of each row, by policy."""
        if not table.rows:
            return np.empty((0, len(policies)))
        columns = {n: np.array([some[n] for some in policies]) for n in policies[0]}
        rows = table.assume(**policies[0]) if len(policies) == 1 else table.times(columns)
        return self._memory_price(price, rows).reshape(table.rows, len(policies))

    def _memory_price(self, price: str, rows: Table, policies: Policies = ()) -> NDArray[np.floating[Any]]:
        """A price of memory of each row with the best dispatcher; with some policies, a bound of it with any."""
        if price == "peak_memory":
            return self.prices.memory(rows, policies=policies)
        dispatchers = self.c.problem.domains["dispatcher"].tolist()
        return self.prices.spare(rows, SPARES[price], dispatchers, policies)

    def _least_time(self, meshes: Table) -> NDArray[np.floating[Any]]:
        """The least seconds of each mesh with any policy."""
        if LEAST_TIME in meshes.axes:
            return np.asarray(meshes.axes[LEAST_TIME])
        priced = (self.prices.time(meshes.assume(**values)) for values in self.fastest(HELD + MOVED))
        return functools.reduce(np.minimum, priced)

    def _most_score(self, table: Table) -> NDArray[np.floating[Any]]:
        """The most seconds of each row with any policy that it leaves open, with all advice not followed."""
        names = MOVED if HELD[0] in table.axes else HELD + MOVED
        each = (self.prices.time(table.assume(**some)) for some in slowest(self.c.problem.domains, names))
        return functools.reduce(np.maximum, each) * math.prod(1 + (law.rule.worth) for law in self.c.advice)

    def least_peak(self, meshes: Table) -> float:
        """The least memory of some legal meshes with the policies that should use the least; infinite if none may have
        them."""
        columns = self.policies.axes
        mine = any_of([np.logical_and.reduce([columns[n] == v for n, v in some.items()]) for some in self._frugal])
        lean = self.policies.take(np.flatnonzero(mine)[: BATCH // meshes.rows])
        rows = self._moved(self._held(meshes, lean), lean)
        return float(rows["peak_memory"].min()) if rows.rows else np.inf

    @cached_property
    def _frugal(self) -> Policies:
        """Policies that can use the least memory."""
        return frugal(self.c, self.policies) if self.policies.rows else []

    def fastest(self, names: Sequence[str]) -> Iterable[dict[str, int]]:
        """Values of some policies that can be the fastest; for graphs, the strongest set."""
        d = self.c.problem.domains
        graph = max((int(v) for v in d["cuda_graph"]), key=graph_strength)
        return ({**some, "cuda_graph": graph} for some in extremes(d, "least_time", names, but="cuda_graph"))

    def _bounds(self, meshes: Table, policies: Table) -> Floats:
        """Lower bounds of the keys: a row for each key, a column for each mesh."""
        return self._bounds_from(self._least_time(meshes), meshes, policies)

    def _bounds_from(self, time: NDArray[np.floating[Any]], meshes: Table, policies: Table) -> Floats:
        """`_bounds` with known least times."""
        return self._least_keys(meshes, frozenset(MESH), time, policies)

    def _least_keys(
        self, table: Table, known: frozenset[str], time: NDArray[np.floating[Any]], policies: Table
    ) -> Floats:
        """Lower bounds of the keys for a table with the axes `known` whose rows take at least `time`."""
        ideal = table.assume(step_time=time, score=time)
        keys = [self._bound(law, negate, ideal, known, policies) for law, negate in self._laws()]
        return np.array(keys).reshape(len(keys), table.rows)

    def _laws(self) -> list[tuple[Law, bool]]:
        """The ranking: the user's preferences first (1 if violated), then the keys of the phase."""
        return [(w, True) for w in self.c.wishes] + [(k, False) for k in self.c.ranks]

    def _bound(self, law: Law, negate: bool, ideal: Table, known: frozenset[str], policies: Table) -> Floats:
        rows = ideal.rows
        if law.needs <= known:
            return _number(law.value(ideal), rows, negate)
        if law.needs.isdisjoint(MESH) and not law.priced:
            return np.full(rows, _number(law.value(policies), policies.rows, negate).min())
        if law.is_price and not law.needs & SPARES.keys():
            return _number(law.value(ideal), rows, False)
        if not law.priced and (free := policies.distinct(law.needs - known)).rows <= MOST_VALUES:
            return np.minimum.reduce([_number(law.value(ideal.assume(**some)), rows, negate) for some in free.each()])
        return self._missed(law, ideal) if negate else np.full(rows, -np.inf)

    def _missed(self, wish: Law, ideal: Table) -> Floats:
        """1 where a row cannot follow a wish, by the bounds of prices among its columns."""
        bounds = {n: ideal[n] for n in (TIME, *MEMORY) if n in ideal}
        return np.where(could_obey(self.c.problem, [wish], ideal, bounds), 0.0, 1.0)

    def _expand(self, part: Table, policies: Table, queries: Sequence[TopK]) -> int:
        """Add the best row of each mesh of a chunk to the top k; returns the number of priced rows."""
        held = self._held(part, policies)
        if "peak_memory" in part.axes:  # the rank reads it
            held = self._could_enter(self._could_hold(held, "peak_memory"), policies, queries)
        else:
            held = self._could_hold(self._could_enter(held, policies, queries))
        return self._add(held, policies, queries)

    def _add(self, held: Table, policies: Table, queries: Sequence[TopK]) -> int:
        """Price the rows of `_held` with every other policy and add the best of each mesh to the top k."""
        if not held.rows:
            return 0
        table = self._moved(held, policies, self._slowest(queries), queries)
        asked = [k.question.law for k in queries if k.question.law is not None]
        table = self._within_memory(table, [n for n in memory_of(asked) if n not in self.c.memory_read], [])
        if not table.rows:
            return 0
        self._offer(table, queries)
        return table.rows

    def _offer(self, table: Table, queries: Sequence[TopK]) -> None:
        """Add the best row of each mesh to the top k."""
        worth = {law.rule.id for law in self.c.advice if law.rule.worth}
        each = dict.fromkeys(k.question.dropped for k in queries)
        factors = {} if worth.isdisjoint(each) else self._factors(table)
        for dropped in each:
            others = [factor for id, factor in factors.items() if id != dropped]
            scored = _times(table, others) if dropped in worth else table
            self._keep(scored, [k for k in queries if k.question.dropped == dropped])

    def _keep(self, table: Table, queries: Sequence[TopK]) -> None:
        """Add the best row of each mesh to the top k of questions that drop the same advice."""
        keys = ignoring(self._keys(table), queries[0].ignored)
        columns = [*keys, *(table.axes[a.name] for a in axes.AXES)]
        for k in queries:
            mine = np.flatnonzero(k.question.rows(table))
            if k.size == 1:
                k.add([self._row(table, keys, int(i)) for i in least(columns, mine)])
                continue
            mine = mine[np.lexsort([column[mine] for column in reversed(columns)])]
            _, first = np.unique(table.axes["mesh"][mine], return_index=True)
            k.add([self._row(table, keys, int(i)) for i in mine[np.sort(first)][: k.size]])

    def _held(self, part: Table, policies: Table) -> Table:
        """Combine meshes with every policy of memory that the laws allow; `mesh` is the position of the mesh."""
        held = part.with_columns(mesh=np.arange(part.rows)).times(combinations_of(policies, HELD))
        return self._allowed(held, self._between((*MESH, *self._settled), HELD))

    def _moved(self, held: Table, policies: Table, slowest: float = np.inf, queries: Sequence[TopK] = ()) -> Table:
        """Combine the rows of `_held` with every other policy, and price those that obey all laws in time."""
        table = held.times(combinations_of(policies, MOVED))
        table = obeying(table, self._between((*MESH, *HELD, *self._settled), MOVED))
        if queries:
            table = table.take(any_of([k.question.others(table) for k in queries]))
        return self._priced(table, slowest)

    def _slowest(self, queries: Sequence[TopK]) -> float:
        """Seconds above which no row can enter a top k, if the first key is the time or the score."""
        for law, negate in self._laws()[:1]:
            if not negate and law.is_price and law.needs <= SECONDS:
                return max(np.inf if k.worst is None else k.worst[0] for k in queries)
        return np.inf

    def _could_hold(self, table: Table, *prices: str) -> Table:
        """The rows that fit with the least memory for communication and graphs; bounds of `prices` become columns."""
        return self._capped(table, frugal_moves(self.c.problem.domains), prices)

    def _could_enter(self, held: Table, policies: Table, queries: Sequence[TopK]) -> Table:
        """The rows that could enter a top k with some policy of communication or launches."""
        known = frozenset(MESH + HELD)
        masks = [k.question.rows(held, known) for k in queries]
        if held.rows and any(k.worst is not None for k in queries):
            bounds = self._least_keys(held, known, self._least_times(held) * (1 - SLACK), policies)
            masks = [mask & k.room(bounds) for k, mask in zip(queries, masks, strict=True)]
        return held.take(any_of(masks))

    def _least_times(self, held: Table) -> NDArray[np.floating[Any]]:
        """The least seconds of each row with any policy of communication or launches."""
        return functools.reduce(np.minimum, (self.prices.time(held.assume(**some)) for some in self.fastest(MOVED)))

    def _allowed(self, table: Table, laws: Iterable[Law]) -> Table:
        """The rows that obey some laws with the settled policies."""
        return table.take(obeyed(laws, table.assume(**self._settled)))

    def _between(self, bound: Collection[str], grown: Collection[str]) -> list[Law]:
        """The laws that rows may break after growing by axes of which every value obeys the laws on them alone."""
        laws = [w for w in self.c.laws if not w.priced and w.needs <= {*bound, *grown}]
        return [w for w in laws if not w.needs <= {*bound} and not w.needs <= {*grown}]

    def _priced(self, table: Table, slowest: float = np.inf) -> Table:
        """Price rows by what rules read, and keep those that obey the laws on prices; first what refuses most: a step
        that is too long, else the memory."""
        laws = [w for w in self.c.laws if w.priced]
        by_memory = [w for w in laws if not w.needs & SECONDS]
        judged = [n for n in self.c.memory_read if any(n in w.needs for w in by_memory)]
        if np.isfinite(slowest):
            table = self._within_memory(self._in_seconds(table, slowest), judged, by_memory)
        else:
            table = self._in_seconds(self._within_memory(table, judged, by_memory), slowest)
        table = self._within_memory(table, [n for n in self.c.memory_read if n not in judged], [])
        if not table.rows:
            return table
        return obeying(self._scored(table), [w for w in laws if w.needs & SECONDS])

    def _in_seconds(self, table: Table, slowest: float) -> Table:
        """Add the step time to the rows, and keep those that take at most so long."""
        if not table.rows:
            return table
        time = self.prices.time(table)
        keep = np.isfinite(time) & (time <= slowest)
        return table.take(keep).with_columns(step_time=time[keep])

    def _within_memory(self, table: Table, names: Iterable[str], laws: Iterable[Law]) -> Table:
        """Add prices of memory to the rows, and keep those that obey some laws on them."""
        if not table.rows:
            return table
        return obeying(table.with_columns(**memory_prices(self.prices, names, table)), laws)

    def _scored(self, table: Table) -> Table:
        return _times(table, self._factors(table).values())

    def _factors(self, table: Table) -> dict[str, Column]:
        """The factor on the step time for each advice, by its id: above 1 where it is not followed."""
        worth = (law for law in self.c.advice if law.rule.worth)
        return {law.rule.id: np.where(law.holds(table), 1.0, 1.0 + law.rule.worth) for law in worth}

    def _keys(self, table: Table) -> Floats:
        keys = [_number(law.value(table), table.rows, negate) for law, negate in self._laws()]
        return np.array(keys).reshape(len(keys), table.rows)

    def _row(self, table: Table, keys: Floats, i: int) -> Row:
        codes = {a.name: int(table.axes[a.name][i]) for a in axes.AXES}
        prices = {n: float(table.axes[n][i]) if n in table.axes else math.nan for n in COSTS}
        return Row(codes, prices, keys=(*(float(k) for k in keys[:, i]), *codes.values()))


def memory_prices(prices: Prices, names: Iterable[str], table: Table) -> dict[str, NDArray[np.floating[Any]]]:
    """Prices of memory by name: the peak, or what remains in a case."""
    return {n: prices.memory(table) if n == "peak_memory" else prices.spare(table, SPARES[n]) for n in names}


def _times(table: Table, factors: Iterable[Column]) -> Table:
    """Score the rows: their step time with some factors of advice."""
    return table.with_columns(score=table["step_time"] * math.prod(factors))


def _batches(policies: Policies, rows: int) -> Iterator[Policies]:
    """Some policies at a time, so that with each of some rows they are not many rows to price."""
    size = max(1, BATCH // max(1, rows))
    return (policies[at : at + size] for at in range(0, len(policies), size))


def _number(value: Column, rows: int, negate: bool) -> Floats:
    out = np.broadcast_to(np.asarray(value, dtype=np.float64), (rows,))
    return 1.0 - out if negate else out
