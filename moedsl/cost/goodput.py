"""Find the best interval between checkpoints, and the share of time that then trains.

Failures come at random (a Poisson process), while a run trains, saves or returns alike. A run returns to the last
checkpoint that was written whole. With that the formulas are exact; Young's and Daly's are their limits for rare
failures.
"""

from __future__ import annotations

import math

from attrs import frozen

from moedsl.facts.calibration import Constants

_MOST = 700.0
"""The largest exponent; beyond it nothing is trained."""
_SURE = 1 - 1e-12
"""The most likely failure; with a certain one the time would be infinite."""
_RESTARTS_FROM = 2048
"""The GPUs up to which `restart` is stated."""


@frozen
class Local:
    """Saves on the nodes' own disks between those on the shared file system. A run returns to one after a failure that
    leaves every node in its place."""

    intervals: int
    """Intervals between two saves on the shared file system, each but the last ending with a save here."""
    blocked: float
    durable: float
    share: float
    """The share of failures that leave every node in its place."""


@frozen
class Goodput:
    """Shares of all time, for a run that goes on long enough; times in seconds."""

    interval: float
    """Steps and validation between two checkpoints."""
    blocked: float
    """How long each checkpoint stops training."""
    durable: float
    """How long a checkpoint is written after training goes on; until then it cannot be returned to."""
    mtbf: float
    """Mean time between failures of the job."""
    back: float
    """From a failure until training goes on."""
    local: Local | None = None
    validation: float = 0.0
    """The share of the interval that validates."""

    @property
    def trains(self) -> float:
        """The share that trains and is kept."""
        return self._kept * (1 - self.validation)

    @property
    def validates(self) -> float:
        """The share that validates and is not repeated."""
        return self._kept * self.validation

    @property
    def _kept(self) -> float:
        """The share that trains or validates, and is kept: a life between two failures has a mean of `mtbf`, and keeps
        as many intervals as were written whole."""
        if self.local is not None:
            local = self.local
            train, a, b = self.interval / local.intervals, 0.0, 0.0
            far = self._lost(self.durable)
            for i in reversed(range(local.intervals)):
                lasts = train + (self.blocked if i == local.intervals - 1 else local.blocked)
                before = (
                    0.0 if i else min(self.durable, lasts)
                )  # the save before is not written yet, and not a local one
                near = self._lost(local.durable + before)
                fails = min(-math.expm1(-lasts / self.mtbf), _SURE)
                stays = 1 - fails * local.share
                a = (fails * (local.share * near + (1 - local.share) * far) + (1 - fails) * a) / stays
                b = (fails * (1 - local.share) + (1 - fails) * b) / stays
            return self.interval / (a / (1 - b))
        cycle = (self.interval + self.blocked) / self.mtbf
        kept = math.exp(-cycle - (self.back + self.durable) / self.mtbf) / -math.expm1(-cycle)
        return self.interval / self.mtbf * kept

    def _lost(self, durable: float) -> float:
        """The mean time of an interval that fails, until training goes on; more failures come meanwhile."""
        return self.mtbf * math.exp(min((self.back + durable) / self.mtbf, _MOST))

    @property
    def saves(self) -> float:
        """The share that checkpoints block."""
        near = (self.local.intervals - 1) * self.local.blocked if self.local else 0.0
        return self._kept * (self.blocked + near) / self.interval

    @property
    def returns(self) -> float:
        """The share from a failure until training goes on."""
        return -math.expm1(-self.back / self.mtbf)

    @property
    def repeats(self) -> float:
        """The share that trains what a failure then takes back."""
        return 1 - self._kept - self.saves - self.returns


def best_interval(blocked: float, mtbf: float) -> float:
    """Return the seconds of training between checkpoints that keep most of it.

    The derivative of `Goodput.trains` is 0 where x + log(1 - x) = -blocked / mtbf, with the interval x in units of
    mtbf. The search is for y = -log(1 - x), which stays finite where x rounds to 1. The time to return does not matter.
    """
    low, high = 0.0, 1 + blocked / mtbf
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if middle + math.expm1(-middle) < blocked / mtbf else (low, middle)
    return -math.expm1(-low) * mtbf


def mtbf(gpus: int, gpu_mtbf: float) -> float:
    """Return the seconds between failures of a job: any GPU's failure ends it."""
    return gpu_mtbf / gpus


def back(c: Constants, gpus: int) -> float:
    """Return the seconds from a failure until a new job loads a checkpoint: detection and restart."""
    doublings = max(0.0, math.log2(gpus / _RESTARTS_FROM))
    return c.detect + c.restart + c.restart_doubling * doublings


def back_in_job(c: Constants) -> float:
    """Return the same where the ranks of a job restart within it, on the same nodes."""
    return c.detect + c.restart_in_job
