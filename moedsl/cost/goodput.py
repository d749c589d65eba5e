"""Price checkpoints: how large they are, how long a write takes and blocks training, how often to write one.

The share of time that trains (goodput) follows from the interval. Failures come at random (a Poisson process), equally
likely while a run trains, saves or recovers; the run returns to the last checkpoint that was written completely. Under
these assumptions the formulas are exact; Young's and Daly's are their limits for rare failures.
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
"""The largest exponent; beyond it no training is kept."""
_SURE = 1 - 1e-12
"""The largest probability of a failure; at 1 the time would be infinite."""
_RESTARTS_FROM = 2048
"""The number of GPUs up to which the constant `restart` holds."""


@frozen
class Local:
    """Saves on the nodes' own disks between saves on the shared file system. After a failure that loses no node, a run
    returns to a local save."""

    intervals: int
    """Intervals between two saves on the shared file system; each but the last ends with a local save."""
    blocked: float
    durable: float
    share: float
    """The share of failures that lose no node."""


@frozen
class Goodput:
    """Shares of total time in the long run; times are in seconds."""

    interval: float
    """Time for steps and validation between two checkpoints."""
    blocked: float
    """How long each checkpoint stops training."""
    durable: float
    """How long a checkpoint is still being written after training resumes; until then a run cannot return to it."""
    mtbf: float
    """Mean time between failures of the job."""
    back: float
    """From a failure until training resumes."""
    local: Local | None = None
    validation: float = 0.0
    """The share of the interval spent on validation."""

    @property
    def trains(self) -> float:
        """Return the share of time for training that is kept."""
        return self._kept * (1 - self.validation)

    @property
    def validates(self) -> float:
        """Return the share of time for validation that is not repeated."""
        return self._kept * self.validation

    @property
    def _kept(self) -> float:
        """Return the share of time for training or validation that is kept.

        The time between two failures is `mtbf` on average, and keeps the intervals whose checkpoints were written
        completely.
        """
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
        """Return the mean time from the start of an interval that fails until training resumes, with the failures
        meanwhile."""
        return self.mtbf * math.exp(min((self.back + durable) / self.mtbf, _MOST))

    @property
    def saves(self) -> float:
        """Return the share of time that checkpoints block."""
        near = (self.local.intervals - 1) * self.local.blocked if self.local else 0.0
        return self._kept * (self.blocked + near) / self.interval

    @property
    def returns(self) -> float:
        """Return the share of time from failures until training resumes."""
        return -math.expm1(-self.back / self.mtbf)

    @property
    def repeats(self) -> float:
        """Return the share of time for training that failures then discard."""
        return 1 - self._kept - self.saves - self.returns


def best_interval(blocked: float, mtbf: float) -> float:
    """Return the seconds between checkpoints that keep the most training.

    The derivative of `Goodput.trains` is 0 where x + log(1 - x) = -blocked / mtbf, with the interval x in units of
    mtbf. The search is over y = -log(1 - x), which stays finite where x rounds to 1. The time to return does not
    matter.
    """
    low, high = 0.0, 1 + blocked / mtbf
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if middle + math.expm1(-middle) < blocked / mtbf else (low, middle)
    return -math.expm1(-low) * mtbf


def mtbf(gpus: int, gpu_mtbf: float) -> float:
    """Return the mean seconds between failures of a job: any GPU's failure ends it."""
    return gpu_mtbf / gpus


def back(c: Constants, gpus: int) -> float:
    """Return the seconds from a failure until a new job loads a checkpoint: detection and restart."""
    doublings = max(0.0, math.log2(gpus / _RESTARTS_FROM))
    return c.detect + c.restart + c.restart_doubling * doublings


def back_in_job(c: Constants) -> float:
    """Return the seconds from a failure until training resumes if ranks restart within the job, on the same nodes."""
    return c.detect + c.restart_in_job


FP32 = 4.0
STATES: Mapping[str, int] = {"sgd": 1, "lion": 1, "muon": 1, "dist_muon": 1}
"""FP32 numbers that an optimizer keeps for each trained parameter besides its master copy; unlisted optimizers keep
Adam's two. Embeddings that Adam trains beside Muon count like the rest. A checkpoint holds FP32 whatever the format in
memory (core optimizer/distrib_optimizer.py:1111, te pytorch/optimizers/fused_adam.py:353)."""
ADAM = 2


@frozen
class Size:
    """The content of a checkpoint: bytes of weights and optimizer, and the number of parameters."""

    weights: float
    optimizer: float
    """Master copies and moments."""
    parameters: int
    """The number of saved parameters."""
    learning: int = 0
    """The number of those that are trained."""

    @property
    def total(self) -> float:
        return self.weights + self.optimizer


def size(m: Model, learns: Trained, optimizer: str = "adam", fsdp: bool = False, state: bool = True) -> Size:
    """Count the bytes of a checkpoint; each parameter counts once, however many ranks hold it.

    Weights are saved in BF16, even those kept in FP8 (core dist_checkpointing/strategies/filesystem_async.py:160).
    Under FSDP the master copies are the weights (core
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
        return Size(BF16 * every, 0.0, every, learning)
    frozen_bytes = BF16 * (every - learning)
    return Size(frozen_bytes + (0.0 if fsdp else BF16) * learning, kept * learning, every, learning)


def write_rate(h: Hardware, gpus: int, storage: float = 0.0) -> float:
    """Return the bytes/s at which a job's nodes write: the cluster's stated rate (`storage`), else what the nodes'
    links or the file system carry."""
    nodes = -(-gpus // h.gpus_per_node)
    return storage or min(nodes * h.constants.node_write, h.constants.storage_write)


def local_write(h: Hardware, gpus: int, nbytes: float) -> float:
    """Return the seconds that each node needs to write its part to its own disk."""
    return nbytes / -(-gpus // h.gpus_per_node) / h.constants.local_write


def blocked(h: Hardware, gpus: int, nbytes: float, write: float, is_async: bool, start: float) -> float:
    """Return the seconds that training waits for a save: `start`, then the copy to host memory, or without `async_save`
    the whole write."""
    return start + (nbytes / gpus / h.host_link if is_async else write)
