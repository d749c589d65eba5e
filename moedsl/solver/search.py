"""Search the whole space exactly; bounds avoid pricing most of it.

Meshes that could fit are expanded in the order of their bounds (`bounded_space`), in growing chunks, until the next
bound cannot beat the worst of the top k. Each mesh is combined with the policies of memory first and then, if a row can
still enter the top k, with all others. A bound is never above the true key, so nothing better is missed.

A search answers many questions about one space in one pass, each with its own best rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from attrs import define, evolve, field, frozen
from numpy.typing import NDArray

from moedsl.facts import axes
from moedsl.facts.axes import MEMORY_POLICIES, MESH, TRANSPORT_POLICIES
from moedsl.facts.symbols import COSTS, MEMORY, SPARES
from moedsl.rules.evaluators import Column
from moedsl.solver.bounded_space import LEAST_TIME, BoundedSpace, memory_prices, number
from moedsl.solver.laws import SECONDS, TIME, Floats, Law, Mask, Row, Table, as_mask, different, memory_of, obeying
from moedsl.solver.space import FIRST_BLOCK, GROWTH, LARGEST_CHUNK, SLACK, combinations_of, least_seconds

FIRST_CHUNK = 2048
"""Rows of the first chunk after expansion."""
SPREAD = 12
"""In a large space, meshes per row of the first chunk: there more meshes have a bound below the best row."""
FEW = 16_384
"""Up to this number of combinations of meshes and policies, all are priced, because bounds would take longer."""
POLICIES = frozenset(MEMORY_POLICIES + TRANSPORT_POLICIES)


@frozen
class Solution:
    """The best rows in order, each of a different mesh, with the numbers of legal meshes and of priced rows."""

    rows: tuple[Row, ...]
    legal: int
    priced: int
    search: Search | None = field(default=None, eq=False, repr=False)
    """The search that found them; it answers more questions about the same space."""


@frozen(slots=False)
class Search(BoundedSpace):
    """A search of one space; `run` returns the best `keep` meshes."""

    keep: int = 1

    def run(self) -> Solution:
        """Find the best rows of different meshes, best first."""
        best = TopK(self.keep)
        priced = self.fill([best])
        self._found.extend(best.rows[:1])
        return Solution(tuple(best.rows), self.legal.rows, priced, self)

    def fill(self, queries: Sequence[TopK]) -> int:
        """Find the best rows for several questions in one pass; return the number of priced rows."""
        able = [k.question.rows(self.policies, POLICIES) for k in queries]
        queries = [k for k, mask in zip(queries, able, strict=True) if mask.any()]
        if not queries or not self.legal.rows:
            return 0
        policies = self.policies.take(any_of(able))
        priced = 0
        if self.legal.rows * policies.rows <= FEW:
            meshes = self._allowed(self.legal, self._between(MESH, self._settled))
            priced = self._add(self._held(meshes, policies), policies, queries) if meshes.rows else 0
        elif self._meshes.rows:
            bounds = self._least_keys(self._meshes, frozenset(MESH), self._seconds, policies)
            chunks = self._promising(self._meshes, bounds, policies, queries)
            priced = sum(self._expand(self._meshes.take(at), policies, queries) for at in chunks)
        self._complete(queries)
        return priced

    def _complete(self, queries: Sequence[TopK]) -> None:
        """Fill in the prices of the kept rows that the ranking did not need."""
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
            # Start from the rows of earlier answers
            if self._found:
                known = self.c.table([{**row.codes, **row.prices} for row in self._found])
                self._offer(self._scored(known.with_columns(mesh=np.arange(known.rows))), group)
            self.fill(group)
            self._found.extend(k.rows[0] for k in group if k.rows)
        out = list[Answer]()
        for k in queries:
            mine, policies = k.question.rows(self.legal, frozenset(MESH)), k.question.rows(self.policies, POLICIES)
            legal, row, least_needed = int(mine.sum()), next(iter(k.rows), None), np.inf
            if row is None and legal and policies.any():
                seen = {n: different(column[policies]) for n, column in self.policies.axes.items()}
                problem = evolve(self.c.problem, domains={**self.c.problem.domains, **seen})
                lean = BoundedSpace(evolve(self.c, problem=problem), self.prices)
                left = lean._most_frugal(self.c.spare, self.legal.take(mine), lean._frugal)
                least_needed = self.c.problem.program.hardware.shown - float(left.max())
            out.append(Answer(row, legal, least_needed))
        return out

    @cached_property
    def _found(self) -> list[Row]:
        """Return the rows of earlier answers: they need not be best for another question, but bound its best row."""
        return []

    def _promising(
        self, meshes: Table, bounds: Floats, policies: Table, queries: Sequence[TopK]
    ) -> Iterator[NDArray[np.intp]]:
        """Yield positions of meshes that could fit, by their bounds and in growing chunks, until none can enter a top
        k.

        The top k improve between chunks, so the memory of most meshes of a large space is never bounded.
        """
        in_time = self._could_obey(self._time_limits, meshes, TIME, self._seconds * (1 - SLACK))
        able = [k.question.rows(meshes, frozenset(MESH)) & in_time for k in queries]
        sharp = bounds.copy() if len(queries) > 1 else bounds

        def open_(at: NDArray[np.intp]) -> NDArray[np.bool_]:
            """Return a mask (questions, meshes) of the meshes that could have a better row for a question."""
            return np.array([mask[at] & k.room(sharp[:, at]) for k, mask in zip(queries, able, strict=True)])

        share = np.full(len(queries), max(FIRST_CHUNK, meshes.rows // SPREAD) / policies.rows / len(queries))
        for block in in_turns(bounds, queries, able):
            left = block[open_(block).any(axis=0)]
            left = self._fitting(left) if len(left) else left
            if len(left):  # sharpen the bounds that are not known for all meshes
                table, seconds = meshes.take(left), self._seconds[left] * (1 - SLACK)
                ideal = table.assume(step_time=seconds)
                if len(queries) > 1:  # to the minimum seconds under the laws on single policies
                    seconds = least_seconds(self.c, self.prices, table, policies) * (1 - SLACK)
                for i, (law, negate) in enumerate(self._laws()):
                    if negate and (read := law.needs & SPARES.keys()):
                        spare = {n: self._most_frugal(n, ideal, self._frugal) for n in read}
                        sharp[i, left] = np.maximum(sharp[i, left], self._missed(law, ideal.with_columns(**spare)))
                    elif len(queries) > 1 and law.is_price and not law.needs & {*MEMORY}:
                        sharp[i, left] = number(
                            law.value(table.assume(step_time=seconds, score=seconds)), len(left), False
                        )
            while (mine := open_(left)).any():
                asks = mine.any(axis=1)
                share = np.minimum(share, LARGEST_CHUNK / policies.rows / asks.sum())
                now = (mine & (np.cumsum(mine, axis=1) <= np.maximum(1, share)[:, np.newaxis])).any(axis=0)
                yield left[now]
                left = left[mine.any(axis=0) & ~now]
                share = np.where(asks, share * GROWTH, share)

    def _fitting(self, at: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the positions of the meshes that could fit, by the bounds of memory and time; each mesh is checked
        once."""
        judged, fits = self._judged
        if len(new := at[~judged[at]]):
            known = {"mesh": new, LEAST_TIME: self._seconds[new]}
            fits[self._could_fit(self._meshes.take(new).with_columns(**known)).axes["mesh"]] = True
            judged[new] = True
        return at[fits[at]]

    @cached_property
    def _judged(self) -> tuple[Mask, Mask]:
        """Return masks of the meshes to search: those that `_fitting` has checked, and those of them that could fit."""
        return np.zeros(self._meshes.rows, dtype=bool), np.zeros(self._meshes.rows, dtype=bool)

    def _expand(self, part: Table, policies: Table, queries: Sequence[TopK]) -> int:
        """Add the best row of each mesh of a chunk to the top k; return the number of priced rows."""

        def could_enter(held: Table) -> Table:
            """Return the rows that could enter a top k with some policy of communication or launches."""
            known = frozenset(MESH + MEMORY_POLICIES)
            masks = [k.question.rows(held, known) for k in queries]
            if held.rows and any(k.worst is not None for k in queries):
                bounds = self._least_keys(held, known, self._least_times(held) * (1 - SLACK), policies)
                masks = [mask & k.room(bounds) for k, mask in zip(queries, masks, strict=True)]
            return held.take(any_of(masks))

        held = self._held(part, policies)
        if "peak_memory" in part.axes:  # the rank reads the memory
            return self._add(could_enter(self._could_hold(held, "peak_memory")), policies, queries)
        return self._add(self._could_hold(could_enter(held)), policies, queries)

    def _add(self, held: Table, policies: Table, queries: Sequence[TopK]) -> int:
        """Price the rows of `_held` with every other policy, and add the best of each mesh to the top k; return the
        number of priced rows."""
        if not held.rows:
            return 0
        slowest = np.inf
        for law, negate in self._laws()[:1]:
            if not negate and law.is_price and law.needs <= SECONDS:  # no row above these seconds can enter a top k
                slowest = max(np.inf if k.worst is None else k.worst[0] for k in queries)
        table = self._moved(held, policies, slowest, queries)
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
            alike = [k for k in queries if k.question.dropped == dropped]
            keys = ignoring(self._keys(scored), alike[0].ignored)
            columns = [*keys, *(scored.axes[a.name] for a in axes.AXES)]
            for k in alike:
                mine = np.flatnonzero(k.question.rows(scored))
                if k.size == 1:
                    k.add([self._row(scored, keys, int(i)) for i in least(columns, mine)])
                    continue
                mine = mine[np.lexsort([column[mine] for column in reversed(columns)])]
                _, first = np.unique(scored.axes["mesh"][mine], return_index=True)
                k.add([self._row(scored, keys, int(i)) for i in mine[np.sort(first)][: k.size]])

    def _held(self, part: Table, policies: Table) -> Table:
        """Combine meshes with every policy of memory that the laws allow; column `mesh` is the position of the mesh."""
        held = part.with_columns(mesh=np.arange(part.rows)).times(combinations_of(policies, MEMORY_POLICIES))
        return self._allowed(held, self._between((*MESH, *self._settled), MEMORY_POLICIES))

    def _moved(self, held: Table, policies: Table, slowest: float = np.inf, queries: Sequence[TopK] = ()) -> Table:
        """Combine the rows of `_held` with every other policy, and price those that obey all laws; keep steps of at
        most `slowest` seconds."""
        table = held.times(combinations_of(policies, TRANSPORT_POLICIES))
        table = obeying(table, self._between((*MESH, *MEMORY_POLICIES, *self._settled), TRANSPORT_POLICIES))
        if queries:
            table = table.take(any_of([k.question.others(table) for k in queries]))
        return self._priced(table, slowest)

    def _priced(self, table: Table, slowest: float = np.inf) -> Table:
        """Add the prices that rules read, and keep the rows that obey the laws on prices.

        The check that refuses most comes first: steps that are too long if `slowest` limits them, else memory.
        """
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
        """Add the step time to the rows, and keep those of at most `slowest` seconds."""
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
        """Return, by id of advice, its factor on the step time: above 1 where it is not followed."""
        worth = (law for law in self.c.advice if law.rule.worth)
        return {law.rule.id: np.where(law.holds(table), 1.0, 1.0 + law.rule.worth) for law in worth}

    def _keys(self, table: Table) -> Floats:
        keys = [number(law.value(table), table.rows, negate) for law, negate in self._laws()]
        return np.array(keys).reshape(len(keys), table.rows)

    def _row(self, table: Table, keys: Floats, i: int) -> Row:
        codes = {a.name: int(table.axes[a.name][i]) for a in axes.AXES}
        prices = {n: float(table.axes[n][i]) if n in table.axes else math.nan for n in COSTS}
        return Row(codes, prices, keys=(*(float(k) for k in keys[:, i]), *codes.values()))


