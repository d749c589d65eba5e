"""Find the best interval between checkpoints, and the share of time that then trains.

Failures come at random (a Poisson process), while a run trains, saves or returns alike. A run returns to the last
checkpoint that was written whole. With that the formulas are exact; Young's and Daly's are their limits for rare
failures.
"""

from __future__ import annotations

import math

from moedsl.classes.fields import frozen
from moedsl.schema.calibration import Constants

_RESTARTS_FROM = 2048
"""The GPUs up to which `restart` is stated."""


@frozen
class Goodput:
    """Shares of all time, for a run that goes on long enough; times in seconds."""

    interval: float
    """Training between two checkpoints."""
    blocked: float
    """How long each checkpoint stops training."""
    durable: float
    """How long a checkpoint is written after training goes on; until then it cannot be returned to."""
    mtbf: float
    """Mean time between failures of the job."""
    back: float
    """From a failure until training goes on."""

    @property
    def trains(self) -> float:
        """The share that trains and is kept: a life between two failures has a mean of `mtbf`, and keeps as many
        intervals as were written whole."""
        begun = math.exp(-(self.back + self.durable) / self.mtbf)
        return self.interval / self.mtbf * begun / math.expm1((self.interval + self.blocked) / self.mtbf)

    @property
    def saves(self) -> float:
        """The share that checkpoints block."""
        return self.trains * self.blocked / self.interval

    @property
    def returns(self) -> float:
        """The share from a failure until training goes on."""
        return -math.expm1(-self.back / self.mtbf)

    @property
    def repeats(self) -> float:
        """The share that trains what a failure then takes back."""
        return 1 - self.trains - self.saves - self.returns


def best_interval(blocked: float, mtbf: float) -> float:
    """Return the seconds of training between checkpoints that keep most of it.

    The derivative of `Goodput.trains` is 0 where x + log(1 - x) = -blocked / mtbf, with the interval x in units of
    mtbf. The time to return does not matter.
    """
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if middle + math.log1p(-middle) > -blocked / mtbf else (low, middle)
    return low * mtbf


def mtbf(gpus: int, gpu_mtbf: float) -> float:
    """Return the seconds between failures of a job: any GPU's failure ends it."""
    return gpu_mtbf / gpus


def back(c: Constants, gpus: int) -> float:
    """Return the seconds from a failure until the load of a checkpoint: detection and restart."""
    doublings = max(0.0, math.log2(gpus / _RESTARTS_FROM))
    return c.detect + c.restart + c.restart_doubling * doublings
