"""Bytes that one microbatch leaves for backward in each kind of layer, and the largest working set beside them.

What is kept is what the modules of Megatron-Core 0.19.2 with Transformer Engine save: the input of each norm, linear
and activation function, and of attention its q, k, v, output and log-sum-exp (no score matrix: fused attention).
With TP there is SP, so tensors between the linears are split over TP as well. `tokens` is a rank's: micro_batch x
seq / cp. Selective recompute drops outputs by module
(megatron/core/transformer/transformer_config.py:recompute_modules).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from attrs import evolve, frozen

from moedsl.axes import BY_NAME, CUDA_GRAPH, RECOMPUTE
from moedsl.cost.formats import BF16, SAVED, by_precision
from moedsl.cost.rows import Floats, Table
from moedsl.cost.taken import Taken
from moedsl.facts import Model, Vision

STASH, CAPACITY = 1.2, 1.5
"""A whole-iteration graph holds what the experts save in a paged stash of STASH times the mean, and what is at work in
buffers of CAPACITY times it, whatever the routing (`emit/fields.py`; core transformer/moe/paged_stash.py:599)."""
ALLTOALL = BY_NAME["dispatcher"].words.index("alltoall")
BIT = {word: i for i, word in enumerate(RECOMPUTE)}


@frozen
class Sizes:
    """Tokens and number formats by row."""

    tokens: Floats
    """Tokens of a microbatch on a rank, sequence parallelism not counted."""
    split: Floats
    """Those tokens over TP: what sequence parallelism leaves on a rank."""
    routed: Floats
    """Token copies that reach this rank's experts, at the mean."""
    saved: Floats
    """Bytes of a number in a linear's saved input."""
    tp: Floats
    etp: Floats
    learns: float
    """1 where the language model's weights learn; a frozen linear does not save its input (te
    pytorch/module/linear.py, `weight.requires_grad`)."""
    keep: Mapping[str, Floats]
    """1 where a recompute module's tensors are kept, 0 where they are recomputed; `pre_mlp_norm` is the norm before a
    MoE layer."""


def sizes(m: Model, t: Table, seq: int, learns: bool = True) -> Sizes:
    """What the formulas below share."""
    tokens = t["micro_batch"] * (seq / t["cp"])
    split = tokens / t["tp"]
    keep = {word: 1.0 - t.has("recompute", bit) for word, bit in BIT.items()}
    keep["pre_mlp_norm"] = np.maximum(keep["layernorm"], _norm_leaves_graph(t))
    routed = split * m.topk * t["etp"] * 1.0
    return Sizes(tokens, split, routed, by_precision(SAVED, t), t["tp"] * 1.0, t["etp"] * 1.0, float(learns), keep)


def _norm_leaves_graph(t: Table) -> Floats:
    """1 where a captured router hands the norm's output out of its graph, so that it is kept whatever is recomputed.

    Only a graph that ends after alltoall's preprocessing does not (core transformer/transformer_layer.py:458-499).
    """
    router, inside = (t.has("cuda_graph", CUDA_GRAPH.index(w)) for w in ("moe_router", "moe_preprocess"))
    return 1.0 * (router & ~(inside & (t["dispatcher"] == ALLTOALL)))


def attention(m: Model, s: Sizes) -> Floats:
    """One attention block with its norm; the layer's input is counted by the layer."""
    return _mla(m, s) if m.attention == "mla" else _gqa(m, s)


def _gqa(m: Model, s: Sizes) -> Floats:
    """The input norm is fused into the linear, which keeps its output whatever is recomputed.

    Recomputed attention keeps v as a view of the whole projection, and that with it (core
    transformer/attention.py:_checkpointed_attention_forward).
    """
    q, kv = m.heads * m.head_dim, m.query_groups * m.head_dim
    normed, view = (q + kv) * m.qk_norm, (q + kv) * (1.0 - s.keep["core_attn"])
    out = q * (BF16 + np.where(s.saved < BF16, s.saved, 0.0) * s.learns) + 4 * m.heads * s.keep["core_attn"]
    return s.split * (m.hidden * s.saved * s.learns + BF16 * (q + 2 * kv + normed + view) + out)


def _mla(m: Model, s: Sizes) -> Floats:
    """Up-projected q, k and v are what `mla_up_proj` recomputes; the latents and the output stay.

    The projection of k and v itself is freed: k is joined with its rotary part and v made contiguous (core
    transformer/multi_latent_attention.py:966-968)."""
    qk, v = m.qk_nope_dim + m.qk_rope_dim, m.v_head_dim
    latents = (m.q_lora_rank + m.kv_lora_rank) * (BF16 + s.saved * s.learns) + m.qk_rope_dim * BF16
    up = BF16 * m.heads * (2 * qk + v) * s.keep["mla_up_proj"]
    out = m.heads * v * (BF16 + np.where(s.saved < BF16, s.saved, 0.0) * s.learns) + 4 * m.heads * s.keep["core_attn"]
    return s.split * (m.hidden * s.saved * s.learns * s.keep["layernorm"] + latents + up + out)


