"""Count the adapters of `task peft` as Megatron Bridge 0.6.2 builds them: parameters, saved inputs, passes.

An adapter is two products: from its linear's input to the rank, and from the rank to the linear's output (bridge
peft/utils.py:896). TP splits one dimension of each, so a rank holds rank x (inputs + outputs) / TP parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Literal

from attrs import frozen

from moedsl.cost import blocks
from moedsl.cost.blocks import either, in_mtp, kinds, products, routed_width, with_window, without_window
from moedsl.cost.parameters import Parameters, built
from moedsl.cost.pipeline import Layout
from moedsl.facts.facts import Model
from moedsl.facts.fine_tuning import PARTS, Adapter

IN_TOWER = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2", *PARTS["linear_qkv"], *PARTS["linear_fc1"])
"""The adapter targets that exist in the vision tower too."""
Split = Literal["outputs", "inputs", "neither"]
COLLECTIVES: Mapping[Split, float] = {"outputs": 2.0, "inputs": 4.0, "neither": 3.0}
"""An adapter's TP collectives per microbatch, by how TP splits its linear. Forward has one after the first product, and
one after the second unless TP splits the linear's outputs (bridge peft/utils.py:1007-1047). Backward sums the gradient
between the products (core tensor_parallel/layers.py:1066), and gathers a gradient that forward scattered (bridge
peft/utils.py:1240)."""
SUMMED: Mapping[str, float] = {"none": 0.0, "shared": 2.0, "each": 0.0, "outer": 1.0}
"""The number of an expert adapter's weights whose gradients EP sums in a microbatch, by `Adapter.experts` (bridge
peft/utils.py:1282, :2408)."""


@frozen
class Linear:
    """One linear module of a block."""

    name: str
    inputs: int
    outputs: int
    split: Split
    """The dimension of the module that TP splits."""
    at: str
    """The part of the block: attention, mlp, shared, experts, mixer, router, latent, mtp or vision."""
    parts: tuple[int, ...] = ()
    """Output sizes of a fused module's parts, each of which canonical LoRA adapts separately."""


def _attention(m: Model) -> Iterator[Linear]:
    if m.attention != "mla":
        q, k, v = m.heads * m.head_dim, m.query_groups * m.head_dim, m.query_groups * m.value_dim
        fused = q * (1 + m.attention_gate) + k + v
        yield Linear("linear_qkv", m.hidden, fused, "outputs", "attention", (q, k, v))
        yield Linear("linear_proj", m.heads * m.value_dim, m.hidden, "inputs", "attention")
        return
    qk = m.heads * (m.qk_nope_dim + m.qk_rope_dim)
    if m.q_lora_rank:
        yield Linear("linear_q_down_proj", m.hidden, m.q_lora_rank, "neither", "attention")
        yield Linear("linear_q_up_proj", m.q_lora_rank, qk, "outputs", "attention")
    else:
        yield Linear("linear_q_proj", m.hidden, qk, "outputs", "attention")
    latent, v = m.kv_lora_rank, m.heads * m.v_head_dim
    yield Linear("linear_kv_down_proj", m.hidden, latent + m.qk_rope_dim, "neither", "attention")
    yield Linear("linear_kv_up_proj", latent, m.heads * m.qk_nope_dim + v, "outputs", "attention")
    yield Linear("linear_proj", v, m.hidden, "inputs", "attention")


