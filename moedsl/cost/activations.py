"""Count the bytes that one microbatch saves for backward in each kind of layer, and the largest working set.

The count follows what the modules of Megatron-Core 0.19.2 with Transformer Engine save: the input of each norm, linear
and activation function, and for attention q, k, v, output and log-sum-exp (no score matrix: fused attention). TP always
comes with SP, so tensors between the linears are split over TP as well. `tokens` is per rank: micro_batch x seq / cp.
Selective recompute drops outputs by module (megatron/core/transformer/transformer_config.py:recompute_modules).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from attrs import evolve, frozen

from moedsl.cost import adapters, blocks
from moedsl.cost.adapters import Linear
from moedsl.cost.blocks import Mixer, either, products, routed_width, with_experts, with_window, without_window
from moedsl.cost.cases import Case
from moedsl.cost.formats import BF16, SAVED, by_precision
from moedsl.cost.rows import Floats, Table
from moedsl.facts.axes import BY_NAME, CUDA_GRAPH, OFFLOAD_MODULES, RECOMPUTE
from moedsl.facts.facts import Model, Vision
from moedsl.facts.fine_tuning import Adapter

ALLTOALL = BY_NAME["dispatcher"].words.index("alltoall")
BIT = {word: i for i, word in enumerate(RECOMPUTE)}
HERE: Mapping[str, Floats] = dict.fromkeys(OFFLOAD_MODULES, np.ones(1))
"""The value of `Sizes.here` if nothing is offloaded."""
ByKind = Mapping[str, Floats]
"""Bytes per layer, by kind of layer (`blocks.kinds`)."""


EAGER_NORM = 12
"""Bytes per element that a norm built from separate kernels keeps: its input twice and its normalised copy, in FP32
(bridge models/gemma/modeling_gemma4.py:87-95)."""
AROUND_EXPERTS = 3 * EAGER_NORM + 2 * BF16
"""Bytes per element of the hidden state that recomputed experts keep with sandwich norms: three norms (`EAGER_NORM`),
and the inputs of shared experts and router (bridge models/gemma/modeling_gemma4.py:1327-1342)."""
AROUND_ROUTER = 3 * EAGER_NORM
"""Bytes per element that three norms keep: of the router's input, and of the outputs of routed and shared experts."""

POOLED_LAYER = 6 + 6 * 4 + 2
"""Elements, counted as BF16, that a layer of a pooled tower keeps per unit of hidden width: the inputs of its linears,
queries, keys, values and attention's output; for six norms, the input and the normalised copy in FP32; for the norm of
values, the input (transformers models/gemma4/modeling_gemma4.py, Gemma4RMSNorm)."""


@frozen
class Sizes:
    """Tokens and number formats by row."""

    tokens: Floats
    """Tokens of a microbatch on a rank, before sequence parallelism."""
    split: Floats
    """`tokens` divided by TP: the tokens on a rank with sequence parallelism."""
    routed: Floats
    """Token copies routed to this rank's experts, on average."""
    saved: Floats
    """Bytes per element of a linear's saved input."""
    tp: Floats
    etp: Floats
    learns: float
    """1 if the language model's weights are trained; a frozen linear does not save its input (te
    pytorch/module/linear.py, `weight.requires_grad`)."""
    keep: Mapping[str, Floats]
    """By recompute module: 1 if its tensors are kept, 0 if they are recomputed; `pre_mlp_norm` is the norm before a MoE
    layer."""
    here: Mapping[str, Floats]
    """By module of `OFFLOAD_MODULES`: 1 if its saved tensors stay on the GPU, 0 if they are offloaded to the host."""
    mask: Floats
    """Bytes of the attention mask that a CUDA graph with attention holds, else 0."""
    pairs: Floats
    """Attention scores on a rank: one for each head and pair of tokens."""
    unfused: bool = False
    """Whether gated activation functions run as separate kernels."""
    scores: float = 0.0
    """Bytes that attention keeps for each score."""
    adapter: Adapter | None = None


