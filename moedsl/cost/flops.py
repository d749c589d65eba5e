"""Count model FLOPs as Megatron Bridge reports them (bridge
training/utils/flop_utils.py:num_floating_point_operations), for TFLOPS per GPU.

The count includes forward and backward, causal attention at half the square, MTP layers and logits, but not recompute
and routing.
"""

from __future__ import annotations

from attrs import evolve

from moedsl.cost import blocks
from moedsl.cost.blocks import counted, deltas, in_mtp, products, routed_width
from moedsl.cost.compute import context
from moedsl.cost.parameters import padded_vocab
from moedsl.facts.facts import Model


def of_token(m: Model, seq: float, tp: int = 1) -> float:
    """Count the FLOPs of one token, forward and backward. Bridge counts the padded vocabulary even if the model does
    not pad it."""
    vocab = padded_vocab(m.vocab, 1280 if m.attention == "mla" else 128, tp)
    logits = m.hidden * vocab * (m.mtp_layers + 1)
    return 6.0 * (logits + (_hybrid(m, seq) if m.hybrid else _transformer(m, seq)))


def _transformer(m: Model, seq: float) -> float:
    """Count the products of the layers as Bridge's `transformer_flops` does.

    If windows have a shape of their own, the model states no frequency, and Bridge counts every layer as windowed, with
    the other layers' shape (:1046). If they have a number of heads of their own, the model states only which layers
    have a window, and Bridge counts none (bridge models/stepfun/step35_provider.py:115).
    """
    m = evolve(m, window_every=0, window=0 if m.window_heads else m.window) if m.windowed else m
    moe_layers = m.layers - m.dense_layers + m.mtp_layers
    mlp = products(m) * m.hidden * m.ffn_hidden * m.dense_layers + _experts(m) * moe_layers
    mtp = m.mtp_layers * (3 * m.hidden + 2 * m.hidden**2)
    delta = deltas(m, 0, m.layers) + m.mtp_layers * in_mtp(m).get("delta", 0)
    # the list of windowed layers has no entries for MTP, so MTP layers count as full (bridge
    # training/utils/flop_utils.py:1053-1056)
    attended = (m.layers + m.mtp_layers - delta) * _attention(m, seq) + m.mtp_layers * (
        2 * m.heads * m.head_dim * (seq / 2 - context(m, seq)) if m.window_every else 0.0
    )
    mixed = 0.0
    if delta:  # a gated delta net: its projections, its convolution, and four products with each head's state
        mixer, qk = blocks.delta_net(m), m.linear_key_heads * m.linear_key_dim
        scan = 4 * m.linear_value_heads * m.linear_value_dim**2
        mixed = delta * (m.hidden * (mixer.projected + mixer.inner) + 4 * (2 * qk + mixer.inner) + scan)
    return mlp + attended + mixed + mtp


def _hybrid(m: Model, seq: float) -> float:
    """Count the products of the layers as Bridge's `hybrid_flops` does: MTP once for each depth, without the projection
    of its two hidden states, and a mixer twice as wide as the hidden state, whatever its heads."""
    wide, groups = 2 * m.hidden, m.mamba_groups * m.mamba_state
    of = {
        "mamba": m.hidden * (3 * wide + 2 * groups + m.mamba_heads) + 3.5 * wide * m.mamba_state,
        "attention": _attention(m, seq),
        "moe": _experts(m),
        "dense": products(m) * m.hidden * m.ffn_hidden,
    }
    layers = counted(m.layer_pattern + m.mtp_pattern * m.mtp_layers)
    return sum(of[kind] * n for kind, n in layers.items())


def _experts(m: Model) -> float:
    """Count a token's products in routed experts, the projections to their width and back, and shared experts, without
    the router."""
    routed = products(m) * routed_width(m) * m.expert_hidden * m.topk + 2 * m.hidden * m.moe_latent
    return routed + products(m) * m.hidden * m.shared_expert_hidden


def _attention(m: Model, seq: float) -> float:
    if m.attention != "mla":
        width = m.heads * m.head_dim
        projected = (2 + m.attention_gate) * width + 2 * m.query_groups * m.head_dim
        return m.hidden * projected + 2 * width * context(m, seq)
    qk = m.qk_nope_dim + m.qk_rope_dim
    query = m.q_lora_rank * (m.hidden + m.heads * qk + 1) if m.q_lora_rank else m.hidden * m.heads * qk
    latent = m.kv_lora_rank * (m.hidden + m.heads * (m.qk_nope_dim + m.v_head_dim) + 1) + m.hidden * m.qk_rope_dim
    core = seq / 2 * m.heads * (qk + m.v_head_dim)
    return query + latent + m.heads * m.v_head_dim * m.hidden + core


def of_step(m: Model, seq: int, global_batch: int, tp: int = 1, span: float = 0) -> float:
    """Count the FLOPs of one optimizer step of `global_batch` sequences, without the vision tower. For packed samples,
    `span` is the number of tokens that a token attends to (bridge training/utils/flop_utils.py:306)."""
    return of_token(m, span or seq, tp) * seq * global_batch
