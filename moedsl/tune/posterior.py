"""Estimate steps from what was measured: the constants of the machine, and what no constant explains, move with it.

The log of a step is that of the estimate, plus the slopes of the constants times how far they are off, plus how far
the machine is off, plus what only this layout has. All are normal: the constants with the covariance of their fit
(`moedsl.solver.uncertainty`), the others with the errors of runs left out of a fit. Measured steps are a linear
observation of it, so what is known of any other layout follows exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import field, frozen

from moedsl.cost import Cost
from moedsl.cost.rows import Floats
from moedsl.solver import uncertainty
from moedsl.tune.evidence import Codes, Tried, columns


@frozen
class Known:
    """The logs of the steps of some layouts: what is expected, and how they vary together."""

    log_step: Floats = field(eq=False)
    covariance: Floats = field(eq=False)

    def gain(self, of: int, over: int) -> tuple[float, float]:
        """Return the expected log of how much faster one layout is than another, and its standard deviation."""
        c = self.covariance
        spread = c[of, of] + c[over, over] - 2 * c[of, over]
        return float(self.log_step[over] - self.log_step[of]), float(np.sqrt(max(spread, 0.0)))


def known(cost: Cost, layouts: Sequence[Codes], measured: Sequence[Tried]) -> Known:
    """Return what is known of layouts after some were measured; those with a step count."""
    seen = [t for t in measured if t.step]
    every = [*layouts, *(t.codes for t in seen)]
    cols = columns(every)
    steps = cost.time(cols)
    slopes = uncertainty.leaning(cost, cols, steps)
    _, beyond = uncertainty.known()
    loads = uncertainty.loads(cost, slopes)
    keys = [tuple(sorted(codes.items())) for codes in every]
    same = np.array([[a == b for b in keys] for a in keys])
    prior = loads @ loads.T + beyond.like**2 + same * beyond.between**2 / 2
    n, logs = len(layouts), np.log(steps)
    if not seen:
        return Known(logs[:n], prior[:n, :n])
    noise = np.diag([t.error**2 for t in seen])
    weights = np.linalg.solve(prior[n:, n:] + noise, prior[n:, :n]).T
    off = np.log([t.step or np.nan for t in seen]) - logs[n:]
    return Known(logs[:n] + weights @ off, prior[:n, :n] - weights @ prior[n:, :n])
