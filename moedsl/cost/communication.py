"""Estimate communication seconds, for one microbatch and layer or for one step; bandwidths are in one direction.

Ranks are numbered with tp (etp for experts) fastest, then cp or ep, dp, pp (megatron/core/parallel_state.py). A group
of n ranks at a stride is therefore in one NVLink domain if n x stride fits in it.

Under natural routing one rank is the slowest: `Skew.fullest` estimates how many tokens reach the fullest of the ranks
that share a layer's experts.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import comb

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike

from moedsl.cost import blocks, formats
from moedsl.cost.activations import BIT
from moedsl.cost.blocks import routed_width
from moedsl.cost.cases import DROPLESS, Drops
from moedsl.cost.parameters import Parameters
from moedsl.cost.rows import Floats, Ints, Table, picked
from moedsl.facts.axes import BY_NAME
from moedsl.facts.facts import Hardware, Model

DISPATCHER = BY_NAME["dispatcher"].words
NCCLEP = DISPATCHER.index("ncclep")


def inside(hw: Hardware, size: Floats, stride: Floats) -> Floats:
    """Count the ranks of a group that share an NVLink domain."""
    return np.clip(hw.nvlink_domain // stride, 1, size)


def ring(hw: Hardware, size: Floats, stride: Floats) -> Floats:
    """Return a ring's bytes/s: NVLink inside a domain; across domains, every local member adds its own network port."""
    local = inside(hw, size, stride)
    network = port(hw, size, stride, local) * local
    return hw.constants.ring * np.where(local >= size, hw.nvlink, np.minimum(hw.nvlink, network))


def port(hw: Hardware, size: Floats, stride: Floats, local: Floats | float = 1.0) -> Floats | float:
    """Return a network port's bytes/s in a ring with `local` ranks in each NVLink domain.

    Between racks, the rings of all groups that are below the same leaf switches share their uplinks: `stride` groups
    with `local` ports each.
    """
    if not hw.rack_gpus or hw.oversubscription == 1:
        return hw.network
    sent = np.minimum(stride * local, hw.rack_gpus) / hw.rack_gpus
    return hw.network / np.where(size * stride > hw.rack_gpus, np.maximum(1.0, hw.oversubscription * sent), 1.0)


def latency(hw: Hardware, size: Floats, stride: Floats) -> Floats:
    """Return the seconds for the first byte to go round a ring, which leaves each NVLink domain once."""
    domains, k = size / inside(hw, size, stride), hw.constants
    far = (size - domains) * k.hop_nvlink + domains * k.hop_network
    return np.where(domains > 1, far, (size - 1) * k.hop_nvlink)


def expert(m: Model, hw: Hardware, t: Table, seq: int, wire: float = 1.0) -> Floats:
    """Estimate the seconds of one dispatch (or combine) of a MoE layer.

    All-to-all sends each of a token's topk copies. The others send a token once to each NVLink domain, and from there
    over NVLink once to each rank. `wire` is the bytes that NCCL EP sends, relative to BF16.
    """
    ep, etp = t["ep"] * 1.0, t["etp"] * 1.0
    payload = t["micro_batch"] * (seq / t["cp"]) / t["tp"] * routed_width(m) * 2.0
    payload = payload * np.where(t["dispatcher"] == NCCLEP, wire, 1.0)
    local = inside(hw, ep, etp)
    domains = ep / local
    once = t["dispatcher"] > 0
    near = np.where(once, np.minimum(m.topk, met(m, ep)) * (local - 1) / local, m.topk * (local - 1) / ep)
    far = np.where(once, met(m, domains) * (1 - 1 / domains), m.topk * (1 - local / ep))
    k = hw.constants
    nvlink = k.dispatch * hw.nvlink * picked(k.by("dispatch", DISPATCHER), t["dispatcher"])
    network = hw.network * picked(k.by("network", DISPATCHER), t["dispatcher"])
    network = np.where(once, network, np.minimum(network, k.network_ceiling))
    start = np.where(domains > 1, k.exchange_start_network, k.exchange_start * (ep > 1))
    if hw.rack_gpus:  # the share of what leaves a domain that leaves the rack too, through its uplinks
        outside = np.maximum(0.0, 1 - hw.rack_gpus / (ep * etp)) / np.maximum(1 - local / ep, 1 / ep)
        network = network / np.maximum(1.0, hw.oversubscription * np.minimum(outside, 1.0))
    seconds = np.maximum(near * payload / nvlink, far * payload / network) + start
    return seconds + payload * m.topk * (etp - 1) / ring(hw, etp, np.ones_like(etp))


def met(m: Model, places: Floats) -> Floats:
    """Return, by row, how many of `places` equal parts of the experts (ranks or NVLink domains, in order) receive a
    token on average."""
    values, at = np.unique(places, return_inverse=True)
    return np.array([_met(float(p), m.topk, m.routing_groups, m.topk_groups) for p in values])[at]


