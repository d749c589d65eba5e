"""The trade-offs of a run: memory against speed on its GPUs, GPUs against time at its batch, and GPUs against length.

The Pareto front of memory and speed is exact: it has every layout that no other one beats in both. A mesh (and then a
mesh with its memory policies) is skipped only if a known layout has no more memory and less time than its lower bounds.
For GPUs against time, the fewest GPUs that work are doubled, up to 64 times as many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from moedsl.facts import axes
from moedsl.facts.axes import pairs
from moedsl.facts.machines import MOST_GPUS
from moedsl.facts.machines import gpu_counts as counts
from moedsl.facts.units import GIB
from moedsl.lang.printer import print_expr
from moedsl.planner.plan import Behind, FrontPoint, GpusPoint, GpusTime, MemoryTime, Pareto, Plan, Standing
from moedsl.queries.layouts import Budget, budget_note, cost, figures_table, priced, shared, speed
from moedsl.rules.check.program import Program
from moedsl.solver.laws import Row, Table
from moedsl.solver.problem import cases
from moedsl.solver.search import Search
from moedsl.solver.solve import Chosen, plan_for, solve
from moedsl.solver.space import LARGEST_CHUNK, SLACK
from moedsl.support.json_form import ABSENT, JsonForm
from moedsl.support.text import short, tokens, wrapped

Progress = Callable[[str], None]


def pareto(chosen: Chosen, budget: Budget | None = None, progress: Progress = lambda _: None) -> Pareto:
    """Find both trade-offs: memory against speed, with the plan's position, and GPUs against time."""
    progress("searching the Pareto front of memory and speed")
    plan, left = chosen.solution.rows[0], chosen.compiled.unfollowed
    points = tuple(
        priced(
            FrontPoint, chosen, row, budget, judged=False, layout=row.layout, changes=row.changes(plan.codes),
            against_advice=left(row), behind=behind(chosen, row) if beats(row, plan) else ABSENT,
        )
        for row in Front(chosen.compiled, chosen.cost).rows()
    )  # fmt: skip
    ahead = tuple(i for i, p in enumerate(points) if p.behind is not ABSENT)
    at = priced(Standing, chosen, plan, budget, on_front=not ahead, beaten_by=ahead, against_advice=left(plan))
    return Pareto(MemoryTime(points, at), scaling(chosen, budget, progress))


def beats(a: Row, b: Row) -> bool:
    """Whether a layout is no worse than another in memory and step time, and better in one of them."""
    mine, theirs = (a.peak_memory, a.step_time), (b.peak_memory, b.step_time)
    return mine != theirs and mine[0] <= theirs[0] and mine[1] <= theirs[1]


def behind(chosen: Chosen, row: Row) -> Behind | None:
    """Return the first ranking key in which a layout differs from the plan.

    A violated wish counts 1, and so does a condition that holds. None if the keys do not decide: they are equal, or
    other runs share the plan's layout, so that it need not be the best by this run's keys.
    """
    if shared(chosen):
        return None
    laws = (*chosen.compiled.wishes, *chosen.compiled.ranks)
    keys = zip(laws, row.keys, chosen.solution.rows[0].keys, strict=False)
    law, value, own = next(((law, a, b) for law, a, b in keys if a != b), (None, 0.0, 0.0))
    return None if law is None or value < own else Behind(law.rule.id, print_expr(law.expr), value, own)


FIRST_CHUNK = 32
"""Number of meshes in the first chunk, which is priced before any mesh is skipped."""
Floats = NDArray[np.floating[Any]]


