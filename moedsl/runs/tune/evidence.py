"""What was tried, and what it tells of other layouts: measured steps move the constants of the machine.

The log of a step is that of the estimate, plus the slopes of the constants times how far they are off, plus how far
the machine is off, plus an error of the layout, which layouts share the less the further they are apart. All are
normal: the constants with the covariance of their fit (`moedsl.solver.uncertainty`), the machine with the interval of
the plan, the layouts with the errors of published runs (`FAR`, `NEAR`). Measured steps are a linear observation of
these, so the posterior of any other layout's step is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from moedsl.cost import Cost
from moedsl.cost.rows import Floats
from moedsl.diagnose.edit import ran_out, refused_gib
from moedsl.diagnose.scan import symptoms
from moedsl.rules.library import Library
from moedsl.runs.results.gather import Given, Numbers, Run, numbers
from moedsl.runs.results.log import read_all
from moedsl.runs.results.measure import FAILED, OK, RATE, UNFINISHED, measure
from moedsl.solver import uncertainty

REFUSED = "refused_gib"
"""The key of a row with the GiB that a run asked for and did not get."""
ERROR = 0.01
"""The error of a run's median, as a log, if it has too few steps to know it."""
Codes = Mapping[str, int]


@frozen
class Tried:
    """One layout: the step that its useful tokens mean, or None if it failed."""

    name: str
    codes: Codes
    step: float | None
    error: float = ERROR
    """The standard error of the log of the step."""
    out_of_memory: bool = False
    refused_gib: float = 0.0
    """What it asked for and did not get, if memory ran out."""


def row(run: Run, library: Library) -> dict[str, Any]:
    """Measure a run that has a plan: its row of `moedsl results`, and `REFUSED`."""
    (sizes,) = numbers([run], Given())
    assert isinstance(sizes, Numbers)  # a plan has them
    log = read_all(run.logs, symptoms(library))
    refused = refused_gib(s for r in log.reports for s in r.sightings)
    return {**measure(run, log, sizes, None), REFUSED: refused}


def tried(name: str, codes: Codes, cost: Cost, row: Mapping[str, Any]) -> Tried | None:
    """Read a row of `moedsl results`; None if the run neither measured anything nor failed."""
    rate = row[RATE]
    if row["status"] in (OK, UNFINISHED) and rate:
        tokens = cost.global_batch * cost.seq * row["useful_share"]
        error = rate["error"] / rate["median"] if rate["error"] else ERROR
        return Tried(name, codes, tokens / (rate["median"] * cost.gpus), max(error, 1e-4))
    if row["status"] != FAILED:
        return None
    memory = any(ran_out(s["id"]) for s in row["symptoms"])
    return Tried(name, codes, None, out_of_memory=memory, refused_gib=row[REFUSED])


def best(every: Sequence[Tried]) -> Tried | None:
    """Return the fastest run, None if none measured anything."""
    return min((t for t in every if t.step), key=lambda t: t.step or 0.0, default=None)


def columns(each: Iterable[Codes]) -> dict[str, NDArray[np.int64]]:
    """Put layouts into columns."""
    rows = [*each]
    return {n: np.array([r[n] for r in rows], np.int64) for n in rows[0]}


FAR = 0.1
"""The standard deviation of what the constants leave of the difference of two layouts that share nothing, as a log."""
NEAR = 0.2
"""The distance at which the errors of two layouts correlate by 1/e. Both are the most likely for the pairs of published
runs of one model and GPU (tests/tune/test_posterior.py)."""


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
    cols = columns([*layouts, *(t.codes for t in seen)])
    steps = cost.time(cols)
    slopes = uncertainty.leaning(cost, cols, steps)
    loads = uncertainty.loads(cost, slopes)
    n, logs = len(layouts), np.log(steps)
    off = np.log([t.step or np.nan for t in seen]) - logs[n:]
    machine = max(uncertainty.doubt(cost, slopes[0]).spread, abs(float(off.mean())) if seen else 0.0)
    prior = loads @ loads.T + machine**2 + FAR**2 / 2 * shared(parts(cost, cols, steps))
    if not seen:
        return Known(logs, prior)
    noise = np.diag([t.error**2 for t in seen])
    weights = np.linalg.solve(prior[n:, n:] + noise, prior[n:, :n]).T
    return Known(logs[:n] + weights @ off, prior[:n, :n] - weights @ prior[n:, :n])


def parts(cost: Cost, cols: uncertainty.Columns, steps: Floats) -> Floats:
    """Return what each constant of the machine makes of a step, as a share, and the log of the step, by row. Layouts
    are as near as these are alike: no list says which axes change much."""
    moves = dict.fromkeys(cost.hardware.constants.known, uncertainty.NUDGE)
    return np.column_stack([uncertainty.slopes(cost, cols, steps, moves), np.log(steps)])


def shared(each: Floats) -> Floats:
    """Return how errors of layouts go together by rows of `parts`: 1 for the same ones, and exponentially less with the
    sum of the differences. A product of such kernels, one for each part, is positive semidefinite."""
    return np.exp(-np.array([np.abs(each - row).sum(axis=1) for row in each]) / NEAR)
