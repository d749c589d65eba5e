"""Step time: the slowest stage's microbatches, the pipeline's bubble, and what is left of data parallelism and the optimizer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from moedsl.axes import BY_NAME
from moedsl.cost import communication, compute, formats
from moedsl.cost.memory import Counts, Trained
from moedsl.cost.profiles import TIME
from moedsl.cost.rows import Floats, Table
from moedsl.facts import Hardware, Model

MICROBATCH = ("compute", "recompute", "expert_communication", "tensor_communication", "context_communication", "launch")
"""What a stage spends on each microbatch."""
STEP = ("data_communication", "optimizer")
"""What a stage spends once a step."""
PARTS = (*MICROBATCH, "pipeline_communication", "bubble", *STEP)
COLUMNS = (
    "pp", "vpp", "tp", "cp", "etp", "ep", "micro_batch", "recompute", "offload", "dispatcher", "cuda_graph", "ep_overlap",
    "delay_wgrad", "precision", "sharding", "moments", "grad_reduce",
)  # fmt: skip
HOST_ADAM = 0.6e9
"""Parameters a second that one GPU's share of the host steps with offloaded moments, copies included (an H100 node of eight)."""

COVERS = (
    "step time is a roofline with stated efficiencies: matrix products, attention and memory passes of the slowest stage, "
    "recompute, expert, tensor and context communication, launches where no CUDA graph holds them, the bubble, data "
    "parallelism after overlap, and the optimizer. It leaves out data loading, stragglers, checkpoints and power limits. "
    "Against published steps its median error is about a quarter."
)

Prices = dict[str, Floats]


def prices(m: Model, hw: Hardware, t: Table, gpus: int, seq: int, n: Counts, learns: Trained) -> dict[str, Prices]:
    """Seconds by part and feature of `profiles.TIME`, for every row of `t`."""
    w = compute.work(m, hw, t, seq)
    out: dict[str, Prices] = {part: {} for part in (*MICROBATCH, *STEP)}
    back = _backward_share(learns)
    _layers(out, m, hw, t, seq, w, back)
    out["compute"].update(mtp=(1 + back) * w.mtp, loss=3 * w.loss, vision=w.vision * (1 + 2 * learns.tower))
    moved = communication.data(hw, t, gpus, n.all, n.learning)
    out["data_communication"] = moved
    out["optimizer"] = _optimizer(hw, t, gpus, n)
    return out


def _backward_share(learns: Trained) -> float:
    """Backward over forward of the language model's matrix products: a frozen one still passes gradients to the tower."""
    if learns.language:
        return 2.0
    return 1.0 if learns.tower or learns.projection else 0.0


def _layers(out: dict[str, Prices], m: Model, hw: Hardware, t: Table, seq: int, w: compute.Work, back: float) -> None:
    tensor, ring = communication.tensor(m, hw, t, seq), communication.context(m, hw, t, seq)
    ring = np.maximum(ring - 3 * w.core, 0.1 * ring)
    kinds = zip(("dense", "moe"), compute.forward(w), compute.backward(w), compute.recomputed(w, t), compute.host(t), strict=True)
    for name, ahead, behind, again, launch in kinds:
        busy = ahead + behind * back / 2
        sent = communication.expert_exposed(m, hw, t, seq, busy) if name == "moe" else np.zeros_like(busy)
        blocks = 2.0 if name == "dense" or m.shared_expert_hidden else 1.0
        parts = {
            "compute": busy,
            "recompute": again,
            "expert_communication": sent,
            "tensor_communication": blocks * tensor,
            "context_communication": ring,
        }
        for part, seconds in parts.items():
            out[part][name] = seconds
        out["launch"][name] = np.maximum(launch - sum(parts.values()), 0.0)


def _optimizer(hw: Hardware, t: Table, gpus: int, n: Counts) -> Prices:
    """Adam streams its state through HBM; with offloaded moments the host steps."""
    each = (10.0 + 2 * (formats.master(t) + formats.moments(t))) / (hw.hbm * compute.STREAM)
    each = np.where(t["offload"] == BY_NAME["offload"].words.index("optimizer"), each + 1 / HOST_ADAM, each)
    dense, expert = t["tp"] * t["pp"] / gpus, t["etp"] * t["ep"] * t["pp"] / gpus
    return {name: each * (p.dense * dense + p.expert * expert) for name, p in n.learning.items()}


def matrix(prices: Mapping[str, Prices], parts: tuple[str, ...], rows: int) -> Floats:
    """(rows, features): the named parts together."""
    out = np.zeros((rows, len(TIME)))
    for part in parts:
        for name, column in prices[part].items():
            out[:, TIME.index(name)] += column
    return out


def after_overlap(wire: Floats, microbatch: Floats, fsdp: Floats, microbatches: Floats) -> Floats:
    """Data parallelism that is left: behind the last backward and the first forward, or with FSDP behind every microbatch."""
    left = np.maximum(wire - 0.7 * microbatch, communication.DP_EXPOSED * wire)
    return np.where(fsdp > 0, left * microbatches, left)


def bubble(microbatch: Floats, pp: Floats, vpp: Floats) -> Floats:
    """(pp - 1) / vpp microbatches of the slowest stage, warm-up and cool-down together."""
    return microbatch * (pp - 1) / vpp
