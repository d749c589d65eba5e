"""The meshes and policies of a problem, with bounds on the prices of their layouts.

Each mesh has a lower bound of its rank: its time with the fastest policies, its memory with those that use the least,
and the other keys at their least. Bounds of prices also show which meshes cannot obey the laws on them. No bound is
above the true key.

Two questions are answered without all meshes: which of them can hold their weights (`meshes_that_hold_weights`), and
whether any works fast enough for the limits of the step time (`could_be_fast`).
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from moedsl.facts.axes import MEMORY_POLICIES, MESH, TRANSPORT_POLICIES, WEIGHTS
from moedsl.facts.symbols import MEMORY, SPARES
from moedsl.rules.evaluators import Column
from moedsl.solver.intervals import may_satisfy, required
from moedsl.solver.laws import SECONDS, TIME, Compiled, Floats, Law, Mask, Table, obeyed
from moedsl.solver.space import (
    FIRST_BLOCK,
    GUESSED,
    SLACK,
    Policies,
    Prices,
    by_meshes,
    extremes,
    graph_strength,
    growing,
    least_memory_policies,
    least_memory_transport,
    mesh_table,
    most_divided_first,
    policy_table,
    share_of,
)
from moedsl.support import limits

BATCH = 16_384
"""Rows of which memory is bounded at a time, each with another policy: of a small table, many policies at once."""
OF_ACTIVATIONS = ("recompute", "offload_modules")
"""The policies of memory that do not change what a rank holds at any time of a step."""
SEVERAL, SEVERAL_ROWS = 4, 1024
"""The least policies and rows for which one bound of all policies refuses most rows before each is priced."""
MOST_VALUES = 64
"""Combinations of the policies that a wish reads besides the mesh, of which the best bounds the wish."""
MOST_KEPT = 0.5
"""The largest share of weights for which only their meshes are enumerated, not all."""
LEAST_TIME = "least_time"
"""The column with the minimum seconds of each mesh, if they are known."""


@frozen(slots=False)
class BoundedSpace:
    """The space of a problem, with its prices."""

    c: Compiled
    prices: Prices
    like: BoundedSpace | None = field(default=None, eq=False, repr=False)
    """The same space under other laws on prices; its tables are reused."""
    near: BoundedSpace | None = field(default=None, eq=False, repr=False)
    """A space under the same laws; its meshes or its policies are reused if their domains are equal."""

    @cached_property
    def legal(self) -> Table:
        """Return every mesh that obeys the laws on meshes."""
        other = self.like or self._with_same(MESH)
        return mesh_table(self.c) if other is None else other.legal

    @cached_property
    def policies(self) -> Table:
        """Return every combination of policies that obeys the laws on policies."""
        other = self.like or self._with_same(MEMORY_POLICIES + TRANSPORT_POLICIES)
        return policy_table(self.c, MEMORY_POLICIES + TRANSPORT_POLICIES) if other is None else other.policies

    def _with_same(self, names: Iterable[str]) -> BoundedSpace | None:
        """Return the nearby space if its domains of the named axes equal those of this one; else None."""
        if self.near is None or self.near.c.laws is not self.c.laws:
            return None
        mine, its = self.c.problem.domains, self.near.c.problem.domains
        return self.near if all(np.array_equal(mine[n], its[n]) for n in names) else None

    @cached_property
    def meshes_that_hold_weights(self) -> Table:
        """The legal meshes whose ranks may hold their weights and optimizer state; if most do, all of them."""
        if self._same is not None:
            return self._same.meshes_that_hold_weights
        weights, held = self._weights
        few = np.count_nonzero(held) <= MOST_KEPT * len(held)
        return mesh_table(self.c, some=weights.take(held)) if few else self.legal

    @property
    def _holding(self) -> Table:
        """The meshes that hold their weights, with their least seconds if those of all meshes are known."""
        meshes = self.meshes_that_hold_weights
        return meshes.with_columns(**{LEAST_TIME: self._times}) if self.timed and meshes is self.legal else meshes

    @property
    def could_hold(self) -> bool:
        """Whether a rank of some mesh may hold its weights, gradients and optimizer state; false is certain."""
        return bool(self._weights[1].any())

    @cached_property
    def _weights(self) -> tuple[Table, Mask]:
        """What decides the weights of a rank in every legal mesh, with a mask of the rows that a rank may hold with the
        policies that use the least memory; one row that it may hold if no law limits the memory."""
        if self._same is not None:
            return self._same._weights
        caps = [law for law in self.c.laws if law.bounded - {TIME}]
        if not caps:
            return self.c.empty(), np.ones(1, dtype=bool)
        table, shown = mesh_table(self.c, WEIGHTS), self.c.problem.program.hardware.shown
        kept, names = np.zeros(table.rows, dtype=bool), [n for n in MEMORY_POLICIES if n not in OF_ACTIVATIONS]
        policies = {tuple(some[n] for n in names): {n: some[n] for n in names} for some in self._frugal}
        for may, group in by_meshes(self.c, table, [*policies.values()]):
            for some in group:
                held = self.prices.held(table.assume(**some))
                bounds = {"peak_memory": held, **dict.fromkeys(SPARES, shown - held)}
                kept |= may & may_satisfy(self.c.problem, caps, table, bounds, self._required)
        return table, kept

    @property
    def _screened(self) -> bool:
        """Whether this search, or one like it, has already tested which meshes hold their weights."""
        return "_weights" in vars(self) or (self._same is not None and self._same._screened)

    @property
    def _same(self) -> BoundedSpace | None:
        """A search of the same space under the same laws."""
        return self.like if self.like is not None and self.like.c.laws is self.c.laws else None

    @cached_property
    def _settled(self) -> dict[str, int]:
        """Return the policies that have one value in the whole space."""
        return {n: int(v[0]) for n, v in self.policies.axes.items() if len(v) and (v == v[0]).all()}

    @cached_property
    def _meshes(self) -> Table:
        """Return the legal meshes to search; if the rank reads memory, only those that could fit, with their minimum
        peak as a column."""
        if not self.legal.rows or not any("peak_memory" in law.needs for law, _ in self._laws()):
            return self.meshes_that_hold_weights if self._screened else self.legal
        return self._could_fit(self._holding, "peak_memory")

    @cached_property
    def _seconds(self) -> NDArray[np.floating[Any]]:
        """The least seconds of each mesh to search with any policy; 0 if nothing reads them."""
        if not any(w.needs & SECONDS for w in (*self.c.laws, *self.c.wishes, *self.c.ranks)):
            return np.zeros(self._meshes.rows)
        return self._times if self._meshes is self.legal else self._least_time(self._meshes)

    @cached_property
    def _times(self) -> NDArray[np.floating[Any]]:
        """Return the minimum seconds of each legal mesh, over all policies."""
        return self._least_time(self.legal) if self.like is None else self.like._times

    @property
    def least_seconds(self) -> float:
        """Return a lower bound of the step time of any legal layout, whether it fits or not."""
        return float(self._times.min())

    @property
    def timed(self) -> bool:
        """Whether the least seconds of all legal meshes are known already."""
        return "_times" in vars(self) or (self.like is not None and self.like.timed)

    @property
    def could_be_fast(self) -> bool:
        """Whether the least seconds of some legal mesh obey the limits of the step time; false is certain. True where
        the seconds of all meshes are known already.

        The meshes are first judged without VPP, by the work of their microbatches; those with the least are timed
        first.
        """
        if not self._time_limits or self.timed:
            return True
        table = mesh_table(self.c, [name for name in MESH if name != "vpp"])
        if not table.rows:
            return False
        most = table.assume(vpp=int(self.c.problem.domains["vpp"].max()))
        each = (self.prices.work(most.assume(**some)) for some in self.fastest(MEMORY_POLICIES + TRANSPORT_POLICIES))
        seconds = functools.reduce(np.minimum, each)
        least = (seconds + self.prices.overhead) * (1 - SLACK) - SLACK  # a price is in whole nanoseconds
        left = np.flatnonzero(self._could_obey(self._time_limits, table, TIME, least))
        for at in growing(left[np.argsort(seconds[left], kind="stable")]):
            meshes = mesh_table(self.c, some=table.take(at))
            if meshes.rows:
                least = self._least_time(meshes) * (1 - SLACK)
                if self._could_obey(self._time_limits, meshes, TIME, least).any():
                    return True
        return False

    @cached_property
    def _time_limits(self) -> list[Law]:
        return [law for law in self.c.laws if TIME in law.bounded]

    def could_fit(self) -> bool:
        """Whether some legal mesh fits in memory with the policies that use the least; false is certain."""
        return self._some_fit(self.meshes_that_hold_weights, most_divided_first(self.meshes_that_hold_weights))

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
        space = BoundedSpace(in_any_time, self.prices, self)
        return any(space._capped(meshes.take(at), self._frugal, ()).rows for at in parts)

    def _could_fit(self, meshes: Table, *prices: str) -> Table:
        """Return the meshes that obey the laws with the settled policies, and fit with the policies that use the least
        memory; bounds of `prices` become columns."""
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
                seconds = (self._least_times if MEMORY_POLICIES[0] in table.axes else self._least_time)(table)
                table = table.with_columns(**{LEAST_TIME: seconds}) if joint else table
                table = table.take(self._could_obey(caps, table, TIME, seconds * (1 - SLACK)))
            else:
                table = table.take(self._within_caps(caps, name, table, policies))
        return table.with_columns(**{n: self._most_frugal(n, table, policies) for n in prices})

    def _within_caps(self, caps: Sequence[Law], price: str, table: Table, policies: Policies) -> Mask:
        """Return a mask of the rows that obey the laws `caps` on a memory price with any of the policies."""
        kept = np.zeros(table.rows, dtype=bool)
        for may, group in by_meshes(self.c, table, policies):
            left = np.flatnonzero(may & ~kept)
            screened = "sharding" in group[0]  # the bound over several policies is one with FSDP, and one without
            if screened and len(group) >= SEVERAL and len(left) >= SEVERAL_ROWS:
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

    def _could_obey(self, laws: Iterable[Law], table: Table, price: str, bound: NDArray[np.floating[Any]]) -> Mask:
        """Return a mask of the rows that could obey some laws, by a bound of one price and, if known, of the
        seconds."""
        known = {TIME: table.axes[LEAST_TIME] * (1 - SLACK)} if LEAST_TIME in table.axes else {}
        return may_satisfy(self.c.problem, laws, table, {**known, price: bound}, self._required)

    @cached_property
    def _required(self) -> list[str]:
        """Return the cases of the memory estimate in which a layout must fit."""
        return required(self.c)

    def _most_frugal(self, price: str, table: Table, policies: Policies) -> Floats:
        """Return the minimum peak, or the maximum spare memory, of each row with any of the policies that it
        may have."""
        least = price == "peak_memory"
        best, out = np.minimum if least else np.maximum, np.full(table.rows, np.inf if least else -np.inf)
        for may, group in by_meshes(self.c, table, policies):
            at = np.flatnonzero(may)
            for some in _batches(group, len(at)):
                out[at] = best(out[at], self._best_with(price, table.take(at), some))
        return out

    def _best_with(self, price: str, table: Table, policies: Policies) -> NDArray[np.floating[Any]]:
        """Return the minimum peak, or the maximum spare memory, of each row with any of a batch of policies and the
        best dispatcher."""
        if not table.rows:
            return np.empty(0)
        each = {n: np.array([some[n] for some in policies]) for n in policies[0]}
        rows = table.assume(**policies[0]) if len(policies) == 1 else table.times(each)
        best = np.minimum if price == "peak_memory" else np.maximum
        return best.reduce(self._memory_price(price, rows).reshape(table.rows, len(policies)), axis=1)

    def _memory_price(self, price: str, rows: Table, policies: Policies = ()) -> NDArray[np.floating[Any]]:
        """A price of memory of each row with the best dispatcher; with some policies, a bound of it with any."""
        if price == "peak_memory":
            return self.prices.memory(rows, policies=policies)
        dispatchers = self.c.problem.domains["dispatcher"].tolist()
        return self.prices.spare(rows, SPARES[price], dispatchers, policies)

    def _least_time(self, meshes: Table) -> NDArray[np.floating[Any]]:
        """Return the minimum seconds of each mesh, over all policies."""
        if LEAST_TIME in meshes.axes:
            return np.asarray(meshes.axes[LEAST_TIME])
        priced = (
            self.prices.time(meshes.assume(**values)) for values in self.fastest(MEMORY_POLICIES + TRANSPORT_POLICIES)
        )
        return functools.reduce(np.minimum, priced)

    @cached_property
    def _frugal(self) -> Policies:
        """Return the policies that can use the least memory."""
        return least_memory_policies(self.c, self.policies) if self.policies.rows else []

    def fastest(self, names: Sequence[str]) -> Iterable[dict[str, int]]:
        """Return the values of some policies that can be the fastest; for graphs, the strongest set."""
        d = self.c.problem.domains
        graph = max((int(v) for v in d["cuda_graph"]), key=graph_strength)
        return ({**some, "cuda_graph": graph} for some in extremes(d, "least_time", names, but="cuda_graph"))

    def _least_keys(
        self, table: Table, known: frozenset[str], time: NDArray[np.floating[Any]], policies: Table
    ) -> Floats:
        """Return lower bounds of the ranking keys, (keys, rows), for a table with the axes `known` whose rows take at
        least `time`."""
        ideal = table.assume(step_time=time, score=time)
        keys = [self._bound(law, negate, ideal, known, policies) for law, negate in self._laws()]
        return np.array(keys).reshape(len(keys), table.rows)

    def _laws(self) -> list[tuple[Law, bool]]:
        """Return the ranking: the user's preferences first (1 if violated), then the keys of the phase."""
        return [(w, True) for w in self.c.wishes] + [(k, False) for k in self.c.ranks]

    def _bound(self, law: Law, negate: bool, ideal: Table, known: frozenset[str], policies: Table) -> Floats:
        rows = ideal.rows
        if law.needs <= known:
            return number(law.value(ideal), rows, negate)
        if law.needs.isdisjoint(MESH) and not law.priced:
            return np.full(rows, number(law.value(policies), policies.rows, negate).min())
        if law.is_price and not law.needs & SPARES.keys():
            return number(law.value(ideal), rows, False)
        if not law.priced and (free := policies.distinct(law.needs - known)).rows <= MOST_VALUES:
            return np.minimum.reduce([number(law.value(ideal.assume(**some)), rows, negate) for some in free.each()])
        return self._missed(law, ideal) if negate else np.full(rows, -np.inf)

    def _missed(self, wish: Law, ideal: Table) -> Floats:
        """Return 1 where a row cannot follow a wish, by the bounds of prices among its columns, else 0."""
        bounds = {n: ideal[n] for n in (TIME, *MEMORY) if n in ideal}
        return np.where(may_satisfy(self.c.problem, [wish], ideal, bounds), 0.0, 1.0)

    def _could_hold(self, table: Table, *prices: str) -> Table:
        """Return the rows that fit with the policies of communication and graphs that use the least memory; bounds of
        `prices` become columns."""
        return self._capped(table, least_memory_transport(self.c.problem.domains), prices)

    def _least_times(self, held: Table) -> NDArray[np.floating[Any]]:
        """Return the minimum seconds of each row, over all policies of communication and launches."""
        return functools.reduce(
            np.minimum, (self.prices.time(held.assume(**some)) for some in self.fastest(TRANSPORT_POLICIES))
        )

    def _allowed(self, table: Table, laws: Iterable[Law]) -> Table:
        """Return the rows that obey some laws with the settled policies."""
        return table.take(obeyed(laws, table.assume(**self._settled)))

    def _between(self, bound: Collection[str], grown: Collection[str]) -> list[Law]:
        """Return the laws to check after rows with the axes `bound` grow by the axes `grown`: laws that read some of
        both."""
        laws = [w for w in self.c.laws if not w.priced and w.needs <= {*bound, *grown}]
        return [w for w in laws if not w.needs <= {*bound} and not w.needs <= {*grown}]


def _batches(policies: Policies, rows: int) -> Iterator[Policies]:
    """Yield the policies in batches, small enough to price each of `rows` rows with a whole batch."""
    size = max(1, BATCH // max(1, rows))
    return (policies[at : at + size] for at in range(0, len(policies), size))


def memory_prices(prices: Prices, names: Iterable[str], table: Table) -> dict[str, NDArray[np.floating[Any]]]:
    """Return prices of memory by name: the peak, or the spare memory in a case."""
    return {n: prices.memory(table) if n == "peak_memory" else prices.spare(table, SPARES[n]) for n in names}


def number(value: Column, rows: int, negate: bool) -> Floats:
    """Return a value as a column; with `negate`, 1 where a condition does not hold, else 0."""
    out = np.broadcast_to(np.asarray(value, dtype=np.float64), (rows,))
    return 1.0 - out if negate else out
