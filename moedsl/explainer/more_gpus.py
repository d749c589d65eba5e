"""Find the next number of GPUs on which a layout fits, without a search on numbers that cannot have one."""

from __future__ import annotations

import numpy as np

from moedsl.schema.gpu_counts import counts
from moedsl.solver.fits import could_fit, fast_enough, layouts
from moedsl.solver.laws import TIME
from moedsl.solver.legal import legal_on
from moedsl.solver.solve import Chosen, solve

MOST_TIMES = 64
"""The largest multiple of the GPUs to try."""
GAIN = 2.0
"""Bound of how much faster a GPU is in a run on more GPUs, whose number may divide better."""


def next_that_fits(c: Chosen) -> Chosen | None:
    """The problem on the next number of GPUs with a layout that fits, up to MOST_TIMES as many.

    If a layout of `c` is legal but none fits, the largest number is tried first: a layout needs no more memory on more
    GPUs. Under a limit of the step time, numbers are left out on which each GPU would have to be more than GAIN times
    as fast, or no mesh is fast enough.
    """
    p, gpus = c.problem.program, c.problem.gpus
    numbers = [n for n in counts(p.hardware, above=gpus) if n <= MOST_TIMES * gpus]
    legal = legal_on(c.compiled)
    timed = legal and any(w.capped == TIME for w in c.compiled.laws)
    rate = GAIN * float(c.cost.tokens_per_second_per_gpu(c.search.least_seconds)) if timed else np.inf

    def on(gpus: int) -> Chosen | None:
        if timed and not fast_enough(p, gpus, rate):
            return None
        more = solve(p, gpus, keep=0)
        return more if not timed or more.search.could_be_fast else None

    if legal:
        tried = (more for more in map(on, reversed(numbers)) if more is not None)
        largest = next((more for more in tried if legal_on(more.compiled)), None)
        if largest is None or not could_fit(largest):
            return None
    return next((more for more in map(on, numbers) if more is not None and layouts(more)), None)
