"""Answer yes-or-no questions about a problem without ranking its layouts.

- Does any layout obey every law, prices included? The search stops at the first one (`fits`, `layouts`).
- Which laws does a fully pinned run break? The row evaluator answers, without search or prices (`violations`).
- What is the next number of GPUs on which a layout fits? (`next_that_fits`)
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
from attrs import evolve

from moedsl.facts.machines import gpu_counts as counts
from moedsl.rules.check.program import Program
from moedsl.rules.rule import Rule
from moedsl.solver.bounded_space import LEAST_TIME
from moedsl.solver.conflicts import legal_on
from moedsl.solver.intervals import may_satisfy
from moedsl.solver.laws import SECONDS, TIME, Compiled, Table, reads_price, time_limits
from moedsl.solver.problem import Problem, facts, lower, pinned_row
from moedsl.solver.search import Search
from moedsl.solver.solve import Chosen, environment, make_cost, of_same_space, solve
from moedsl.solver.space import LARGEST_CHUNK, Prices, most_divided_first

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
    return search.legal.rows if (legal or legal_on(c.compiled)) and search.found() else 0


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
        """Whether any layout obeys every law; in each part of the meshes, those with the least memory are tried
        first."""
        meshes, policies = self.legal, self.policies
        if not meshes.rows or not policies.rows:
            return False
        if any(TIME in law.bounded for law in self.c.laws):
            meshes = meshes.with_columns(**{LEAST_TIME: self._times})
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


MOST_TIMES = 64
"""Maximum multiple of the GPUs to try."""
GAIN = 2.0
"""Maximum speed-up of a GPU in a run on more GPUs, whose number may divide better."""


def next_that_fits(c: Chosen) -> Chosen | None:
    """Return the problem on the next number of GPUs with a layout that fits, up to MOST_TIMES as many; None if there is
    none.

    A layout needs no more memory on more GPUs: if none fits on the largest number with a legal one, no number is tried.
    Otherwise an octave of numbers is skipped if nothing fits on those of its numbers that divide well. If the step time
    is limited, numbers are skipped on which each GPU would have to be more than GAIN times as fast.
    """
    p, gpus = c.problem.program, c.problem.gpus
    numbers = [n for n in counts(p.hardware, above=gpus) if n <= MOST_TIMES * gpus]
    if legal_on(c.compiled):
        if any(TIME in law.bounded for law in c.compiled.laws):
            rate = GAIN * c.cost.tokens_per_second_per_gpu(c.search.least_seconds)
            each = (facts(p, n) for n in numbers)
            with np.errstate(divide="ignore"):  # a layout that takes forever
                numbers = [x.gpus for x in each if fast_enough(x, x.global_batch * x.values["seq"] / (x.gpus * rate))]
        more = (solve(p, n, keep=0) for n in reversed(numbers))
        largest = next((x for x in more if legal_on(x.compiled)), None)
        if largest is None:
            return None
        in_any_time = tuple(w for w in largest.compiled.laws if TIME not in w.bounded)
        if not _Any(evolve(largest.compiled, laws=in_any_time), largest.cost).found():
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