def dense_mlp(m: Model, s: Sizes) -> Floats:
    """A gated MLP: norm output, both halves of the first linear, the product."""
    return s.split * s.keep["mlp"] * (m.hidden * s.saved * s.learns + m.ffn_hidden * (2 * BF16 + s.saved * s.learns))


def moe_mlp(m: Model, s: Sizes) -> Floats:
    """Norm output, router, routed experts and shared experts."""
    normed = s.split * m.hidden * BF16 * s.keep["pre_mlp_norm"]
    return normed + s.keep["moe"] * (_router(m, s) + experts(m, s) + shared(m, s))


def _router(m: Model, s: Sizes) -> Floats:
    """FP32 logits and probabilities and the routing map, over all experts."""
    return s.split * m.experts * 9.0


def experts(m: Model, s: Sizes) -> Floats:
    """The permuted input, both halves of the first grouped linear and the product, which `moe_act` recomputes."""
    width = m.expert_hidden / s.etp
    return s.routed * (m.hidden * s.saved * s.learns + 4 + width * (2 * BF16 + s.saved * s.learns * s.keep["moe_act"]))


def shared(m: Model, s: Sizes) -> Floats:
    """Shared experts are split over TP and see every token."""
    return s.split * m.shared_expert_hidden * (2 * BF16 + s.saved * s.learns) * s.keep["shared_experts"]


def layers(m: Model, s: Sizes) -> tuple[Floats, Floats]:
    """(dense layer, MoE layer): bytes kept for one microbatch; full recompute keeps the layer's input alone."""
    entry = s.split * m.hidden * BF16
    inside = attention(m, s) + entry
    return tuple(entry + s.keep["full"] * (inside + mlp) for mlp in (dense_mlp(m, s), moe_mlp(m, s)))  # type: ignore[return-value]


def captured(m: Model, s: Sizes, t: Table) -> Floats:
    """Bytes that the graphs of one MoE layer hold for one microbatch."""
    attn, router = (t.has("cuda_graph", CUDA_GRAPH.index(w)) for w in ("attn", "moe_router"))
    entry = s.split * m.hidden * BF16
    return attn * (entry + attention(m, s)) + router * (entry * (1.0 + s.keep["pre_mlp_norm"]) + _router(m, s))


def uneven(m: Model, s: Sizes, whole: Floats, taken: Taken) -> tuple[Floats, Floats]:
    """(for each layer, over the root of the layers): bytes that the fullest expert rank keeps of a MoE layer above the
    mean. `whole` is 1 where a whole-iteration graph's stash has its size whatever the routing."""
    each = s.keep["full"] * s.keep["moe"] * experts(m, s)
    excess = each * (taken.imbalance - 1.0) * (1.0 - whole)
    stash = each * (STASH - 1.0) * whole
    none = np.zeros_like(each)
    return (stash + excess, none) if taken.same_rank else (stash, excess)


def working_set(m: Model, s: Sizes, whole: Floats, taken: Taken) -> Floats:
    """Gradients alive in the backward of the largest layer, and what it recomputes."""
    kept = {word: np.ones_like(s.tokens) for word in s.keep}
    again = [np.maximum(a - b, 0.0) for a, b in zip(layers(m, evolve(s, keep=kept)), layers(m, s), strict=True)]
    routed = s.routed * np.where(whole > 0, CAPACITY, taken.imbalance)
    moe = again[1] + BF16 * routed * (taken.copies * m.hidden + 3 * m.expert_hidden / s.etp)
    dense = again[0] + BF16 * s.split * (3 * m.ffn_hidden + 2 * m.hidden)
    return np.maximum(moe, dense if m.dense_layers else 0.0)


def logits(m: Model, s: Sizes) -> tuple[Floats, Floats]:
    """(loss, MTP): bytes of the vocabulary's logits and their gradient in BF16.

    Transformer Engine's fused cross entropy, which NVIDIA's recipes choose, makes no FP32 copy; the native one would.
    """
    each = s.split * m.vocab
    return each * 4.0, each * 4.0


def vision(v: Vision, t: Table, trained: tuple[bool, bool]) -> Floats:
    """A microbatch's images in the tower: one image a sample, whole on each CP and TP rank but for what TP splits.

    A frozen tower keeps nothing; trainable mergers keep their own input. Full recompute keeps each layer's input.
    """
    encoder, projector = vision_parts(v, t, trained)
    return encoder + projector


def vision_parts(v: Vision, t: Table, trained: tuple[bool, bool]) -> tuple[Floats, Floats]:
    """(encoder, projector) of `vision`."""
    tower, projection = trained
    patches = BF16 * t["micro_batch"] * float(v.image_tokens * v.merge**2)
    inside = 3 * v.hidden + (7 * v.hidden + 2 * v.ffn_hidden) / t["tp"]
    kept = v.hidden + (1 - t.has("recompute", BIT["full"])) * inside
    merged = v.hidden * (2 + 2 / t["tp"]) * (1 + len(v.deepstack))
    return patches * v.layers * kept * tower, patches * merged * (tower or projection)