class Front(Search):
    """A search for the layouts that no other one beats in both memory and step time."""

    def rows(self) -> list[Row]:
        """Return the front, smallest memory first; of layouts equal in both, only the one that ranks highest."""
        found: list[Row] = []
        left = self._could_fit(self.legal, "peak_memory") if self.legal.rows and self.policies.rows else None
        if left is None or not left.rows:
            return found
        left = left.with_columns(least_time=self._least_time(left))
        # Order the meshes so that the smallest, the fastest, and the best by memory x time come first in turn
        memory, time = left["peak_memory"], left["least_time"]
        ranks = [np.argsort(np.argsort(v, kind="stable"), kind="stable") for v in (memory, time, np.log(memory * time))]
        left, size = left.take(np.argsort(np.minimum.reduce(ranks), kind="stable")), FIRST_CHUNK
        while left.rows:  # price growing chunks, and drop meshes that `found` already dominates
            part = left.take(np.arange(min(size, left.rows)))
            held = self._could_hold(self._held(part, self.policies), "peak_memory")
            if held.rows:
                held = _undominated(held, held["peak_memory"], self._least_times(held), found)
            found = _front_of([*found, *self._rows(self._moved(held, self.policies))])
            left = left.take(np.arange(size, max(left.rows, size)))
            left = _undominated(left, left["peak_memory"], left["least_time"], found)
            size = min(size * 2, max(1, LARGEST_CHUNK // self.policies.rows))
        return found

    def _rows(self, table: Table) -> list[Row]:
        """Return the Pareto front of some priced rows."""
        if not table.rows:
            return []
        table = self._within_memory(table, [n for n in self.c.memory_prices if n not in self.c.memory_read], [])
        # Keep the rows that no other one beats in both prices, ties included
        memory, time = table["peak_memory"], table["step_time"]
        order = np.lexsort((time, memory))
        table = table.take(order[time[order] <= np.minimum.accumulate(time[order])])
        keys = self._keys(table)
        return _front_of(self._row(table, keys, i) for i in range(table.rows))


def _front_of(rows: Iterable[Row]) -> list[Row]:
    """Keep one row for each pair of memory and time that no other pair beats, sorted by memory."""
    out: list[Row] = []
    for row in sorted(rows, key=lambda r: (r.peak_memory, r.step_time, r.keys)):
        if not out or row.step_time < out[-1].step_time:
            out.append(row)
    return out


def _undominated(table: Table, memory: Floats, time: Floats, found: list[Row]) -> Table:
    """Keep the rows whose bounds allow a layout that the front `found` does not dominate."""
    if not found or not table.rows:
        return table
    known = np.array([r.peak_memory for r in found])
    fastest = np.array([np.inf, *(r.step_time for r in found)])
    within = np.searchsorted(known, memory * (1 - SLACK), side="right")
    return table.take(fastest[within] >= time * (1 - SLACK))


DOUBLINGS = 6
"""How often the fewest GPUs are doubled."""


def held(chosen: Chosen) -> Program:
    """Fix the GPUs, sequence length and batch of a run, so that it can be compiled on its own."""
    p, c = chosen.problem.program, chosen.problem
    return evolve(
        p, gpus=c.gpus, seq=int(c.values["seq"]), batch=int(c.global_batch), batch_gpus=None, sweep=None, isolate=None,
        workflow=None,
    )  # fmt: skip


def scaling(chosen: Chosen, budget: Budget | None, progress: Progress) -> GpusTime:
    """Find the best layout on each number of GPUs, at the same batch."""
    p, now, must_fit = held(chosen), chosen.problem.gpus, chosen.must_fit
    plan, fastest = chosen.solution.rows[0].codes, float("inf")
    for gpus in counts(p.hardware):
        progress(f"trying {gpus} GPUs")
        start = plan_for(evolve(p, gpus=gpus), gpus, keep=1, must_fit=must_fit)
        if start.solution.rows:
            break
    else:
        return GpusTime(None, (), ())
    fewest, points, without = start.problem.gpus, list[GpusPoint](), list[int]()
    for gpus in numbers_to_try(fewest, now, p.hardware.gpus_per_node):
        progress(f"pricing {gpus} GPUs")
        c = start if gpus == fewest else plan_for(evolve(p, gpus=gpus), gpus, keep=1, must_fit=must_fit)
        if not c.solution.rows:
            without.append(gpus)
            continue
        row = c.solution.rows[0]
        at = {"plan": gpus == now, "on_front": row.step_time < fastest}
        points.append(priced(GpusPoint, c, row, budget, layout=row.layout, changes=row.changes(plan), **at))
        fastest = min(fastest, row.step_time)
    return GpusTime(fewest, tuple(points), tuple(without))


def numbers_to_try(fewest: int, now: int, node: int) -> list[int]:
    """List the fewest GPUs and their doublings, doublings of a node in that range, and the run's own number."""
    most = min(fewest << DOUBLINGS, MOST_GPUS)
    doubled = {n << i for n in (fewest, node) for i in range(MOST_GPUS.bit_length())}
    return sorted(n for n in {*doubled, now} if fewest <= n and (n <= most or n == now))


MOST_POINTS = 12
"""The most points of a Pareto front in a table; JSON has all."""


def pareto_text(p: Plan, trades: Pareto) -> str:
    """Print both trade-offs, each as a table."""
    m, g = trades.memory_time, trades.gpus_time
    listed = thinned(m.points)
    rows: list[tuple[str, ...]] = [("", *speed(m.plan), *cost(m.plan), "changes from the plan")]
    rows += [("o", *speed(f).values(), *cost(f).values(), pairs(f.changes) or "the plan") for f in listed]
    standing = "the plan, on the front"
    if m.plan.beaten_by:
        # name the fastest layout that beats the plan, and the deciding key or the advice that the layout ignores
        fastest = min((m.points[i] for i in m.plan.beaten_by), key=lambda f: f.step_time_s)
        faster, by = 100 * (fastest.step_time_s / m.plan.step_time_s - 1), fastest.behind
        standing = f"the plan; {pairs(fastest.changes)} is {faster:+.1f}% step time"
        left = [short(i) for i in fastest.against_advice if i not in m.plan.against_advice]
        if isinstance(by, Behind) and by.key == "score" and left:
            standing += f", ignoring {', '.join(left)}"
        elif isinstance(by, Behind):
            standing += f", but ranks lower by {short(by.rule)}: `{by.key}` {by.value:.4g} against {by.plan:.4g}"
    rows += [("P", *speed(m.plan).values(), *cost(m.plan).values(), standing)]
    head = f"{p.name}: memory against speed on {p.gpus} {p.hardware}, {len(m.points)} layouts on the Pareto front"
    lines = [head, *figures_table(rows), *budget_note(m.plan)]
    if len(listed) < len(m.points):
        lines.append(f"  {len(listed)} of {len(m.points)} are shown; --json has all")
    if not g.points:
        return "\n".join([*lines, "", f"{p.name}: no number of {p.hardware} is enough for this step\n"])
    step = f"{p.batch.global_batch} sequences of {tokens(p.batch.seq)} a step"
    rows = [("GPUs", *speed(g.points[0]), *cost(g.points[0]), "", "changes from the plan")]
    for f in g.points:
        where = " ".join(["P"] * f.plan + ["slower"] * (not f.on_front)) or "o"
        rows.append((str(f.gpus), *speed(f).values(), *cost(f).values(), where, pairs(f.changes)))
    lines += ["", f"{p.name}: GPUs against time at {step}; {g.fewest} {p.hardware} are the fewest"]
    lines += [*figures_table(rows), *budget_note(g.points[0])]
    lines += [wrapped(f"no layout on {', '.join(map(str, g.without))}")] if g.without else []
    return "\n".join(lines) + "\n"


def thinned(points: Sequence[FrontPoint]) -> list[FrontPoint]:
    """Choose at most `MOST_POINTS` of a Pareto front: both ends, and points at equal steps between them."""
    if len(points) <= MOST_POINTS:
        return list(points)
    return [points[round(i * (len(points) - 1) / (MOST_POINTS - 1))] for i in range(MOST_POINTS)]


LENGTH_AXES = tuple(n for n in axes.LAYOUT if n in axes.BY_NAME)
LENGTHS = 3
"""Number of lengths: the run's own, twice and four times it."""
SHORTEST, LONGEST = 1024, 1 << 24
"""The shortest and longest sequence that are tried, in tokens."""


@frozen
class Length(JsonForm):
    """A sequence length in tokens, and the best layout on the fewest GPUs on which one fits; null if there is none."""

    seq: int
    gpus: int | None
    text: str
    """A sentence such as "at 256k this needs 512 h100"."""
    layout: Mapping[str, int] | None = None
    peak_gib: float | None = None

    @property
    def sizes(self) -> str:
        """The layout and its memory as text."""
        if self.layout is None:
            return ""
        sizes = " ".join(f"{k}={v}" for k, v in self.layout.items() if v > 1) or "no model parallelism"
        return f": {sizes}, {self.peak_gib:.0f} GiB"


@frozen
class Lengths(JsonForm):
    """What each length needs; `holds` is the longest on the run's GPUs (null if it states none or 1K does not fit)."""

    needs: tuple[Length, ...]
    holds: Length | None

    def text(self, name: str) -> str:
        """Print what each length needs and the longest length, for the run called `name`."""
        lines = [f"{name}: sequence lengths and the fewest GPUs that hold them"]
        lines += [f"  {n.text}{n.sizes}" for n in self.needs]
        if n := self.holds:
            lines.append(f"  the longest on {n.gpus} GPUs is {tokens(n.seq)}{n.sizes}")
        return "\n".join(lines)


def lengths(p: Program, gpus: int | None, seq: int, progress: Progress = lambda _: None) -> Lengths:
    """Find the fewest GPUs for `seq`, twice and four times that length, and the longest sequence on the run's GPUs.

    The batch is the run's, if it states one. The search for a longer sequence starts at the shorter one's GPUs."""
    needs = list[Length]()
    for times in range(LENGTHS):
        at = seq << times
        progress(f"searching the fewest GPUs for {tokens(at)}")
        needs.append(fewest(p, at, needs[-1].gpus or 1 if needs else 1))
        if needs[-1].gpus is None:
            break
    return Lengths(tuple(needs), None if gpus is None else longest(p, gpus, seq))


def fewest(p: Program, seq: int, least: int = 1) -> Length:
    """Find the smallest number of GPUs, at least `least`, on which a layout fits."""
    found = (on(p, gpus, seq) for gpus in counts(p.hardware, above=least - 1))
    none = f"at {tokens(seq)} no number of {p.hardware.name} up to {MOST_GPUS} is enough"
    return next((n for n in found if n is not None), Length(seq, None, none))


def longest(p: Program, gpus: int, seq: int) -> Length | None:
    """Find the longest sequence on a number of GPUs by doubling or halving `seq`; None if 1K does not fit."""
    best = on(p, gpus, seq) if solve(p, gpus, keep=1, seq=seq, must_fit=cases(p)[0]).solution.rows else None
    if best is not None:
        while best.seq < LONGEST and (longer := on(p, gpus, best.seq * 2)) is not None:
            best = longer
        return best
    while best is None and (seq := seq // 2) >= SHORTEST:
        best = on(p, gpus, seq)
    return best


def on(p: Program, gpus: int, seq: int) -> Length | None:
    """Find the best layout on a number of GPUs; None if none fits."""
    rows = plan_for(p, gpus, keep=1, seq=seq, must_fit=cases(p)[0]).solution.rows
    if not rows:
        return None
    sizes = {a: rows[0].codes[a] for a in LENGTH_AXES}
    text = f"at {tokens(seq)} this needs {gpus} {p.hardware.name}"
    return Length(seq, gpus, text, sizes, rows[0].peak_memory / GIB)
