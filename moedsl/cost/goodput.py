"""Price checkpoints: what one holds, how long a write takes and blocks training, how often to write one.

The share of time that trains (goodput) follows from the interval. Failures come at random (a Poisson process), while a
run trains, saves or recovers alike; a run returns to the last checkpoint that was written whole. With that the formulas
are exact; Young's and Daly's are their limits for rare failures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from attrs import frozen

from moedsl.cost import adapters, parameters
from moedsl.cost.formats import BF16
from moedsl.cost.memory import Trained
from moedsl.cost.pipeline import layout_for
from moedsl.facts.calibration import Constants
from moedsl.facts.facts import Hardware, Model

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


FP32 = 4.0
STATES: Mapping[str, int] = {"sgd": 1, "lion": 1, "muon": 1, "dist_muon": 1}
"""Numbers that an optimizer keeps for a trained parameter besides its master copy; every other has Adam's two. Muon's
embeddings, which Adam trains, count as the rest. They are FP32 in a checkpoint whatever their format in memory (core
optimizer/distrib_optimizer.py:1111, te pytorch/optimizers/fused_adam.py:353)."""
ADAM = 2


@frozen
class Size:
    """What a checkpoint holds; both in bytes."""

    weights: float
    optimizer: float
    """Master copies and moments."""
    parameters: int
    """Parameters that are saved."""

    @property
    def total(self) -> float:
        return self.weights + self.optimizer


def size(m: Model, learns: Trained, optimizer: str = "adam", fsdp: bool = False, state: bool = True) -> Size:
    """Count the bytes of a checkpoint, each parameter once however many ranks hold it.

    Weights are BF16, and those that are kept in FP8 are saved in BF16 too (core
    dist_checkpointing/strategies/filesystem_async.py:160). Under FSDP the master copies are the weights (core
    distributed/fsdp/src/megatron_fsdp/param_and_grad_buffer.py:3284). An adapter is saved without the frozen weights
    (bridge training/checkpointing.py:1272).
    """
    if learns.adapter is not None:
        whole = layout_for(m, 1, 1)
        every = learning = adapters.stage(m, learns.adapter, whole, 0, 1, 1, 1).total if whole else 0
    else:
        every = learning = parameters.unique(m)
        if m.vision is not None:
            tower, mergers = parameters.vision(m.vision, 1), sum(parameters.mergers(m.vision, 1))
            parts = ((learns.language, every - tower), (learns.tower, tower - mergers), (learns.projection, mergers))
            learning = sum(count for trains, count in parts if trains)
    kept = STATES.get(optimizer, ADAM) * FP32 + FP32
    if not state:
        return Size(BF16 * every, 0.0, every)
    frozen_bytes = BF16 * (every - learning)
    return Size(frozen_bytes + (0.0 if fsdp else BF16) * learning, kept * learning, every)


def write_rate(h: Hardware, gpus: int, storage: float = 0.0) -> float:
    """Return the bytes/s with which the nodes of a job write: what a cluster states (`storage`), else what their links
    or the file system carry."""
    nodes = -(-gpus // h.gpus_per_node)
    return storage or min(nodes * h.constants.node_write, h.constants.storage_write)


def local_write(h: Hardware, gpus: int, nbytes: float) -> float:
    """Return the seconds in which each node writes its part to its own disk."""
    return nbytes / -(-gpus // h.gpus_per_node) / h.constants.local_write


def blocked(h: Hardware, gpus: int, nbytes: float, write: float, is_async: bool, start: float) -> float:
    """Return the seconds that training waits: until a save starts, then for a copy to host memory, or without
    `async_save` for the whole write."""
    return start + (nbytes / gpus / h.host_link if is_async else write)