def sizes(m: Model, t: Table, seq: int, learns: bool = True, adapter: Adapter | None = None) -> Sizes:
    """Compute the values that the formulas below share."""
    tokens = t["micro_batch"] * (seq / t["cp"])
    split = tokens / t["tp"]
    keep = {word: 1.0 - t.has("recompute", bit) for word, bit in BIT.items()}
    # A captured router passes the norm's output out of its graph, so the output is kept even if recomputed, except by a
    # graph that ends after alltoall's preprocessing (core transformer/transformer_layer.py:458-499).
    router, inside = (t.has("cuda_graph", CUDA_GRAPH.index(w)) for w in ("moe_router", "moe_preprocess"))
    keep["pre_mlp_norm"] = np.maximum(keep["layernorm"], (1.0 * (router & ~(inside & (t["dispatcher"] == ALLTOALL)))))
    routed = split * m.topk * t["etp"] * 1.0
    here = {word: 1.0 - moved for word, moved in _moved(m, t).items()} if t["offload_modules"].any() else HERE
    wide = t["tp"] * 1.0, t["etp"] * 1.0
    pairs = tokens * seq * m.heads / t["tp"]
    saved = by_precision(SAVED, t)
    return Sizes(
        tokens, split, routed, saved, *wide, float(learns), keep, here, mask(t, seq), pairs, adapter=adapter
    )  # fmt: skip


