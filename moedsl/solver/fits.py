"""Answer yes-or-no questions about a problem without ranking its layouts.

- Does any layout obey every law, prices included? The search stops at the first one (`fits`, `layouts`).
- Which laws does a fully pinned run break? The scalar evaluator tells, without search or prices (`violations`).
- What is the next number of GPUs on which a layout fits? Numbers that cannot have one are not searched
  (`next_that_fits`): `least_seconds` bounds the step on several numbers at once.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from attrs import evolve

from moedsl.facts.axes import BY_NAME, MEMORY_POLICIES, MESH, TRANSPORT_POLICIES
from moedsl.facts.machines import gpu_counts as counts
from moedsl.rules.check.program import Program
from moedsl.rules.rule import Rule
from moedsl.rules.stdlib import RuleId
from moedsl.solver.conflicts import legal_on
from moedsl.solver.intervals import may_satisfy
from moedsl.solver.laws import (
    SECONDS,
    TIME,
    Compiled,
    Floats,
    Law,
    Table,
    closure,
    compile_problem,
    different,
    obeyed,
    reads,
    reads_price,
    time_limits,
)
from moedsl.solver.problem import Problem, facts, lower, pinned_row
from moedsl.solver.search import Search
from moedsl.solver.solve import KERNELS, Chosen, environment, make_cost, of_same_space, solve
from moedsl.solver.space import LARGEST_CHUNK, SLACK, Prices, mesh_table, most_divided_first

GROWTH, FIRST_ROWS = 8, 512
"""Growth factor of the steps in which a part's meshes are expanded, smallest first, and the rows of the first step."""


def fits(p: Program, gpus: int) -> bool:
    """Whether a program has a legal layout that fits on a number of GPUs."""
    return bool(layouts(solve(p, gpus, keep=0)))


def layouts(c: Chosen, like: Search | None = None, legal: bool = False) -> int:
    """Return the number of legal meshes of a compiled problem; 0 if no layout fits.

    `legal` says that some layout is probably legal; otherwise this is checked first.
    """
    search = _Any(c.compiled, c.cost, of_same_space(like, c.compiled, c.cost) or c.search)
    return search.legal.rows if (legal or legal_on(c.compiled)) and search.could_hold and search.found() else 0


def fits_where_legal(c: Compiled, prices: Prices, like: Search) -> bool:
    """Whether a layout fits, in a problem that has a legal one."""
    return _Any(c, prices, of_same_space(like, c, prices)).found()


def fast_enough(problem: Problem, seconds: float) -> bool:
    """Whether a step of `seconds` obeys the limits on the step time."""
    limits, table = time_limits(problem, {"has_layout": lambda pp, vpp: make_cost(problem).has_layout(pp, vpp)})
    return bool(may_satisfy(problem, limits, table, {TIME: seconds}).all())


