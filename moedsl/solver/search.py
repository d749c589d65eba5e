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
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from moedsl.rules.vectorizer import Column
from moedsl.schema import axes
from moedsl.schema.axes import HELD, MESH, MOVED
from moedsl.solver.bounds import Prices, extremes, graph_strength, least_seconds
from moedsl.solver.laws import Compiled, Law, obeying
from moedsl.solver.question import Answer, Question
from moedsl.solver.space import combinations_of, mesh_table, policy_table
from moedsl.solver.table import Mask, Row, Table
from moedsl.solver.top_k import Floats, Kept, any_of, ignoring

FIRST_BLOCK = 2048
"""Meshes that are asked first whether they could fit."""
FIRST_CHUNK, LARGEST_CHUNK = 8192, 120_000
"""Expanded rows in the first chunk, and the most meshes or rows at a time."""
SPREAD = 12
"""Of a large space the first chunk has a row for so many meshes: more of them lie below the best."""
GROWTH, MORE = 4, 2
"""How blocks grow, and each question's share of a chunk."""
POLICIES = frozenset(HELD + MOVED)

FSDP = axes.BY_NAME["sharding"].encode("fsdp")
SLACK = 1e-9
"""Share by which rounding may lift a bound above the price that it bounds."""


@frozen
class Solution:
    """The best rows in order, each of another mesh; how many meshes were legal, and how many rows were priced."""

    rows: tuple[Row, ...]
    legal: int
    priced: int
    search: Search | None = field(default=None, eq=False, repr=False)
    """What found them; it answers more questions about the same space."""