def mask(t: Table, seq: int) -> Floats:
    """Return the bytes of the attention mask that each layer with captured attention gets, although no kernel reads it:
    one byte for each pair of a CP rank's token and a token of the sequence, not split over TP (core
    transformer/transformer_layer.py:1111-1121)."""
    return t.has("cuda_graph", CUDA_GRAPH.index("attn")) * 1.0 * t["micro_batch"] * (seq // t["cp"]) * seq


def _moved(m: Model, t: Table) -> dict[str, Floats]:
    """Return, by module of `OFFLOAD_MODULES`, 1 where its saved tensors go to host memory, else 0.

    Megatron-Core skips norms fused into their linear, and norms whose input is a graph's own buffer (core
    transformer/transformer_layer.py:1442-1494). Fully recomputed layers save nothing inside.
    """
    alone = ~t.has("recompute", BIT["full"])
    moved = {word: 1.0 * (t.has("offload_modules", i) & alone) for i, word in enumerate(OFFLOAD_MODULES)}
    attn, router = (t.has("cuda_graph", CUDA_GRAPH.index(w)) for w in ("attn", "moe_router"))
    moved["attn_norm"] = moved["attn_norm"] * ~attn * (m.attention == "mla")
    moved["mlp_norm"] = moved["mlp_norm"] * ~(attn | router)
    return moved


def attention(m: Model, s: Sizes) -> Floats:
    """Count the bytes that one attention block saves with its norm; `layers` counts the layer's input."""
    return (_mla(m, s) if m.attention == "mla" else _gqa(m, s)) + (
        max(s.scores, BF16 * m.wide_heads) * s.pairs * s.keep["core_attn"] * s.here["core_attn"]
    )


def _gqa(m: Model, s: Sizes) -> Floats:
    """Count the bytes that grouped-query attention saves.

    The input norm is fused into the linear, which keeps the norm's output even with recompute. A fused QK norm keeps
    its input; a split one keeps it in FP32, with its normalised copy (bridge
    models/minimax_m2/minimax_m2_provider.py:65-85). Sandwich norms add a norm after the output projection and an FP32
    norm of values (bridge models/gemma/modeling_gemma4.py:1679). An output gate is kept with its input and the product
    that enters the projection (core transformer/attention.py:1624).

    Recomputed attention keeps v as a view of the whole QKV projection, and therefore the projection too (core
    transformer/attention.py:_checkpointed_attention_forward).
    """
    q, k = m.heads * m.head_dim, m.query_groups * m.head_dim
    kv = k + m.query_groups * m.value_dim
    gated = BF16 * q + np.where(s.saved < BF16, 0.0, BF16 * q * s.learns * s.here["attn_proj"])
    normed = (q + k) * m.qk_norm * (3 if m.qk_norm_over == "split_heads" else 1)
    normed = normed + m.sandwich_norms * (m.hidden + 2 * m.query_groups * m.value_dim)
    view = (q + k) * (1.0 - s.keep["core_attn"])
    out = m.heads * m.value_dim * _projected(s) + 4 * m.heads * s.keep["core_attn"]
    projected = (m.hidden * s.saved * s.learns + BF16 * normed) * s.here["qkv_linear"]
    return s.split * (projected + BF16 * ((q + kv) * s.here["core_attn"] + view) + out + gated * m.attention_gate)


def _projected(s: Sizes) -> Floats:
    """Return the bytes per element of attention's output: BF16 from the kernel, plus a quantised projection's copy."""
    return (BF16 + np.where(s.saved < BF16, s.saved, 0.0) * s.learns) * s.here["attn_proj"]


def _mla(m: Model, s: Sizes) -> Floats:
    """Count the bytes that MLA saves: `mla_up_proj` recomputes the up-projected q, k and v; latents and output are
    kept.

    The output of the K/V projection itself is freed: k is concatenated with its rotary part, and v is made contiguous
    (core transformer/multi_latent_attention.py:966-968).
    """
    qk, v = m.qk_nope_dim + m.qk_rope_dim, m.v_head_dim
    latents = (m.q_lora_rank + m.kv_lora_rank) * (BF16 + s.saved * s.learns) + m.qk_rope_dim * BF16
    entered = (m.hidden * s.saved * s.learns * s.keep["layernorm"] + latents) * s.here["qkv_linear"]
    if m.sparse:
        return s.split * (entered + m.heads * v * _projected(s)) + _sparse(m, s)
    up = BF16 * m.heads * (2 * qk + v) * s.keep["mla_up_proj"] * s.here["core_attn"]
    out = m.heads * v * _projected(s) + 4 * m.heads * s.keep["core_attn"]
    return s.split * (entered + up + out)


def _sparse(m: Model, s: Sizes) -> Floats:
    """Count the bytes that sparse attention keeps between its linears (core
    transformer/experimental_attention_variant/dsa_cudnn_kernels.py:2264).

    For each head: the full-width query and the compressed one, which `mla_up_proj` recomputes, the output in the
    latent's width, and a log-sum-exp. For each token, on every TP rank: the compressed key, and what the indexer keeps.
    """
    padded = s.split * blocks.heads(m, s.tp)
    up = s.split * m.heads * (m.qk_nope_dim + m.qk_rope_dim) + padded * blocks.key(m)
    out = padded * (BF16 * m.kv_lora_rank + 4)
    core = (out + s.tokens * BF16 * blocks.key(m)) * s.keep["core_attn"]
    return (BF16 * up * s.keep["mla_up_proj"] + core) * s.here["core_attn"] + _indexer(m, s)


def _indexer(m: Model, s: Sizes) -> Floats:
    """Count the bytes that a layer's own indexer keeps on every TP rank: the indices of the keys that it chose (INT32;
    layers that share the keys only refer to them), the gradients of its loss, and its inputs where sequence parallelism
    has gathered them."""
    learned = BF16 * ((m.indexer_heads + 2) * m.indexer_dim + m.indexer_heads)
    entered = BF16 * (s.tp > 1) * (m.hidden + m.q_lora_rank)
    return s.tokens * (4 * m.indexer_topk + learned + entered) * s.keep["core_attn"] * s.here["core_attn"]


def dense_mlp(m: Model, s: Sizes) -> Floats:
    """Count the bytes that an MLP saves: the norm's output, the first linear's output (two halves with a gate), and the
    product."""
    out = m.ffn_hidden * (_halves(m) + _separate(m, s, 2) + s.saved * s.learns)
    return s.split * s.keep["mlp"] * (m.hidden * s.saved * s.learns + out)


def _halves(m: Model) -> float:
    """Return the bytes, per output element, that an activation function keeps of its input."""
    return (products(m) - 1) * BF16


def _separate(m: Model, s: Sizes, tensors: int) -> float:
    """Count the bytes, per output element, that the separate kernels of a gated activation keep besides its input: both
    factors, and for a routed expert their product too, which the router's probability multiplies (core
    transformer/moe/experts.py:858, transformer/mlp.py:322)."""
    return BF16 * tensors * s.unfused * (products(m) == 3)


def mixer(m: Model, s: Sizes, kind: Mixer) -> Floats:
    """Count the bytes that a Mamba-2 mixer or a gated delta net saves: the norm's output, the tensors between its
    projections, and the second projection's input. Only full recompute (`full` of `RECOMPUTE`) covers it."""
    return s.split * ((m.hidden + kind.inner) * s.saved * s.learns + BF16 * kind.saved)


def moe_mlp(m: Model, s: Sizes) -> Floats:
    """Count the bytes that a MoE block saves: norm output, router, latent projections, routed and shared experts."""
    normed = s.split * m.hidden * (BF16 * s.keep["pre_mlp_norm"] + m.sandwich_norms * AROUND_EXPERTS)
    inside = s.split * m.hidden * m.sandwich_norms * AROUND_ROUTER
    # Count what the projections to the latent width and back save: quantised hidden state and combined output
    entered = np.where(s.saved < BF16, s.saved, 0.0) * m.hidden * (m.moe_latent > 0)
    return normed + s.keep["moe"] * (
        _router(m, s)
        + (s.split * (entered + m.moe_latent * s.saved) * s.learns)
        + experts(m, s)
        + shared(m, s)
        + inside
    )


def _router(m: Model, s: Sizes) -> Floats:
    """Count the bytes of the router's FP32 logits and probabilities and its routing map, over all experts."""
    return s.split * m.experts * 9.0


def experts(m: Model, s: Sizes) -> Floats:
    """Count the bytes that routed experts save: the permuted input, the first grouped linear's output (two halves with
    a gate), and the product, which `moe_act` recomputes."""
    width = m.expert_hidden / s.etp
    halves = _halves(m) * s.here["moe_act"]
    entered = routed_width(m) * s.saved * s.learns * s.here["expert_fc1"]
    product = (s.saved * s.learns + _separate(m, s, 3)) * s.keep["moe_act"]
    return s.routed * (entered + 4 + width * (halves + product))


def shared(m: Model, s: Sizes) -> Floats:
    """Count the bytes that shared experts save; they are split over TP and see every token."""
    each = _halves(m) + _separate(m, s, 2) + s.saved * s.learns
    return s.split * m.shared_expert_hidden * each * s.keep["shared_experts"]


def layers(m: Model, s: Sizes) -> ByKind:
    """Return the bytes that each kind of layer keeps for one microbatch; full recompute keeps only a layer's input."""
    if m.windowed:
        return either(m, layers(without_window(m), s), layers(with_window(m), s))
    entry, full = s.split * m.hidden * BF16, s.keep["full"]
    first, second = entry * s.here["attn_norm" if m.attention == "mla" else "qkv_linear"], entry * s.here["mlp_norm"]
    around, inside = attention(m, s) + adapted(m, s, "attention"), dense_mlp(m, s) + adapted(m, s, "mlp")
    routed, mixed = moe_mlp(m, s) + adapted(m, s, *OF_MOE), adapted(m, s, "mixer")
    if m.hybrid:
        alone = {"dense": entry + full * inside, "mamba": entry + full * (mixer(m, s, blocks.mamba(m)) + mixed)}
        return {"moe": second + full * routed, "attention": first + full * around, **alone}
    out = {"dense": first + full * (around + entry + inside), "moe": first + full * (around + second + routed)}
    if m.linear:
        out["delta"] = entry + full * (mixer(m, s, blocks.delta_net(m)) + mixed + second + routed)
    if m.indexer_every > 1:
        out["reuse"] = out["moe"] - full * _indexer(m, s)
    return out


OF_MOE = ("router", "latent", "experts", "shared")
"""The parts of a MoE block that may have adapters."""
_MODULE = {"mlp": ("mlp",), "experts": ("moe",), "shared": ("moe", "shared_experts"), "latent": ("moe",)}
"""The recompute modules that contain an adapter, by part of the block."""


def adapted(m: Model, s: Sizes, *parts: str) -> Floats:
    """Count the bytes that the adapters of the given parts of a block keep: their inputs, which the frozen linears do
    not keep, and the low-rank intermediate; with dropout, also its result and its mask."""
    if s.adapter is None:
        return np.zeros_like(s.tokens)
    found = {linear: outputs for f in linear_features(m) for linear, outputs in adapters.adapted(m, s.adapter, f)}
    inputs: dict[tuple[object, ...], Floats] = {}
    total = np.zeros_like(s.tokens)
    for linear, outputs in found.items():
        if linear.at not in parts:
            continue
        keep = np.prod([s.keep[word] for word in _MODULE.get(linear.at, ())], axis=0)
        if linear.at == "experts" and linear.split == "inputs":
            keep = keep * s.keep["moe_act"]
        tokens, size = _entering(s, linear)
        rank = adapters.rank_of(m, s.adapter, linear, s.etp)  # type: ignore[arg-type]
        total = total + BF16 * tokens * rank * len(outputs) * keep
        total = total + (BF16 + 1) * size * len(outputs) * (s.adapter.dropout > 0) * keep
        inputs[linear.at, linear.inputs, linear.split] = BF16 * size * _alone(m, s, linear) * keep
    return total + sum(inputs.values())


def linear_features(m: Model) -> tuple[str, ...]:
    """List the kinds of layer whose linears may have an adapter."""
    return tuple(f for f in adapters.linears(m) if f not in ("mtp", "vision"))


def _entering(s: Sizes, linear: Linear) -> tuple[Floats, Floats]:
    """Return (tokens of the low-rank intermediate, elements of the input) of an adapter on this rank.

    A linear that TP splits by outputs reads all tokens, which are gathered.
    """
    if linear.at == "experts":
        return s.routed, s.routed * linear.inputs / (s.etp if linear.split == "inputs" else 1.0)
    if linear.split == "neither":
        return s.split, s.split * linear.inputs
    gathered = s.tokens if linear.split == "outputs" and not (s.adapter and s.adapter.regather) else s.split
    return s.tokens, gathered * linear.inputs


def _alone(m: Model, s: Sizes, linear: Linear) -> Floats | float:
    """Return 1 where only the adapter keeps its input, else 0.

    The attention kernel keeps its own output; the router and the norm before the experts keep the ungathered hidden
    state.
    """
    if linear.name == "linear_proj":
        return float(m.attention_gate)
    hidden = linear.at in ("router", "shared", "latent") and linear.inputs == m.hidden and linear.split != "inputs"
    return 1.0 * (s.tokens > s.split) if hidden and linear.at == "shared" else float(not hidden)


def offloaded(m: Model, s: Sizes) -> ByKind:
    """Return the bytes of one microbatch that wait for backward in host memory; empty if nothing is offloaded."""
    if s.here is HERE:
        return {}
    kept = layers(m, s)
    return {kind: whole - kept[kind] for kind, whole in layers(m, evolve(s, here=HERE)).items()}


def captured(m: Model, s: Sizes, t: Table) -> ByKind:
    """Return the bytes that the CUDA graphs of a layer with experts hold for one microbatch, by kind of layer."""
    if m.windowed:
        return either(m, captured(without_window(m), s, t), captured(with_window(m), s, t))
    attn, router = (t.has("cuda_graph", CUDA_GRAPH.index(w)) for w in ("attn", "moe_router"))
    entry = s.split * m.hidden * BF16
    around = {"moe": attention(m, s) + adapted(m, s, "attention")} | (
        {"delta": mixer(m, s, blocks.delta_net(m))} if m.linear else {}
    )
    around |= {"reuse": around["moe"] - _indexer(m, s)} if m.indexer_every > 1 else {}
    routed = router * (entry * (1.0 + s.keep["pre_mlp_norm"]) + _router(m, s))
    return {kind: attn * (entry + size) + routed for kind, size in around.items()}


def uneven(m: Model, s: Sizes, whole: Floats, case: Case) -> tuple[Floats, Floats]:
    """Return (per layer, per square root of layers): bytes above the mean that a MoE layer's fullest expert rank keeps.

    `whole` is 1 for a whole-iteration graph, whose stash has a fixed size whatever the routing.
    """
    each = s.keep["full"] * s.keep["moe"] * experts(m, s)
    excess = each * (case.imbalance - 1.0) * (1.0 - whole)
    stash = each * (case.stash - 1.0) * whole
    none = np.zeros_like(each)
    return np.where(case.same_rank, stash + excess, stash), np.where(case.same_rank, none, excess)


def working_set(m: Model, s: Sizes, saved: ByKind, whole: Floats, case: Case) -> Floats:
    """Return the bytes of the gradients alive in the largest layer's backward, and of the tensors that it recomputes.

    `saved` is the activations that `layers` keeps, with offloaded ones back on the GPU.
    """
    kept = layers(m, evolve(s, here=HERE, keep={word: np.ones_like(s.tokens) for word in s.keep}))
    again = {kind: np.maximum(size - saved[kind], 0.0) for kind, size in kept.items()}
    routed = s.routed * np.where(whole > 0, case.capacity, case.imbalance)
    moved = BF16 * routed * (case.copies * routed_width(m) + products(m) * m.expert_hidden / s.etp)
    moe = np.maximum.reduce([again[kind] for kind in with_experts(m)]) + moved
    dense = np.maximum.reduce([again[kind] for kind in ("dense", "dense_window") if kind in again])
    dense = dense + BF16 * s.split * (products(m) * m.ffn_hidden + 2 * m.hidden)
    largest = np.maximum(moe, dense if m.dense_layers or "-" in m.layer_pattern else 0.0)
    scans = (again[kind] + BF16 * s.split * one.working for kind, one in blocks.of(m).items())
    attended = 2 * BF16 * s.pairs * (s.scores > 0 or without_window(m).wide_heads)
    indexed = blocks.scratch(s.pairs * s.tp / m.heads) * m.sparse
    return np.maximum.reduce([largest, attended, *scans]) + indexed


def vision(v: Vision, t: Table, trained: tuple[bool, bool]) -> Floats:
    """Count the bytes that the vision tower saves for a microbatch with one image per sample.

    They are whole on each CP and TP rank, except for what TP splits. A frozen tower keeps nothing; trainable mergers
    keep their own input. Full recompute keeps each layer's input.
    """
    encoder, projector = vision_parts(v, t, trained)
    return encoder + projector


def image_mask(m: Model, v: Vision, s: Sizes) -> Floats:
    """Return the bytes of the mask that lets an image's tokens see each other: one byte for each pair of tokens, whole
    on each TP rank, although no kernel reads it (bridge models/gemma_vl/modeling_gemma4_vl.py:366-391)."""
    return s.pairs * s.tp / m.heads * v.pooled


def again(v: Vision, t: Table) -> Floats:
    """Return 1 where full recompute includes the vision tower, else 0."""
    return t.has("recompute", BIT["full"]) * (0.0 if v.replicated else 1.0)


def vision_parts(v: Vision, t: Table, trained: tuple[bool, bool]) -> tuple[Floats, Floats]:
    """Return the bytes of `vision` as (encoder, projector)."""
    tower, projection = trained
    patches = BF16 * t["micro_batch"] * float(v.image_tokens * v.merge**2)
    tp = 1.0 if v.replicated else t["tp"]
    inside = 3 * v.hidden + (7 * v.hidden + 2 * v.ffn_hidden) / tp
    merged = v.hidden * (2 + 2 / tp) * (1 + len(v.deepstack))
    if v.pooled:
        inside, merged = POOLED_LAYER * v.hidden + 4 * v.ffn_hidden, 3 * v.hidden / v.merge**2
    kept = v.hidden + (1 - again(v, t)) * inside
    return patches * v.layers * kept * tower, patches * merged * (tower or projection)
