"""The search: exact over the whole space, with bounds that spare it most of the pricing.

1. The mesh table grows one axis at a time; each law applies as soon as its axes are bound.
2. Every row gets a lower bound of its rank: prices with the best policies, other keys at their least.
3. Rows that could fit are expanded in the order of their bounds, in chunks that grow, until the next bound cannot beat
   the worst row that is kept: with the policies of memory first, and where those leave a row room, with all others.
   A bound is never above the true key, so nothing better is missed.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from moedsl.rules.vectorizer import Column
from moedsl.schema import axes
from moedsl.schema.axes import HELD, MESH, MOVED
from moedsl.solver.laws import Compiled, Law, obeying
from moedsl.solver.table import Mask, Row, Table
from moedsl.solver.top_k import Kept, any_of

FIRST_BLOCK = 2048
"""Meshes that are asked first whether they could fit."""
FIRST_CHUNK, LARGEST_CHUNK = 8192, 120_000
"""Expanded rows in the first chunk, and the most meshes or rows at a time."""
SPREAD = 12
"""Of a large space the first chunk has a row for so many meshes: more of them lie below the best."""
GROWTH = 4
"""How blocks and chunks grow."""

FSDP = axes.BY_NAME["sharding"].encode("fsdp")
Domains = Mapping[str, NDArray[np.int64]]
Price = Literal["least_memory", "least_time"]
SLACK = 1e-9
"""Share by which rounding may lift a bound above the price that it bounds."""


class Prices(Protocol):
    """What the search asks of a cost model: bytes and seconds for whole columns."""

    def memory(self, cols: Mapping[str, Column]) -> NDArray[np.floating[Any]]: ...

    def spare(self, cols: Mapping[str, Column]) -> NDArray[np.floating[Any]]: ...

    def time(self, cols: Mapping[str, Column]) -> NDArray[np.floating[Any]]: ...


@frozen
class Solution:
    """The best rows in order, each of another mesh; how many meshes were legal, and how many rows were priced."""

    rows: tuple[Row, ...]
    legal: int
    priced: int
    space: Searched | None = field(default=None, eq=False, repr=False)
    """What was searched; None where nothing is legal."""


@frozen
class Searched:
    """What a search went over: the legal meshes, and the seconds that no policy goes below on each."""

    c: Compiled
    meshes: Table
    least_time: NDArray[np.floating[Any]]


def mesh_table(c: Compiled, dropped: frozenset[str] = frozenset()) -> Table:
    """All legal meshes. `dropped` are ids of laws to leave out."""
    table, bound = c.empty(), frozenset[str]()
    pending = [law for law in c.laws if not law.priced and law.rule.id not in dropped]
    for name in MESH:
        table, bound = table.grow(name, np.sort(c.problem.domains[name])), bound | {name}
        ready = [law for law in pending if law.needs <= bound]
        pending = [law for law in pending if law not in ready]
        table = obeying(table, ready)
    return table


def _project(policies: Table, axes_: frozenset[str]) -> Table:
    """The distinct combinations of the policies that matter."""
    names = [n for n in policies.axes if n in axes_] or [HELD[0]]
    if not policies.rows:
        return policies
    _, first = np.unique(np.stack([policies.axes[n] for n in names]), axis=1, return_index=True)
    return policies.take(np.sort(first))


def combinations_of(policies: Table, names: tuple[str, ...]) -> dict[str, NDArray[np.int64]]:
    """The columns of some policies, each combination once."""
    distinct = _project(policies, frozenset(names))
    return {n: distinct.axes[n] for n in names}


def policy_table(c: Compiled, names: tuple[str, ...]) -> Table:
    """Every combination of some policies that no law on policies alone forbids."""
    table = c.empty()
    for name in names:
        table = table.grow(name, c.problem.domains[name])
    return obeying(table, [law for law in c.laws if law.needs and law.needs <= frozenset(names)])


@frozen
class Search:
    """One solve: keeps the best `keep` meshes; `dropped` are ids of laws to leave out."""

    c: Compiled
    prices: Prices
    keep: int
    dropped: frozenset[str] = frozenset()

    def run(self) -> Solution:
        """The best rows of different meshes, best first."""
        meshes = mesh_table(self.c, self.dropped)
        policies = policy_table(self.c, HELD + MOVED)
        if not meshes.rows or not policies.rows:
            return Solution((), meshes.rows, 0)
        legal = meshes.rows
        if any("peak_memory" in law.needs for law, _ in self._laws()):
            meshes = self._could_fit(meshes)  # its least memory is a bound of the rank
        if not meshes.rows:
            return Solution((), legal, 0)
        space = Searched(self.c, meshes, self._least_time(meshes))
        return evolve(self.within(space, policies), legal=legal)

    def within(self, space: Searched, policies: Table) -> Solution:
        """The best rows among the meshes of a space and some policies."""
        kept = Kept(self.keep)
        priced = self._fill(space, policies, [kept])
        return Solution(tuple(kept.rows), space.meshes.rows, priced, space)

    def each(self, space: Searched, kept: Sequence[Kept]) -> None:
        """Fills what is kept for several questions in one pass over a space, which takes as many searches else."""
        policies = policy_table(self.c, HELD + MOVED)
        able = [k.question.rows(policies, frozenset(HELD + MOVED)) for k in kept]
        asked = [k for k, mask in zip(kept, able, strict=True) if mask.any()]
        if space.meshes.rows and asked:
            self._fill(space, policies.take(any_of(able)), asked)

    def _fill(self, space: Searched, policies: Table, kept: Sequence[Kept]) -> int:
        """Finds what is kept, and says how many rows were priced for it."""
        bounds = self._bounds_from(space.least_time, space.meshes, policies)
        return sum(
            self._expand(space.meshes.take(at), policies, kept)
            for at in self._promising(space.meshes, bounds, policies, kept)
        )

    def _promising(
        self, meshes: Table, bounds: NDArray[np.float64], policies: Table, kept: Sequence[Kept]
    ) -> Iterator[NDArray[np.intp]]:
        """Positions of the meshes that could fit, by their bounds and in growing chunks, until what is kept, which
        grows between them, has no room for the next. Few of a large space are ever asked for their memory."""
        able = [k.question.rows(meshes, frozenset(MESH)) for k in kept]

        def open_(at: NDArray[np.intp]) -> NDArray[np.intp]:
            return at[any_of([mask[at] & k.room(bounds[:, at]) for k, mask in zip(kept, able, strict=True)])]

        chunk = max(FIRST_CHUNK, meshes.rows // SPREAD)
        for block in _in_order(bounds):
            if not any(k.room(bounds[:, block[:1]])[0] for k in kept):
                return
            left = open_(block)
            left = self._fitting(meshes, left) if len(left) else left
            while len(left):
                step = max(1, chunk // policies.rows)
                yield left[:step]
                left, chunk = open_(left[step:]), min(chunk * GROWTH, LARGEST_CHUNK)

    def _fitting(self, meshes: Table, at: NDArray[np.intp]) -> NDArray[np.intp]:
        """Of some positions those whose mesh could fit."""
        return at[self._could_fit(meshes.take(at).with_columns(mesh=np.arange(len(at)))).axes["mesh"]]

    # ------------------------------------------------------------ bounds

    def _could_fit(self, meshes: Table) -> Table:
        """The meshes that fit with the policies that hold the least; their least memory becomes a column."""
        least = meshes.with_columns(peak_memory=self._least_memory(meshes))
        least = least.take(np.isfinite(least["peak_memory"]))
        return obeying(least, self._memory_caps())

    def _least_memory(self, meshes: Table) -> NDArray[np.floating[Any]]:
        """Bytes that no policy goes below, by mesh."""
        priced = (self.prices.memory(meshes.assume(**values)) for values in self._frugal())
        return functools.reduce(np.minimum, priced)

    def _least_time(self, meshes: Table) -> NDArray[np.floating[Any]]:
        """Seconds that no policy goes below, by mesh."""
        priced = (self.prices.time(meshes.assume(**values)) for values in self._fastest(HELD + MOVED))
        return functools.reduce(np.minimum, priced)

    def _frugal(self) -> Iterable[dict[str, int]]:
        """Policies with which some rank holds the least: one value where it always does, else every value."""
        for some in extremes(self.c.problem.domains, "least_memory", HELD, but="recompute"):
            for low, recompute in itertools.product(self._frugal_moves(), self._frugal_recompute(some["sharding"])):
                yield {**low, **some, "recompute": int(recompute)}

    def _frugal_recompute(self, sharding: int) -> Iterable[int]:
        """Recomputing whole layers keeps the least, but beside the gradients that FSDP has under way: those take the
        place of the activations that a layer's backward frees."""
        domain, full = self.c.problem.domains["recompute"], axes.BY_NAME["recompute"].encode("full")
        return [full] if full in domain and sharding != FSDP else domain.tolist()

    def _frugal_moves(self) -> list[dict[str, int]]:
        """Where every value captures something, which holds the least depends: attention's masks on the sequence."""
        d = self.c.problem.domains
        graphs = [0] if 0 in d["cuda_graph"] else d["cuda_graph"].tolist()
        moves = extremes(d, "least_memory", MOVED, but="cuda_graph")
        return [{**some, "cuda_graph": graph} for some in moves for graph in graphs]

    def _fastest(self, names: Sequence[str]) -> Iterable[dict[str, int]]:
        """Values of some policies, one of which makes the fastest step; of graphs the strongest set does."""
        d = self.c.problem.domains
        graph = max((int(v) for v in d["cuda_graph"]), key=graph_strength)
        return ({**some, "cuda_graph": graph} for some in extremes(d, "least_time", names, but="cuda_graph"))

    def _bounds(self, meshes: Table, policies: Table) -> NDArray[np.float64]:
        """A row for each key, a column for each mesh; never above the true key."""
        return self._bounds_from(self._least_time(meshes), meshes, policies)

    def _bounds_from(self, time: NDArray[np.floating[Any]], meshes: Table, policies: Table) -> NDArray[np.float64]:
        """`_bounds` where the least times are known."""
        return self._least_keys(meshes, frozenset(MESH), time, policies)

    def _least_keys(
        self, table: Table, known: frozenset[str], time: NDArray[np.floating[Any]], policies: Table
    ) -> NDArray[np.float64]:
        """A row for each key, a column for each row of a table that has the axes `known` and takes at least `time`."""
        ideal = table.assume(step_time=time, score=time)
        keys = [self._bound(law, negate, ideal, known, policies) for law, negate in self._laws()]
        return np.array(keys).reshape(len(keys), table.rows)

    def _laws(self) -> list[tuple[Law, bool]]:
        """The user's own preferences first (violated is 1), then the keys of the phase."""
        return [(w, True) for w in self.c.wishes] + [(k, False) for k in self.c.ranks]

    def _bound(
        self, law: Law, negate: bool, ideal: Table, known: frozenset[str], policies: Table
    ) -> NDArray[np.float64]:
        rows = ideal.rows
        if law.needs <= known:
            return _number(law.value(ideal), rows, negate)
        if law.needs.isdisjoint(MESH) and not law.priced:
            return np.full(rows, _number(law.value(policies), policies.rows, negate).min())
        if law.is_price and "spare_memory" not in law.needs:
            return _number(law.value(ideal), rows, False)
        return np.full(rows, 0.0 if negate else -np.inf)

    # ------------------------------------------------------------ expansion

    def _expand(self, part: Table, policies: Table, kept: Sequence[Kept]) -> int:
        """Keeps the best policy of each mesh of a chunk; how many rows were priced."""
        held = self._could_hold(self._held(part, policies))
        if not held.rows:
            return 0
        table = self._moved(held.take(self._could_enter(held, policies, kept)), policies, self._slowest(kept))
        if not table.rows:
            return 0
        keys = self._keys(table)
        order = np.lexsort([*[table.axes[a.name] for a in reversed(axes.AXES)], *keys[::-1]])
        for k in kept:
            mine = order[k.question.rows(table)[order]]
            _, first = np.unique(table.axes["mesh"][mine], return_index=True)
            k.add([self._row(table, keys, int(i)) for i in mine[np.sort(first)][: k.size]])
        return table.rows

    def _held(self, part: Table, policies: Table) -> Table:
        """Meshes with every policy that decides what is held; `mesh` is the position of their mesh."""
        return part.with_columns(mesh=np.arange(part.rows)).times(combinations_of(policies, HELD))

    def _moved(self, held: Table, policies: Table, slowest: float = np.inf) -> Table:
        """The rows of `_held` with every other policy: those that obey every law and take no longer, priced."""
        return self._priced(self._legal(held.times(combinations_of(policies, MOVED))), slowest)

    def _slowest(self, kept: Sequence[Kept]) -> float:
        """Seconds beyond which no row is kept: where the first key is the time or the score, which is never less."""
        for law, negate in self._laws()[:1]:
            if not negate and law.is_price and law.needs <= {"score", "step_time"}:
                return max(np.inf if k.worst is None else k.worst[0] for k in kept)
        return np.inf

    def _could_hold(self, table: Table) -> Table:
        """The rows that fit with the least that communication and graphs may hold, before those multiply."""
        least = functools.reduce(
            np.minimum, (self.prices.memory(table.assume(**moves)) for moves in self._frugal_moves())
        )
        return obeying(table.with_columns(peak_memory=least), self._memory_caps())

    def _memory_caps(self) -> list[Law]:
        return [w for w in self.c.laws if w.is_memory_cap and w.rule.id not in self.dropped]

    def _could_enter(self, held: Table, policies: Table, kept: Sequence[Kept]) -> Mask:
        """The rows that some policy of communication or launches may bring among those that are kept."""
        known = frozenset(MESH + HELD)
        masks = [k.question.rows(held, known) for k in kept]
        if any(k.worst is not None for k in kept):
            bounds = self._least_keys(held, known, self._least_times(held) * (1 - SLACK), policies)
            masks = [mask & k.room(bounds) for k, mask in zip(kept, masks, strict=True)]
        return any_of(masks)

    def _least_times(self, held: Table) -> NDArray[np.floating[Any]]:
        """Seconds that no policy of communication or launches goes below, by row of what is held."""
        return functools.reduce(np.minimum, (self.prices.time(held.assume(**some)) for some in self._fastest(MOVED)))

    def _legal(self, table: Table) -> Table:
        done = frozenset(MESH)
        laws = [w for w in self.c.laws if not w.priced and w.rule.id not in self.dropped]
        return obeying(table, [w for w in laws if not w.needs <= done and w.needs])

    def _priced(self, table: Table, slowest: float = np.inf) -> Table:
        """Rows whose prices obey the laws on prices; memory first, since it refuses most."""
        laws = [w for w in self.c.laws if w.priced and w.rule.id not in self.dropped]
        by_memory = [w for w in laws if not w.needs & {"step_time", "score"}]
        if not table.rows:
            return table
        table = table.with_columns(peak_memory=self.prices.memory(table))
        if any("spare_memory" in w.needs for w in by_memory):
            table = table.with_columns(spare_memory=self.prices.spare(table))
        table = obeying(table, by_memory)
        if not table.rows:
            return table
        time = self.prices.time(table)
        keep = np.isfinite(time) & (time <= slowest)
        table, time = table.take(keep), time[keep]
        table = table.with_columns(step_time=time, spare_memory=self._spare(table))
        table = table.with_columns(score=time * self._advice(table))
        return obeying(table, [w for w in laws if w not in by_memory])

    def _spare(self, table: Table) -> NDArray[np.floating[Any]]:
        if "spare_memory" in table.axes or not (table.rows and self.c.asks_for_spare):
            return np.asarray(table.axes.get("spare_memory", np.full(table.rows, np.nan)))
        return self.prices.spare(table)

    def _advice(self, table: Table) -> Column:
        """What the advice that is not followed multiplies the step time with."""
        factor: Column = np.ones(table.rows)
        for law in self.c.advice:
            factor = factor * np.where(law.holds(table), 1.0, 1.0 + law.rule.worth)
        return factor

    def _keys(self, table: Table) -> NDArray[np.float64]:
        keys = [_number(law.value(table), table.rows, negate) for law, negate in self._laws()]
        return np.array(keys).reshape(len(keys), table.rows)

    def _row(self, table: Table, keys: NDArray[np.float64], i: int) -> Row:
        codes = {a.name: int(table.axes[a.name][i]) for a in axes.AXES}
        prices = (float(table.axes[n][i]) for n in ("peak_memory", "step_time", "score", "spare_memory"))
        return Row(codes, *prices, keys=(*(float(k) for k in keys[:, i]), *codes.values()))