def _mlp(m: Model, around: int, width: int, at: str) -> Iterator[Linear]:
    halves = width * (products(m) - 1)
    # both halves of experts share one adapter (bridge peft/canonical_lora.py:45)
    parts = (halves // 2, halves // 2) if at != "experts" else ()
    yield Linear("linear_fc1", around, halves, "outputs", at, parts)
    yield Linear("linear_fc2", width, around, "inputs", at)


@lru_cache(maxsize=256)
def linears(m: Model) -> Mapping[str, tuple[Linear, ...]]:
    """List the linears that may have an adapter, for one instance of each feature of `parameters.held`."""
    if m.windowed:
        return either(m, linears(without_window(m)), linears(with_window(m)))
    attention, dense = (*_attention(m),), (*_mlp(m, m.hidden, m.ffn_hidden, "mlp"),)
    moe = [Linear("router", m.hidden, m.experts, "neither", "router")]
    if m.moe_latent:
        moe.append(Linear("fc1_latent_proj", m.hidden, m.moe_latent, "neither", "latent"))
        moe.append(Linear("fc2_latent_proj", m.moe_latent, m.hidden, "neither", "latent"))
    moe += _mlp(m, routed_width(m), m.expert_hidden, "experts")
    if m.shared_expert_hidden:
        moe += _mlp(m, m.hidden, m.shared_expert_hidden, "shared")
    moe = tuple(moe)
    of = {
        kind: (
            Linear("in_proj", m.hidden, one.projected, "outputs", "mixer"),
            Linear("out_proj", one.inner, m.hidden, "inputs", "mixer"),
        )
        for kind, one in blocks.of(m).items()
    }
    if m.hybrid:
        out = {"dense": dense, "moe": moe, "attention": attention, **of}
    else:
        alike = {"moe": attention + moe} | ({"reuse": attention + moe} if m.indexer_every > 1 else {})
        out = {"dense": attention + dense, **alike, **{kind: one + moe for kind, one in of.items()}}
    # the whole tower with its mergers; their linears are named as in the language model, except in a replicated tower
    v, tower = m.vision, tuple[Linear, ...]()
    if v is not None and not v.replicated:
        layer = (
            Linear("linear_qkv", v.hidden, 3 * v.hidden, "outputs", "vision", (v.hidden,) * 3),
            Linear("linear_proj", v.hidden, v.hidden, "inputs", "vision"),
            Linear("linear_fc1", v.hidden, v.ffn_hidden, "outputs", "vision"),
            Linear("linear_fc2", v.ffn_hidden, v.hidden, "inputs", "vision"),
        )
        wide = v.hidden * v.merge**2
        merger = (
            Linear("linear_fc1", wide, wide, "outputs", "vision"),
            Linear("linear_fc2", wide, v.out_hidden, "inputs", "vision"),
        )
        tower = layer * v.layers + merger * (1 + len(v.deepstack))
    return {**out, "mtp": (Linear("eh_proj", 2 * m.hidden, m.hidden, "outputs", "mtp"),), "vision": tower}


def adapted(m: Model, a: Adapter, feature: str) -> Iterator[tuple[Linear, tuple[int, ...]]]:
    """Yield the linears of a feature that have adapters, each with the output sizes of its adapters."""
    for linear in linears(m).get(feature, ()):
        if linear.at == "experts" and a.experts == "none":
            continue
        if a.method != "canonical_lora" or linear.name not in PARTS:
            parts = (linear.outputs,) if linear.name in a.targets else ()
        else:
            wanted = [name in a.targets for name in PARTS[linear.name]]
            parts = tuple(n for n, on in zip(linear.parts, wanted, strict=False) if on)
            parts = (linear.outputs,) if not linear.parts and any(wanted) else parts
        if parts:
            yield linear, parts


def rank_of(m: Model, a: Adapter, linear: Linear, etp: int) -> int:
    """Return the rank of a linear's adapter.

    For normalized expert adapters it is rank // topk, rounded up to a multiple of ETP unless ETP splits the inputs
    (bridge peft/utils.py:700).
    """
    if linear.at != "experts" or not a.normalized:
        return a.rank
    rank = a.rank // m.topk
    return rank if linear.split == "inputs" else -(-rank // etp) * etp


def count(m: Model, a: Adapter, feature: str, tp: int, ep: int, etp: int) -> Parameters:
    """Count a rank's adapter parameters for one instance of a feature; DoRA adds the length of each row of the weight
    (bridge peft/dora_layers.py:114)."""
    total = Parameters()
    for linear, parts in adapted(m, a, feature):
        split, local = (etp, m.experts // ep) if linear.at == "experts" else (tp, 1)
        n = rank_of(m, a, linear, etp) * (linear.inputs * len(parts) + sum(parts)) // split
        n = n * local if a.experts == "each" else n
        if a.experts == "outer" and linear.at == "experts":  # without ETP (bridge peft/utils.py:2556)
            inner = linear.inputs if linear.split == "inputs" else sum(parts)
            n = n + rank_of(m, a, linear, etp) * inner * (local - 1)
        if a.method == "dora":
            n = n + (linear.outputs // split if linear.split == "outputs" else linear.outputs)
        total += Parameters(expert=n) if linear.at == "experts" else Parameters(n)
    return total


def stage(m: Model, a: Adapter, layout: Layout, rank: int, tp: int, ep: int, etp: int) -> Parameters:
    """Count the adapter parameters of pipeline rank `rank`."""
    each, ahead, total = {f: count(m, a, f, tp, ep, etp) for f in linears(m)}, in_mtp(m), Parameters()
    for c in layout.stage(rank):
        depths = built(m, c.mtp)
        total += each["mtp"] * depths + each["vision"] * c.embedding
        for kind in kinds(m):
            total += each[kind] * (c.of(kind) + depths * ahead[kind])
    return total
