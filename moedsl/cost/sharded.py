"""Price what Megatron FSDP holds and sends in addition to the shards: gathered layers, gradients in flight, whole
roots.

A unit is a transformer layer, of the language model or of the vision tower. Everything else (embedding, output layer,
norms, patch embedding, mergers) is gathered once and stays whole on every rank.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from moedsl.cost import formats, parameters
from moedsl.cost.parameters import Parameters
from moedsl.cost.rows import Floats, Table
from moedsl.facts.facts import Model

QUEUE = 1e9
"""Elements of gradients that wait for their reduce-scatter before the oldest is freed, and twice the elements gathered
ahead; more if two units are larger (core distributed/fsdp/src/megatron_fsdp/megatron_fsdp.py:432-444)."""


def split(t: Table, gpus: int, of: Parameters) -> Floats:
    """Count the parameters of a rank that are split over other ranks: dense over dp x cp, experts over EDP. PP is 1."""
    dense, expert = gpus > t["tp"], gpus > t["etp"] * t["ep"]
    return 1.0 * of.dense * dense + 1.0 * of.expert * expert


def units(m: Model, t: Table, gpus: int, layers: tuple[Parameters, Parameters], kept: Floats) -> Floats:
    """Return the bytes in addition to the shards at the peak, early in backward. `layers` are the parameters of a layer
    with experts, all and those that are trained; `kept` the bytes of activations that its backward frees.

    Gathered are the layer at work, and the next ones until half of QUEUE is gathered. Gradients grow to QUEUE while the
    activations of the same layers are freed, so only their excess counts.
    """
    every, learning = layers
    n = m.layers + m.mtp_layers
    size = np.maximum(every.total, 1.0)
    ahead = np.ceil(np.maximum(QUEUE / 2, size) / size)
    gathered = np.minimum(1.0 + ahead, n) * split(t, gpus, every) * formats.sent(t)
    grown, learnt = split(t, gpus, learning), np.maximum(learning.total, 1.0)
    each = grown * formats.gradient(t)
    queued = np.minimum(np.maximum(QUEUE, 2 * size) / learnt, n)
    return gathered + each + queued * np.maximum(each - kept * (grown > 0), 0.0)


def whole(m: Model, t: Table, gpus: int) -> Mapping[str, Floats]:
    """Return the bytes of what is not a unit and stays gathered, by feature of `profiles.held`."""
    tp, some = t["tp"], (gpus > t["tp"]) * formats.BF16
    out = {"words": parameters.table_size(m, tp) * some}  # type: ignore[arg-type]
    if m.vision is not None:
        out["vision"] = (parameters.vision(m.vision, tp) - parameters.vision_layers(m.vision, tp)) * some  # type: ignore[arg-type]
    return out