def _times(table: Table, factors: Iterable[Column]) -> Table:
    """Set the score of the rows: their step time times some factors of advice."""
    return table.with_columns(score=table["step_time"] * math.prod(factors))


def in_turns(bounds: Floats, queries: Sequence[TopK], able: Sequence[Mask]) -> Iterator[NDArray[np.intp]]:
    """Yield blocks of positions in the order of their bounds; each question that has room adds its next ones."""
    new, size = np.ones(bounds.shape[1], dtype=bool), max(1, FIRST_BLOCK // len(queries))
    alike: dict[tuple[bytes, int | None], list[TopK]] = {}
    for k, mask in zip(queries, able, strict=True):
        alike.setdefault((mask.tobytes(), k.ignored), []).append(k)

    def order(mask: bytes, ignored: int | None, ks: Sequence[TopK]) -> Iterator[NDArray[np.intp]]:
        """The blocks of some questions, until none has room for the first position of one."""
        blocks = _in_order(ignoring(bounds, ignored), np.frombuffer(mask, dtype=bool), size)
        return itertools.takewhile(lambda at: any(k.room(bounds[:, at[:1]])[0] for k in ks), blocks)

    orders = [order(*key, ks) for key, ks in alike.items()]
    while parts := [at for order in orders for at in itertools.islice(order, 1)]:
        block = different(np.concatenate(parts)) if len(parts) > 1 else parts[0]
        block = block[new[block]]
        new[block] = False
        yield block[np.lexsort(bounds[::-1, block])] if len(parts) > 1 else block


def _in_order(bounds: Floats, mask: Mask, size: int = FIRST_BLOCK) -> Iterator[NDArray[np.intp]]:
    """Yield the positions in a mask, ordered by their bounds, in growing blocks; each block is sorted when it is
    needed."""
    left = np.flatnonzero(mask)
    while len(left):
        first = bounds[0, left]
        early = first <= np.partition(first, size - 1)[size - 1] if len(left) > size else np.ones(len(left), dtype=bool)
        part, left = left[early], left[~early]
        order = part[np.lexsort(bounds[::-1, part])]
        while len(order):
            block, order = order[:size], order[size:]
            yield block
            size = min(size * GROWTH, LARGEST_CHUNK)


@frozen
class Question:
    """Asks for the best layout: `only` fixes axes or lets, `law` must hold, advice `dropped` does not count, and layout
    `but` is excluded."""

    only: Mapping[str, int] = field(factory=dict)
    """Values of axes, or of lets that read only meshes."""
    law: Law | None = None
    dropped: str | None = None
    but: Mapping[str, int] | None = None

    def rows(self, table: Table, known: frozenset[str] | None = None) -> Mask:
        """Return a mask of the rows that may answer the question, as far as the `known` axes decide; None means all
        axes."""
        keep = np.ones(table.rows, dtype=bool)
        for name, value in self.only.items():
            if known is None or known.issuperset({name} if name in axes.BY_NAME else MESH):
                keep &= as_mask(np.equal(table[name], value), table.rows)
        if self.law is not None and (known is None or self.law.needs <= known):
            keep &= self.law.holds(table)
        return keep

    def others(self, table: Table) -> Mask:
        """Return a mask of the rows that are not `but`."""
        if self.but is None:
            return np.ones(table.rows, dtype=bool)
        return np.logical_or.reduce([table.axes[name] != code for name, code in self.but.items()])


@frozen
class Answer:
    """The best row for a question, or None; `legal` counts the meshes that obey the laws except those on prices."""

    row: Row | None
    legal: int
    least_needed: float
    """Minimum bytes that any legal mesh needs in the case of the memory estimate that must fit, if there is no row;
    infinite if there is a row or no legal mesh."""


@define
class TopK:
    """The best `size` rows of different meshes that answer a question, best first."""

    size: int
    question: Question = field(factory=Question)
    limit: tuple[float, ...] | None = None
    """The worst keys that a row may have; None for no limit."""
    rows: list[Row] = field(factory=list)
    ignored: int | None = None
    """The index of the key of the preference that the question drops; None if it drops none."""

    @property
    def worst(self) -> tuple[float, ...] | None:
        """Return the worst keys with which a row can enter; None if every row can."""
        return self.rows[-1].keys if len(self.rows) >= self.size else self.limit

    def room(self, bounds: Floats) -> Mask:
        """Return a mask of the columns of (keys, rows) that could enter: those no worse than the worst row."""
        return at_most(ignoring(bounds, self.ignored), self.worst)

    def add(self, rows: Sequence[Row]) -> None:
        near = [r for r in rows if self.limit is None or r.keys <= self.limit]
        self.rows[:] = sorted([*self.rows, *near], key=lambda r: r.keys)[: self.size]


def any_of(masks: Sequence[Mask]) -> Mask:
    """Join masks: the rows that answer any of the questions."""
    return masks[0] if len(masks) == 1 else np.logical_or.reduce(masks)


def least(columns: Sequence[NDArray[Any]], at: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the position, among `at`, with the smallest values in the first column, then the next ones; empty if `at`
    is. NaN counts as the largest."""
    for column in columns:
        if len(at) < 2:
            break
        values = column[at]
        best = np.fmin.reduce(values)
        at = at[values == best] if best == best else at
    return at[:1]


def ignoring(keys: Floats, key: int | None) -> Floats:
    """Return keys or bounds with one key set to 0 in all columns."""
    if key is None:
        return keys
    out = keys.copy()
    out[key] = 0.0
    return out


def at_most(bounds: Floats, worst: Sequence[float] | None) -> Mask:
    """Return a mask of the columns of (keys, rows) that are no worse than a row's first keys; all if there is
    no row."""
    below, equal = np.zeros(bounds.shape[1], dtype=bool), np.ones(bounds.shape[1], dtype=bool)
    for bound, key in zip(bounds, worst or (), strict=False):
        below |= equal & (bound < key)
        equal &= bound == key
    return below | equal
