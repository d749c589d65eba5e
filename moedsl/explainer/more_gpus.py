"""Find the next number of GPUs on which a layout fits, without a search on numbers that cannot have one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from moedsl.checker.program import Program
from moedsl.schema.gpu_counts import counts
from moedsl.solver.fits import could_fit, fast_enough, layouts
from moedsl.solver.laws import TIME
from moedsl.solver.legal import legal_on
from moedsl.solver.problem import facts, lower
from moedsl.solver.several import least_seconds, none_holds
from moedsl.solver.solve import Chosen, solve

MOST_TIMES = 64
"""The largest multiple of the GPUs to try."""
GAIN = 2.0
"""Bound of how much faster a GPU is in a run on more GPUs, whose number may divide better."""
FIRST = 2
"""How many numbers are first looked at together; then twice as many, as long as all of them are refused."""


def next_that_fits(c: Chosen) -> Chosen | None:
    """The problem on the next number of GPUs with a layout that fits, up to MOST_TIMES as many.

    If a layout of `c` is legal but none fits, the largest number is tried first: a layout needs no more memory on more
    GPUs. Under a limit of the step time, numbers are left out on which each GPU would have to be more than GAIN times
    as fast, or no mesh is fast enough.
    """
    p, gpus = c.problem.program, c.problem.gpus
    numbers = [n for n in counts(p.hardware, above=gpus) if n <= MOST_TIMES * gpus]
    legal = legal_on(c.compiled)
    timed = any(TIME in w.bounded for w in c.compiled.laws)
    if timed and numbers:
        numbers = _fast_enough(c, numbers, legal)

    def on(gpus: int) -> Chosen | None:
        more = solve(p, gpus, keep=0)
        return more if not (timed and legal) or more.search.could_be_fast else None

    if legal:
        tried = (more for more in map(on, reversed(numbers)) if more is not None)
        largest = next((more for more in tried if legal_on(more.compiled)), None)
        if largest is None or not could_fit(largest):
            return None
    return next((more for more in map(on, _able(p, numbers)) if more is not None and layouts(more, legal=legal)), None)


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


def _able(p: Program, numbers: Sequence[int]) -> Iterator[int]:
    """The numbers without those first ones on which no rank can hold its weights."""
    some = FIRST
    while some > 1 and numbers:
        if none_holds([lower(p, n) for n in numbers[:some]]):
            numbers, some = numbers[some:], 2 * some
        else:
            some //= 2
    return iter(numbers)