@lru_cache(maxsize=1024)
def _met(places: float, topk: int, groups: int, allowed: int) -> float:
    """Return the mean number of parts that topk uniform choices reach among the experts of `allowed` of all `groups`.

    If a group spans several parts, the allowed groups leave that share of the parts open. A part that contains several
    groups has none of the allowed ones, or j of them with the probability of drawing without replacement
    (megatron/core/transformer/moe/moe_utils.py:618).
    """
    if places >= groups:
        open_to = places * allowed / groups
        return open_to * (1 - (1 - 1 / max(open_to, 1)) ** topk)
    held = round(groups / places)
    missed = [comb(held, j) * comb(groups - held, allowed - j) * (1 - j / allowed) ** topk for j in range(allowed + 1)]
    return places * (1 - sum(missed) / comb(groups, allowed))


def exposed(hw: Hardware, t: Table, transfer: Floats, hideable: Floats) -> tuple[Floats, Floats]:
    """Return a MoE layer's exposed expert communication, forward and backward, as (with another microbatch, alone).

    There are two transfers forward, two backward, and two more if the MoE layer is recomputed. If a forward runs at the
    same time as another microbatch's backward, the overlap hides a share. Delayed weight gradients hide a small share
    of the rest. Together they hide at most the time of the concurrent compute. A pass that runs alone hides nothing.
    """
    again = t.has("recompute", BIT["moe"]) | t.has("recompute", BIT["full"])
    whole = (4.0 + 2.0 * again) * transfer
    left = (1.0 - hw.constants.hidden) * np.where(t["delay_wgrad"] > 0, 1.0 - hw.constants.delayed, 1.0)
    return whole - np.minimum(t["ep_overlap"] * (1.0 - left) * whole, hw.constants.window_layer * hideable), whole


def tensor(m: Model, hw: Hardware, t: Table, seq: int) -> Floats:
    """Estimate the seconds of TP with SP for one block: gather and scatter forward, the same backward, and one more
    gather for weight gradients."""
    tp = t["tp"] * 1.0
    moved, one = t["micro_batch"] * (seq / t["cp"]) * m.hidden * 2.0 * (tp - 1) / tp, np.ones_like(tp)
    return 5.0 * (moved / (hw.constants.tp_share * ring(hw, tp, one)) + latency(hw, tp, one))


def normed(m: Model, hw: Hardware, t: Table, seq: int) -> Floats:
    """Estimate the seconds of the sums over TP for split norms of queries and keys in one layer's forward: one FP32
    number for each token and norm, whose gradient is not summed (bridge models/minimax_m2/minimax_m2_provider.py:73).
    """
    tp, one = t["tp"] * 1.0, np.ones(t.rows)
    if m.qk_norm_over != "split_heads":
        return np.zeros(t.rows)
    moved = t["micro_batch"] * (seq / t["cp"]) * 4.0 * (tp - 1) / tp
    return 4.0 * (moved / ring(hw, tp, one) + latency(hw, tp, one))


def context(m: Model, hw: Hardware, t: Table, seq: int) -> Floats:
    """Estimate the CP seconds of one layer.

    Keys and values go round the ring in forward; they and their gradients do in backward. Sparse attention first
    gathers its compressed keys and the indexer's, whole on each TP rank, and sums the gradients of its compressed keys
    (core transformer/experimental_attention_variant/dsa.py:1836, :1980).
    """
    cp = t["cp"] * 1.0
    if m.sparse:
        each = t["micro_batch"] * (seq / cp) * 2.0 * (cp - 1)
        return each * (2 * blocks.key(m) + m.indexer_dim) / ring(hw, cp, t["tp"] * 1.0)
    if m.attention == "mla":
        width = m.heads * (m.qk_nope_dim + m.qk_rope_dim + m.v_head_dim)
    else:
        width = m.query_groups * (m.head_dim + m.value_dim)
    moved = t["micro_batch"] * (seq / cp) * width / t["tp"] * 2.0 * (cp - 1)
    return 3.0 * moved / ring(hw, cp, t["tp"] * 1.0)


def scanned(m: Model, hw: Hardware, t: Table, seq: int) -> Floats:
    """Estimate the CP seconds of a Mamba-2 layer, forward and backward; nothing hides them.

    Its scan runs over whole sequences, so an all-to-all moves all its inputs and outputs from a split of the sequence
    to a split of the heads and back (core ssm/mamba_context_parallel.py:134). If there are fewer groups than CP ranks,
    they are repeated.
    """
    inner = m.mamba_heads * m.mamba_head_dim
    groups = np.maximum(m.mamba_groups / t["tp"], t["cp"]) * t["tp"]
    return _exchanged(hw, t, seq, 3 * inner + 2 * groups * m.mamba_state + m.mamba_heads)


def delta_net(m: Model, hw: Hardware, t: Table, seq: int) -> Floats:
    """Estimate the CP seconds of a gated delta net, forward and backward.

    As in a Mamba-2 layer, the whole projection and the second one's input move from a split of the sequence to a split
    of the heads and back (core ssm/gated_delta_net/gdn.py:129-162, common.py:347-365).
    """
    mixer = blocks.delta_net(m)
    return _exchanged(hw, t, seq, mixer.projected + mixer.inner)