@frozen
class Search:
    """The search of one space. `run` keeps the best `keep` meshes."""

    c: Compiled
    prices: Prices
    keep: int

    @cached_property
    def legal(self) -> Table:
        """Every mesh that obeys the laws on meshes."""
        return mesh_table(self.c)

    @cached_property
    def policies(self) -> Table:
        """Every combination of policies that obeys the laws on policies."""
        return policy_table(self.c, HELD + MOVED)

    @cached_property
    def _meshes(self) -> Table:
        """The legal meshes to search. Where the rank reads the memory, they have their least memory, its bound."""
        by_memory = self.legal.rows and any("peak_memory" in law.needs for law, _ in self._laws())
        return self._could_fit(self.legal) if by_memory else self.legal

    @cached_property
    def _seconds(self) -> NDArray[np.floating[Any]]:
        """Seconds that no policy goes below, by mesh."""
        return self._least_time(self._meshes)

    def run(self) -> Solution:
        """The best rows of different meshes, best first."""
        kept = Kept(self.keep)
        priced = self.fill([kept])
        return Solution(tuple(kept.rows), self.legal.rows, priced, self)

    def fill(self, kept: Sequence[Kept]) -> int:
        """Finds the best rows for several questions in one pass; how many rows were priced."""
        able = [k.question.rows(self.policies, POLICIES) for k in kept]
        asked = [k for k, mask in zip(kept, able, strict=True) if mask.any()]
        if not self._meshes.rows or not asked:
            return 0
        policies = self.policies.take(any_of(able))
        bounds = self._bounds_from(self._seconds, self._meshes, policies)
        return sum(
            self._expand(self._meshes.take(at), policies, asked)
            for at in self._promising(self._meshes, bounds, policies, asked)
        )

    def answers(self, questions: Sequence[Question]) -> list[Answer]:
        """The best row of each question. Questions with the same policies are answered in one pass."""
        wishes = {w.rule.id: i for i, w in enumerate(self.c.wishes)}
        kept = [Kept(1, q, ignored=wishes.get(q.dropped or "")) for q in questions]
        groups: dict[bytes, list[Kept]] = {}
        for k in kept:
            groups.setdefault(k.question.rows(self.policies, POLICIES).tobytes(), []).append(k)
        for group in groups.values():
            self.fill(group)
        return [self._answer(k) for k in kept]

    def _answer(self, k: Kept) -> Answer:
        mine, policies = k.question.rows(self.legal, frozenset(MESH)), k.question.rows(self.policies, POLICIES)
        legal = int(mine.sum())
        if k.rows or not legal or not policies.any():
            return Answer(k.rows[0] if k.rows else None, legal, k.rows[0].peak_memory if k.rows else np.inf)
        seen = {n: np.unique(column[policies]) for n, column in self.policies.axes.items()}
        problem = evolve(self.c.problem, domains={**self.c.problem.domains, **seen})
        lean = Search(evolve(self.c, problem=problem), self.prices, 1)
        return Answer(None, legal, float(lean._least_memory(self.legal.take(mine)).min()))

    def _promising(
        self, meshes: Table, bounds: Floats, policies: Table, kept: Sequence[Kept]
    ) -> Iterator[NDArray[np.intp]]:
        """Positions of the meshes that could fit, by their bounds and in growing chunks, until what is kept, which
        grows between them, has no room for the next. Few of a large space are ever asked for their memory."""
        able = [k.question.rows(meshes, frozenset(MESH)) for k in kept]

        def open_(at: NDArray[np.intp]) -> NDArray[np.bool_]:
            """(questions, meshes): which mesh could bring a better row to which question."""
            return np.array([mask[at] & k.room(bounds[:, at]) for k, mask in zip(kept, able, strict=True)])

        share = max(FIRST_CHUNK, meshes.rows // SPREAD) / policies.rows / len(kept)
        for block in _in_order(bounds):
            if not any(k.room(bounds[:, block[:1]])[0] for k in kept):
                return
            left = block[open_(block).any(axis=0)]
            left = self._fitting(meshes, left) if len(left) else left
            for turn in itertools.count():
                mine = open_(left)
                left, mine = left[mine.any(axis=0)], mine[mine.any(axis=1)][:, mine.any(axis=0)]
                if not len(left):
                    break
                if turn == 1:
                    self._sharpen(bounds, meshes, left, policies)
                    continue
                share = min(share, LARGEST_CHUNK / policies.rows / len(mine))
                now = (mine & (np.cumsum(mine, axis=1) <= max(1, share))).any(axis=0)
                yield left[now]
                left, share = left[~now], share * MORE

    def _sharpen(self, bounds: Floats, meshes: Table, at: NDArray[np.intp], policies: Table) -> None:
        """Raises the bounds of some meshes to the least seconds that the laws on single policies leave them."""
        table = meshes.take(at)
        seconds = least_seconds(self.c, self.prices, table, policies) * (1 - SLACK)
        ideal = table.assume(step_time=seconds, score=seconds)
        for i, (law, _) in enumerate(self._laws()):
            if law.is_price and not law.needs & {"peak_memory", "spare_memory"}:
                bounds[i, at] = _number(law.value(ideal), len(at), False)

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

    def _bounds(self, meshes: Table, policies: Table) -> Floats:
        """A row for each key, a column for each mesh; never above the true key."""
        return self._bounds_from(self._least_time(meshes), meshes, policies)

    def _bounds_from(self, time: NDArray[np.floating[Any]], meshes: Table, policies: Table) -> Floats:
        """`_bounds` where the least times are known."""
        return self._least_keys(meshes, frozenset(MESH), time, policies)

    def _least_keys(
        self, table: Table, known: frozenset[str], time: NDArray[np.floating[Any]], policies: Table
    ) -> Floats:
        """A row for each key, a column for each row of a table that has the axes `known` and takes at least `time`."""
        ideal = table.assume(step_time=time, score=time)
        keys = [self._bound(law, negate, ideal, known, policies) for law, negate in self._laws()]
        return np.array(keys).reshape(len(keys), table.rows)

    def _laws(self) -> list[tuple[Law, bool]]:
        """The user's own preferences first (violated is 1), then the keys of the phase."""
        return [(w, True) for w in self.c.wishes] + [(k, False) for k in self.c.ranks]

    def _bound(self, law: Law, negate: bool, ideal: Table, known: frozenset[str], policies: Table) -> Floats:
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
        for dropped in dict.fromkeys(k.question.dropped for k in kept):
            self._keep(self._without(table, dropped), [k for k in kept if k.question.dropped == dropped])
        return table.rows

    def _keep(self, table: Table, kept: Sequence[Kept]) -> None:
        """Adds the best row of each mesh to what is kept for questions that drop the same advice."""
        keys = ignoring(self._keys(table), kept[0].ignored)
        order = np.lexsort([*[table.axes[a.name] for a in reversed(axes.AXES)], *keys[::-1]])
        for k in kept:
            mine = order[k.question.rows(table)[order]]
            _, first = np.unique(table.axes["mesh"][mine], return_index=True)
            k.add([self._row(table, keys, int(i)) for i in mine[np.sort(first)][: k.size]])

    def _without(self, table: Table, dropped: str | None) -> Table:
        """Rows with the score that they would have if one advice had not been given."""
        if not any(law.rule.id == dropped for law in self.c.advice):
            return table
        return table.with_columns(score=table.axes["step_time"] * self._advice(table, dropped))

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
        return [w for w in self.c.laws if w.is_memory_cap]

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
        laws = [w for w in self.c.laws if not w.priced]
        return obeying(table, [w for w in laws if not w.needs <= done and w.needs])

    def _priced(self, table: Table, slowest: float = np.inf) -> Table:
        """Rows whose prices obey the laws on prices; memory first, since it refuses most."""
        laws = [w for w in self.c.laws if w.priced]
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

    def _advice(self, table: Table, dropped: str | None = None) -> Column:
        """What the advice that is not followed multiplies the step time with."""
        factor: Column = np.ones(table.rows)
        for law in (w for w in self.c.advice if w.rule.id != dropped):
            factor = factor * np.where(law.holds(table), 1.0, 1.0 + law.rule.worth)
        return factor

    def _keys(self, table: Table) -> Floats:
        keys = [_number(law.value(table), table.rows, negate) for law, negate in self._laws()]
        return np.array(keys).reshape(len(keys), table.rows)

    def _row(self, table: Table, keys: Floats, i: int) -> Row:
        codes = {a.name: int(table.axes[a.name][i]) for a in axes.AXES}
        prices = (float(table.axes[n][i]) for n in ("peak_memory", "step_time", "score", "spare_memory"))
        return Row(codes, *prices, keys=(*(float(k) for k in keys[:, i]), *codes.values()))


def _in_order(bounds: Floats) -> Iterator[NDArray[np.intp]]:
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


def _number(value: Column, rows: int, negate: bool) -> Floats:
    out = np.broadcast_to(np.asarray(value, dtype=np.float64), (rows,))
    return 1.0 - out if negate else out