def _in_order(bounds: NDArray[np.float64]) -> Iterator[NDArray[np.intp]]:
    """Positions by their columns of bounds, in blocks that grow; what no block reaches is never sorted."""
    left, size = np.arange(bounds.shape[1]), FIRST_BLOCK
    while len(left):
        first = bounds[0, left]
        early = first <= np.partition(first, size)[size] if len(left) > size else np.ones(len(left), dtype=bool)
        part, left = left[early], left[~early]
        order = part[np.lexsort(bounds[::-1, part])]
        for at in range(0, len(order), size):
            yield order[at : at + size]
        size = min(size * GROWTH, LARGEST_CHUNK)


def extremes(domains: Domains, price: Price, names: Sequence[str], but: str) -> Iterator[dict[str, int]]:
    """Combinations of some policies' values, one of which is best by a price: the end that the axis names, or every
    value where it names none."""
    chosen = {n: ends(axes.BY_NAME[n], getattr(axes.BY_NAME[n], price), domains[n]) for n in names if n != but}
    return (dict(zip(chosen, values, strict=True)) for values in itertools.product(*chosen.values()))


def ends(axis: axes.Axis, end: str, domain: NDArray[np.int64]) -> list[int]:
    """One end of a domain, or every value; masks have no order, so the low end of a set is none of its words."""
    if end == "low":
        return [axis.off if axis.kind == "set" else int(domain.min())]
    return [int(domain.max())] if end == "high" else [int(v) for v in domain]


def graph_strength(mask: int) -> tuple[bool, int]:
    graphs = axes.BY_NAME["cuda_graph"]
    full = bool(mask & graphs.encode("full_iteration"))
    return full, mask.bit_count()


def _number(value: Column, rows: int, negate: bool) -> NDArray[np.float64]:
    out = np.broadcast_to(np.asarray(value, dtype=np.float64), (rows,))
    return 1.0 - out if negate else out