class _Any(Search):
    """A search that stops at its first row."""

    def found(self) -> bool:
        """Whether any layout obeys every law; in each part of the meshes, those with the least memory come first."""
        if not self.could_be_fast or not self._holding.rows or not self.policies.rows:
            return False
        meshes, policies = self._holding, self.policies
        for part in most_divided_first(meshes):
            some = self._could_fit(meshes.take(part), "peak_memory")
            order = np.argsort(some.axes["peak_memory"], kind="stable")
            at, step = 0, max(1, FIRST_ROWS // policies.rows)
            while at < len(order):
                held = self._held(some.take(order[at : at + step]), policies)
                if self._moved(self._could_hold(held), policies).rows:
                    return True
                at, step = at + step, min(step * GROWTH, max(1, LARGEST_CHUNK // policies.rows))
        return False

    def _priced(self, table: Table, slowest: float = np.inf) -> Table:
        """Price rows, with seconds only if a law limits them."""
        laws = [w for w in self.c.laws if w.priced]
        if any(w.needs & SECONDS for w in laws):
            return super()._priced(table, slowest)
        judged = [n for n in self.c.memory_read if any(n in w.needs for w in laws)]
        return self._within_memory(table, judged, laws)


def violations(program: Program, gpus: int) -> tuple[Rule, ...]:
    """Return the laws that the layout of a fully pinned program breaks, in the order of the rules.

    Laws that the program allows to break are left out, and laws on memory and time, which need prices. Raises
    ValueError if an axis is open.
    """
    problem = lower(program, gpus)
    env = environment(problem, make_cost(problem), pinned_row(problem))
    laws = [r for r in program.of("require") if r.id not in program.allows and not reads_price(r, program.of("let"))]
    return tuple(r for r in laws if not r.holds(env))


DIFFER = frozenset({"gpus", "global_batch"})
"""The facts that may differ between the problems."""
MICROBATCHES = "num_microbatches"


def least_seconds(problems: Sequence[Problem]) -> list[float]:
    """Bounds of a step's seconds for each problem: the work of its microbatches, spread evenly over the GPUs that share
    it, and the bubble of so many stages that each replica has a microbatch, with a VPP that the laws allow for fewer
    microbatches than stages where it has fewer; 0 if nothing bounds it."""
    joined = _joined(problems) if problems else None
    if joined is None or RuleId.BATCH in joined.c.problem.program.allows:  # else microbatches can be fewer
        return [0.0] * len(problems)
    of_pipes = [name for name in MESH if BY_NAME[name].mesh == "pipeline"]
    pipes, meshes = (mesh_table(joined.c, x) for x in (of_pipes, [n for n in MESH if n not in of_pipes]))
    if not pipes.rows or not meshes.rows:
        return [np.inf] * len(problems)
    alone = evolve(joined.prices, gpus=1, global_batch=1)  # one microbatch, on one stage
    each = (
        alone.work(meshes.assume(pp=1, vpp=1, **some)) for some in joined.fastest(MEMORY_POLICIES + TRANSPORT_POLICIES)
    )
    work, idle = functools.reduce(np.minimum, each), _idle(pipes)
    # The pipelines that may have fewer microbatches than stages, by the laws that read nothing else
    laws = [w for w in joined.c.laws if MICROBATCHES in w.rule.reads <= {*pipes.axes, MICROBATCHES}]
    fewer = pipes.times({MICROBATCHES: np.arange(1, max(2, int(pipes.axes["pp"].max())))})
    some = (fewer[MICROBATCHES] < fewer["pp"]) & obeyed(laws, fewer)
    idle_of_few = _idle(pipes.take(some.reshape(pipes.rows, -1).any(axis=1)))
    batches = meshes["tp"] * meshes["cp"] / meshes["micro_batch"]  # of one stage, for a sequence on each GPU

    def least(x: Problem) -> float:
        on_one_stage = batches * (x.global_batch / x.gpus)
        stages = 1 / on_one_stage
        idles = np.where(on_one_stage < 1 - SLACK, idle_of_few(stages), idle(stages))
        least = float(np.min(work * (on_one_stage + idles))) + joined.prices.overhead
        return least * (1 - SLACK) - SLACK  # a price is in whole nanoseconds

    return [least(x) for x in problems]


def _idle(pipes: Table) -> Callable[[Floats], Floats]:
    """The least bubble of a pipeline of at least so many stages, in microbatches; infinite if there is none."""
    each = (1 - 1 / pipes["pp"]) / pipes["vpp"]
    order = np.argsort(pipes["pp"], kind="stable")
    stages, least = pipes["pp"][order], np.minimum.accumulate(each[order][::-1])[::-1]
    ends = np.append(least, np.inf)
    return lambda some: ends[np.searchsorted(stages, some * (1 - SLACK))]


def _joined(problems: Sequence[Problem]) -> Search | None:
    """A space with the meshes of every problem, in which each law is that of any of them; None if more differs. It
    has the most GPUs and the smallest batch, with which a mesh has the fewest microbatches."""
    most = max(problems, key=lambda x: x.gpus)
    p, differ = most.program, {n for n, v in most.codes.items() if any(x.codes[n] != v for x in problems)} | {"gpus"}
    kernels = (r for name in KERNELS for r in p.named("derive", name))
    if not differ <= DIFFER or any(reads(p, r) & differ for r in kernels):
        return None
    domains = {n: different(np.concatenate([x.domains[n] for x in problems])) for n in most.domains}
    cost = evolve(make_cost(most), global_batch=min(x.global_batch for x in problems))
    c = compile_problem(evolve(most, domains=domains), {"has_layout": cost.has_layout})
    facts = [{n: x.codes[n] for n in DIFFER} for x in problems]

    def of_any(law: Law) -> Law:
        """A law that holds where it does with some of the facts."""
        each = lambda table: (law.holds(table.assume(**some)) for some in facts)  # noqa: E731
        return evolve(law, value=lambda table: np.logical_or.reduce([*each(table)]))

    laws = (
        of_any(w) if reads(p, w.rule) & differ else w
        for w in c.laws
        if not (reads(p, w.rule) if w.priced else closure(w.rule.when_reads, p.of("let"))) & differ
    )
    return Search(evolve(c, laws=tuple(laws)), cost)


MOST_TIMES = 64
"""Maximum multiple of the GPUs to try."""
GAIN = 2.0
"""Maximum speed-up of a GPU in a run on more GPUs, whose number may divide better."""


def next_that_fits(c: Chosen) -> Chosen | None:
    """Return the problem on the next number of GPUs with a layout that fits, up to MOST_TIMES as many; None if there is
    none.

    A layout needs no more memory on more GPUs: if none fits on the largest number with a legal one, no number is tried.
    Else an octave of them at a time is left out if none fits on those that divide well. Where the step time is
    limited, numbers are left out on which each GPU would have to be more than GAIN times as fast, or no mesh is fast
    enough.
    """
    p, gpus = c.problem.program, c.problem.gpus
    numbers = [n for n in counts(p.hardware, above=gpus) if n <= MOST_TIMES * gpus]
    timed, legal = any(TIME in law.bounded for law in c.compiled.laws), legal_on(c.compiled)
    if timed and legal:
        rate = GAIN * c.cost.tokens_per_second_per_gpu(c.search.least_seconds)
        each = (facts(p, n) for n in numbers)
        with np.errstate(divide="ignore"):  # a layout that takes forever
            numbers = [x.gpus for x in each if fast_enough(x, x.global_batch * x.values["seq"] / (x.gpus * rate))]
    if timed:
        problems = [lower(p, n) for n in numbers]
        least = least_seconds(problems)
        numbers = [x.gpus for x, seconds in zip(problems, least, strict=True) if fast_enough(x, seconds)]
    if legal:
        more = (solve(p, n, keep=0) for n in reversed(numbers))
        largest = next((x for x in more if legal_on(x.compiled)), None)
        if largest is None or not largest.search.could_fit():
            return None
    octaves = itertools.groupby(numbers, lambda n: math.ceil(n / gpus - 1).bit_length())  # the double is in the first
    found = (_first_of_octave(p, [*octave]) for _, octave in octaves)
    return next((more for more in found if more is not None), None)


def _first_of_octave(p: Program, numbers: Sequence[int]) -> Chosen | None:
    """Return the problem on the first of some numbers of GPUs with a layout that fits.

    Return None if none fits on the largest number or on those that divide well, or, if these have no legal layout, on
    the largest number that has one.
    """
    compiled = functools.cache(lambda n: solve(p, n, keep=0))
    divide_well = {max(numbers, key=lambda n: (n % odd == 0, n & -n, n)) for odd in (1, 3)}
    tried = [n for n in sorted({numbers[-1], *divide_well}, reverse=True) if legal_on(compiled(n).compiled)]
    tried = tried or [next((n for n in reversed(numbers) if legal_on(compiled(n).compiled)), numbers[-1])]
    if not any(layouts(compiled(n)) for n in tried):
        return None
    return next(more for more in map(compiled, numbers) if layouts(more))
