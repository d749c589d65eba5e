"""Seconds on the wire, for one microbatch and layer or for one step. Bandwidths are one GPU's, one direction.

Ranks are numbered tp (etp for experts) fastest, then cp or ep, dp, pp (megatron/core/parallel_state.py), so a group
of n ranks at a stride lies in one NVLink domain when n x stride fits in it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from moedsl.cost import formats, sharded
from moedsl.cost.activations import BIT
from moedsl.cost.parameters import Parameters
from moedsl.cost.rows import Floats, Ints, Table
from moedsl.facts import Hardware, Model

DISPATCH_NVLINK, DISPATCH_NETWORK = (0.60, 0.87, 1.0), (0.82, 0.94, 1.0)
"""Bandwidth that expert all-to-all reaches over what HybridEP does, by dispatcher: alltoall, deepep, hybridep."""
DP_EXPOSED = 0.10
"""Share of data parallelism's communication that is never hidden."""


def inside(hw: Hardware, size: Floats, stride: Floats) -> Floats:
    """Ranks of a group that share an NVLink domain."""
    return np.clip(hw.nvlink_domain // stride, 1, size)


def ring(hw: Hardware, size: Floats, stride: Floats) -> Floats:
    """Bytes/s of a ring collective: NVLink inside a domain; across, every local member brings its own network port."""
    local = inside(hw, size, stride)
    return hw.constants.ring * np.where(local >= size, hw.nvlink, np.minimum(hw.nvlink, hw.network * local))


def expert(m: Model, hw: Hardware, t: Table, seq: int) -> Floats:
    """One dispatch (or combine) of a MoE layer.

    All-to-all sends each of topk copies; DeepEP and HybridEP send a token once to a rank, and once to an NVLink domain.
    """
    ep, etp = t["ep"] * 1.0, t["etp"] * 1.0
    payload = t["micro_batch"] * (seq / t["cp"]) / t["tp"] * m.hidden * 2.0
    local = inside(hw, ep, etp)
    domains = ep / local
    once = t["dispatcher"] > 0
    near = np.where(once, np.minimum(m.topk, _distinct(ep, m.topk)), m.topk) * (local - 1) / ep
    far = np.where(once, _distinct(domains, m.topk) * (1 - 1 / domains), m.topk * (1 - local / ep))
    nvlink = hw.constants.dispatch * hw.nvlink * np.array(DISPATCH_NVLINK)[t["dispatcher"]]
    network = hw.constants.dispatch * hw.network * np.array(DISPATCH_NETWORK)[t["dispatcher"]]
    seconds = np.maximum(near * payload / nvlink, far * payload / network)
    return seconds + payload * m.topk * (etp - 1) / ring(hw, etp, np.ones_like(etp))


def _distinct(places: Floats, topk: int) -> Floats:
    """How many of `places` topk uniform choices meet."""
    return places * (1 - (1 - 1 / np.maximum(places, 1)) ** topk)


def exposed(hw: Hardware, t: Table, transfer: Floats, hideable: Floats) -> Floats:
    """Expert communication of one MoE layer, forward and backward, that compute does not hide.

    Two transfers forward, two backward, two more where the MoE layer is recomputed. The overlap hides a calibrated share,
    delayed weight gradients half of what that leaves, and both no more than the compute that runs meanwhile.
    """
    again = t.has("recompute", BIT["moe"]) | t.has("recompute", BIT["full"])
    whole = (4.0 + 2.0 * again) * transfer
    left = 1.0 - hw.constants.hidden
    share = t["ep_overlap"] * (1.0 - np.where(t["delay_wgrad"] > 0, left / 2, left))
    return whole - np.minimum(share * whole, 0.9 * hideable)


def tensor(m: Model, hw: Hardware, t: Table, seq: int) -> Floats:
    """TP of one block with SP: gather and scatter forward, two and one more backward for the weight gradient."""
    tp = t["tp"] * 1.0
    moved = t["micro_batch"] * (seq / t["cp"]) * m.hidden * 2.0 * (tp - 1) / tp
    return 5.0 * moved / ring(hw, tp, np.ones_like(tp))


def context(m: Model, hw: Hardware, t: Table, seq: int) -> Floats:
    """CP of one layer: keys and values go round the ring forward, they and their gradients backward."""
    cp = t["cp"] * 1.0
    if m.attention == "mla":
        width = m.heads * (m.qk_nope_dim + m.qk_rope_dim + m.v_head_dim)
    else:
        width = 2 * m.query_groups * m.head_dim
    moved = t["micro_batch"] * (seq / cp) * width / t["tp"] * 2.0 * (cp - 1)
    return 3.0 * moved / ring(hw, cp, t["tp"] * 1.0)


def pipeline(m: Model, hw: Hardware, t: Mapping[str, Ints], gpus: int, seq: int) -> Floats:
    """One microbatch's hidden state to the next stage and its gradient back, once for each virtual stage."""
    moved = t["micro_batch"] * (seq / t["cp"]) / t["tp"] * m.hidden * 2.0
    band = (hw.nvlink if gpus <= hw.nvlink_domain else hw.network) * hw.constants.ring
    return np.where(t["pp"] > 1, 2.0 * t["vpp"] * moved / band, 0.0)


def data(
    hw: Hardware, t: Table, gpus: int, every: Mapping[str, Parameters], learning: Mapping[str, Parameters]
) -> dict[str, Floats]:
    """By feature: reduce-scatter of its gradients and all-gather of its parameters, once.

    With FSDP there is a gather for forward and one for backward; each microbatch repeats all (`step.after_overlap`).
    """
    dense, expert_ranks = gpus / (t["tp"] * t["pp"]), gpus / (t["etp"] * t["ep"] * t["pp"])
    slow = ring(hw, dense, t["tp"] * 1.0), ring(hw, expert_ranks, t["etp"] * t["ep"] * 1.0)
    part = (dense - 1) / dense / slow[0], np.maximum(expert_ranks - 1, 0) / expert_ranks / slow[1]
    fsdp, sent = 1.0 + formats.fsdp(t), formats.by_precision(formats.GATHERED, t)
    grad, gather = formats.gradient(t), np.where(fsdp > 1, formats.by_precision(sharded.GATHERED, t), sent)
    return {
        name: (learning[name].dense * grad + every[name].dense * gather * fsdp) * part[0]
        + (learning[name].expert * grad + every[name].expert * gather * fsdp) * part[1]
        for name in every
    }