def _exchanged(hw: Hardware, t: Table, seq: int, numbers: ArrayLike) -> Floats:
    """Estimate the seconds of an all-to-all over CP of `numbers` elements per token, forward and backward."""
    cp = t["cp"] * 1.0
    moved = 2.0 * t["micro_batch"] * (seq / cp) * (np.asarray(numbers) / t["tp"]) * 2.0 * (cp - 1) / cp
    return moved / ring(hw, cp, t["tp"] * 1.0)


def pipeline(m: Model, hw: Hardware, t: Mapping[str, Ints], gpus: int, seq: int) -> Floats:
    """Estimate the seconds to send one microbatch's hidden state to the next chunk on another stage; its gradient takes
    as long."""
    moved = t["micro_batch"] * (seq / t["cp"]) / t["tp"] * m.hidden * 2.0
    stages = t["pp"] * 1.0
    band = (hw.nvlink if gpus <= hw.nvlink_domain else port(hw, stages, gpus / stages)) * hw.constants.ring
    return np.where(t["pp"] > 1, moved / band, 0.0)


def data(
    hw: Hardware, t: Table, gpus: int, every: Mapping[str, Parameters], learning: Mapping[str, Parameters]
) -> dict[str, Floats]:
    """Return, by feature, the seconds to reduce-scatter the feature's gradients and all-gather its parameters once.

    FSDP gathers once for forward and once for backward, and repeats everything for each microbatch
    (`step.after_overlap`).
    """
    dense, expert_ranks = gpus / (t["tp"] * t["pp"]), gpus / (t["etp"] * t["ep"] * t["pp"])
    slow = ring(hw, dense, t["tp"] * 1.0), ring(hw, expert_ranks, t["etp"] * t["ep"] * 1.0)
    part = (dense - 1) / dense / slow[0], np.maximum(expert_ranks - 1, 0) / expert_ranks / slow[1]
    fsdp, grad, gather = 1.0 + formats.fsdp(t), formats.gradient(t), formats.sent(t)
    return {
        name: (learning[name].dense * grad + every[name].dense * gather * fsdp) * part[0]
        + (learning[name].expert * grad + every[name].expert * gather * fsdp) * part[1]
        for name in every
    }


def overlapped(t: Mapping[str, Ints], reduces: bool, gathers: bool) -> Floats | float:
    """Return the share of data-parallel bytes that overlap with compute: gradients, parameters, or both; FSDP overlaps
    both."""
    if reduces and gathers:
        return 1.0
    grad, sent = formats.gradient(t), formats.sent(t)
    return np.maximum((reduces * grad + gathers * sent) / (grad + sent), formats.fsdp(t))


SPREAD_TOKENS = 16384
"""The tokens of an expert group for which the constants `skew` and `straggling` are stated."""


@frozen
class Skew:
    """How unevenly a router spreads a microbatch's tokens over the ranks of an expert group (all zero: forced balance),
    and how wide they travel."""

    luck: float
    """Deviation of a rank's tokens, relative to their mean, from microbatch to microbatch: texts differ in the experts
    that they need. It falls with the square root of the group's tokens, and is stated for `SPREAD_TOKENS`."""
    taste: float
    """If nothing balances the router: the spread of the experts' token counts, relative to a router that picks the same
    experts for every token."""
    capacity: float
    """`moe_expert_rank_capacity_factor` of a captured iteration."""
    wire: float = 1.0
    """Bytes of a token that NCCL EP sends, relative to BF16: the mean of a layer's four transfers."""
    drops: Drops = DROPLESS

    def fullest(self, m: Model, t: Table | Mapping[str, Ints], seq: int) -> Floats:
        """Return the tokens of the fullest rank relative to the mean, by row.

        A router that always picks the same experts gives them experts / topk times the mean, and the others none. With
        n experts on a rank, this spread falls with sqrt(n). The fullest of r ranks is sqrt(2 ln r) deviations above the
        mean, and one rank is always at the mean. A captured iteration with a fuller rank than `capacity` runs again
        without its graph (core transformer/moe/paged_stash.py:1150), so only runs whose router is balanced capture it.
        """
        ranks, same = t["ep"] * 1.0, m.experts / max(m.topk, 1)
        tokens = ranks * t["micro_batch"] * (seq / t["cp"]) / t["tp"]
        kept = self.taste**2 * max(same - 1, 0.0) * ranks / max(m.experts, 1) * (1 - t["captured"])
        spread = np.sqrt(self.luck**2 * SPREAD_TOKENS / tokens + kept)
        most = np.where(t["captured"] > 0, self.capacity, np.minimum(ranks, same))
        fullest = np.minimum(1 + spread * np.sqrt(2 * np.log(ranks)), np.maximum(most, 1.0))
        return self.drops.kept(fullest)
