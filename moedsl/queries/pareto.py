"""Both trade-offs of a run: memory against speed on its GPUs, and GPUs against time at its batch.

The front of memory and speed is exact: every layout that no other one beats in both. A mesh, and then a mesh with its
policies of memory, is skipped only if a known layout needs no more memory than its lower bound and less time than its
lower bound. GPUs and time compare the fewest GPUs that work with each doubling, up to 64 times as many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from moedsl.facts.machines import MOST_GPUS
from moedsl.facts.machines import gpu_counts as counts
from moedsl.lang.printer import print_expr
from moedsl.planner.plan import Behind, FrontPoint, GpusPoint, GpusTime, MemoryTime, Pareto, Standing
from moedsl.queries.layouts import Budget, priced, shared
from moedsl.rules.check.program import Program
from moedsl.solver.laws import Row, Table
from moedsl.solver.search import Search
from moedsl.solver.solve import Chosen, plan_for
from moedsl.solver.space import LARGEST_CHUNK, SLACK
from moedsl.support.json_form import ABSENT


def pareto(chosen: Chosen, budget: Budget | None = None, progress: Callable[[str], None] = lambda _: None) -> Pareto:
    """Compare memory with speed, with the position of the plan, and GPUs with time."""
    progress("searching the Pareto front of memory and speed")
    points, plan = tuple(_points(chosen, budget)), chosen.solution.rows[0]
    ahead, left = tuple(i for i, p in enumerate(points) if p.behind is not ABSENT), chosen.compiled.unfollowed(plan)
    at = priced(Standing, chosen, plan, budget, on_front=not ahead, beaten_by=ahead, against_advice=left)
    return Pareto(MemoryTime(points, at), scaling(chosen, budget, progress))


def beats(a: Row, b: Row) -> bool:
    """Whether a layout is no worse than another in both prices and better in one."""
    mine, theirs = (a.peak_memory, a.step_time), (b.peak_memory, b.step_time)
    return mine != theirs and mine[0] <= theirs[0] and mine[1] <= theirs[1]


def _points(chosen: Chosen, budget: Budget | None) -> Iterator[FrontPoint]:
    plan, left = chosen.solution.rows[0], chosen.compiled.unfollowed
    for row in front(chosen):
        yield priced(
            FrontPoint, chosen, row, budget, judged=False, layout=row.layout, changes=row.changes(plan.codes),
            against_advice=left(row), behind=behind(chosen, row) if beats(row, plan) else ABSENT,
        )  # fmt: skip


def behind(chosen: Chosen, row: Row) -> Behind | None:
    """The first key in which a layout differs from the plan.

    A violated wish counts 1, and so does a condition that holds. None if the keys do not decide: they are equal, or
    other runs share the plan's layout, which may not be the best by these keys then.
    """
    if shared(chosen):
        return None
    laws = (*chosen.compiled.wishes, *chosen.compiled.ranks)
    keys = zip(laws, row.keys, chosen.solution.rows[0].keys, strict=False)
    law, value, own = next(((law, a, b) for law, a, b in keys if a != b), (None, 0.0, 0.0))
    return None if law is None or value < own else Behind(law.rule.id, print_expr(law.expr), value, own)


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
        # An order that starts with the smallest, the fastest and the best of both in turn
        memory = left["peak_memory"]
        time = left["least_time"]
        ranks = [np.argsort(np.argsort(v, kind="stable"), kind="stable") for v in (memory, time, np.log(memory * time))]
        left = left.take(np.argsort(np.minimum.reduce(ranks), kind="stable"))
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
        # The rows that no other beats in both prices, ties included
        memory = table["peak_memory"]
        time = table["step_time"]
        order = np.lexsort((time, memory))
        table = table.take(order[time[order] <= np.minimum.accumulate(time[order])])
        keys = self._keys(table)
        return _front_of(self._row(table, keys, i) for i in range(table.rows))


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


DOUBLINGS = 6
Progress = Callable[[str], None]


def held(chosen: Chosen) -> Program:
    """State the GPUs, sequence length and batch of a run, so that it compiles alone."""
    p, c = chosen.problem.program, chosen.problem
    return evolve(
        p, gpus=c.gpus, seq=int(c.values["seq"]), batch=int(c.global_batch), batch_gpus=None, sweep=None, isolate=None,
        workflow=None,
    )  # fmt: skip


def scaling(chosen: Chosen, budget: Budget | None, progress: Progress) -> GpusTime:
    """Find the best layouts by GPUs, at the same batch."""
    p, solved = held(chosen), list[Chosen]()
    start = _fewest(p, chosen.must_fit, progress)
    if start is None:
        return GpusTime(None, (), ())
    wanted = numbers(start.problem.gpus, chosen.problem.gpus, p.hardware.gpus_per_node)
    for gpus in wanted:
        progress(f"pricing {gpus} GPUs")
        at = evolve(p, gpus=gpus)
        solved.append(start if gpus == start.problem.gpus else plan_for(at, gpus, keep=1, must_fit=chosen.must_fit))
    without = tuple(c.problem.gpus for c in solved if not c.solution.rows)
    return GpusTime(wanted[0], tuple(_points_by_gpus(chosen, solved, budget)), without)


def numbers(fewest: int, now: int, node: int) -> list[int]:
    """The numbers to try: the fewest and its doublings, doublings of a node in that range, and the run's own number."""
    most = min(fewest << DOUBLINGS, MOST_GPUS)
    doubled = {n << i for n in (fewest, node) for i in range(MOST_GPUS.bit_length())}
    return sorted(n for n in {*doubled, now} if fewest <= n and (n <= most or n == now))


def _fewest(p: Program, must_fit: str, progress: Progress) -> Chosen | None:
    """Solve on the smallest number of GPUs that works with the same step."""
    for gpus in counts(p.hardware):
        progress(f"trying {gpus} GPUs")
        solved = plan_for(evolve(p, gpus=gpus), gpus, keep=1, must_fit=must_fit)
        if solved.solution.rows:
            return solved
    return None


def _points_by_gpus(chosen: Chosen, solved: list[Chosen], budget: Budget | None) -> Iterator[GpusPoint]:
    plan, fastest = chosen.solution.rows[0].codes, float("inf")
    for c in (c for c in solved if c.solution.rows):
        row = c.solution.rows[0]
        at = {"plan": c.problem.gpus == chosen.problem.gpus, "on_front": row.step_time < fastest}
        yield priced(GpusPoint, c, row, budget, layout=row.layout, changes=row.changes(plan), **at)
        fastest = min(fastest, row.step_time)
