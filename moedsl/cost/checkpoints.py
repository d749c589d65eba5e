"""Price a checkpoint: what it holds, how long it takes to write, and how long training waits for it."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from moedsl.cost import adapters, parameters
from moedsl.cost.formats import BF16
from moedsl.cost.memory import Trained
from moedsl.cost.pipeline import layout_for
from moedsl.facts.facts import Hardware, Model

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
    every, learning = _saved(m, learns)
    kept = STATES.get(optimizer, ADAM) * FP32 + FP32
    if not state:
        return Size(BF16 * every, 0.0, every)
    frozen_bytes = BF16 * (every - learning)
    return Size(frozen_bytes + (0.0 if fsdp else BF16) * learning, kept * learning, every)


def _saved(m: Model, learns: Trained) -> tuple[int, int]:
    """Count the parameters that are saved, and those of them that are trained."""
    if learns.adapter is not None:
        whole = layout_for(m, 1, 1)
        count = adapters.stage(m, learns.adapter, whole, 0, 1, 1, 1).total if whole else 0
        return count, count
    every = parameters.unique(m)
    if m.vision is None:
        return every, every
    tower, mergers = parameters.vision(m.vision, 1), sum(parameters.mergers(m.vision, 1))
    parts = ((learns.language, every - tower), (learns.tower, tower - mergers), (learns.projection, mergers))
    return every, sum(count for trains, count in parts if trains)


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
