"""Find the next number of GPUs on which a layout fits, without a search on numbers that cannot have one."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np

from moedsl.facts.machines import gpu_counts as counts
from moedsl.rules.check.program import Program
from moedsl.solver.fits import fast_enough, layouts
from moedsl.solver.laws import TIME
from moedsl.solver.legal import legal_on
from moedsl.solver.problem import facts, lower
from moedsl.solver.several import least_seconds
from moedsl.solver.solve import Chosen, solve

MOST_TIMES = 64
"""The largest multiple of the GPUs to try."""
GAIN = 2.0
"""Bound of how much faster a GPU is in a run on more GPUs, whose number may divide better."""


def next_that_fits(c: Chosen) -> Chosen | None:
    """The problem on the next number of GPUs with a layout that fits, up to MOST_TIMES as many.

    A layout needs no more memory on more GPUs: if none fits on the largest number with a legal one, no number is tried.
    Else an octave of them at a time is left out if none fits on those that divide well. Where the step time is
    limited, numbers are left out on which each GPU would have to be more than GAIN times as fast, or no mesh is fast
    enough.
    """
    p, gpus = c.problem.program, c.problem.gpus
    numbers = [n for n in counts(p.hardware, above=gpus) if n <= MOST_TIMES * gpus]
    legal = legal_on(c.compiled)
    timed = any(TIME in w.bounded for w in c.compiled.laws)
    if timed and numbers:
        numbers = _fast_enough(c, numbers, legal)
    if legal:
        largest = next(filter(_legal, (solve(p, n, keep=0) for n in reversed(numbers))), None)
        if largest is None or not largest.search.could_fit():
            return None
    found = (_first(p, [*octave]) for _, octave in itertools.groupby(numbers, lambda n: _octave(n, gpus)))
    return next((more for more in found if more is not None), None)


def _octave(n: int, gpus: int) -> int:
    """Which octave above `gpus` a larger number is in; the double is in the first."""
    return math.ceil(n / gpus - 1).bit_length()


def _first(p: Program, numbers: Sequence[int]) -> Chosen | None:
    """The problem on the first of some numbers of GPUs with a layout that fits, if one fits on the largest number or on
    one that divides well; if none of those has a legal layout, on the largest that has one."""
    compiled = functools.cache(lambda n: solve(p, n, keep=0))
    divide_well = {max(numbers, key=lambda n: (n % odd == 0, n & -n, n)) for odd in (1, 3)}
    tried = [n for n in sorted({numbers[-1], *divide_well}, reverse=True) if _legal(compiled(n))]
    tried = tried or [next((n for n in reversed(numbers) if _legal(compiled(n))), numbers[-1])]
    if not any(layouts(compiled(n)) for n in tried):
        return None
    return next(more for more in map(compiled, numbers) if layouts(more))


def _legal(c: Chosen) -> bool:
    return legal_on(c.compiled)


def _fast_enough(c: Chosen, numbers: Sequence[int], legal: bool) -> list[int]:
    """The numbers on which some GPU could be fast enough."""
    p = c.problem.program
    if legal:
        rate = GAIN * c.cost.tokens_per_second_per_gpu(c.search.least_seconds)
        each = (facts(p, n) for n in numbers)
        with np.errstate(divide="ignore"):  # a layout that takes forever
            numbers = [x.gpus for x in each if fast_enough(x, x.global_batch * x.values["seq"] / (x.gpus * rate))]
    problems = [lower(p, n) for n in numbers]
    return [x.gpus for x, least in zip(problems, least_seconds(problems), strict=True) if fast_enough(x, least)]
