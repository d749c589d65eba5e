"""Parameters of a model from its facts, layer by layer: written for tests, from the published architectures alone."""

from __future__ import annotations

from moedsl.facts import Model


def language(m: Model) -> int:
    """Parameters of the language model without MTP layers; vocabulary not padded."""
    dense = m.dense_layers * (_attention(m) + _mlp(m, m.ffn_hidden))
    sparse = (m.layers - m.dense_layers) * (_attention(m) + _experts(m))
    return dense + sparse + m.hidden + m.vocab * m.hidden * (1 if m.tied_embeddings else 2)


def mtp(m: Model) -> int:
    """Parameters of the MTP layers: two norms, a projection of both inputs, one expert layer, a final norm."""
    return m.mtp_layers * (2 * m.hidden + 2 * m.hidden * m.hidden + _attention(m) + _experts(m) + m.hidden)


def megatron_only(m: Model) -> int:
    """Parameters that Megatron-Core has and the published model has not.

    Without a q_lora_rank, `linear_q_proj` has a norm of its own behind the layer's input norm
    (megatron/core/transformer/multi_latent_attention.py:505, _resolve_qk_norm_config).
    """
    return m.layers * m.hidden if m.attention == "mla" and not m.q_lora_rank else 0


def vision(m: Model) -> int:
    """Parameters of the vision tower and its mergers; 0 without."""
    v = m.vision
    if v is None:
        return 0
    patches = v.in_channels * v.temporal_patch * v.patch**2 * v.hidden + v.hidden + v.positions * v.hidden
    attention = 3 * v.hidden * v.hidden + 3 * v.hidden + v.hidden * v.hidden + v.hidden
    mlp = 2 * v.hidden * v.ffn_hidden + v.ffn_hidden + v.hidden
    wide = v.hidden * v.merge**2
    merger = wide * wide + wide + wide * v.out_hidden + v.out_hidden
    return (
        patches
        + v.layers * (4 * v.hidden + attention + mlp)
        + merger
        + 2 * v.hidden
        + len(v.deepstack) * (merger + 2 * wide)
    )


def _attention(m: Model) -> int:
    """Attention of one layer and the layer's two norms."""
    return 2 * m.hidden + (_latent(m) if m.attention == "mla" else _grouped(m))


def _grouped(m: Model) -> int:
    q, kv = m.heads * m.head_dim, m.query_groups * m.head_dim
    extra = (
        (q + 2 * kv) * m.qkv_bias
        + m.hidden * m.attention_bias
        + 2 * m.head_dim * m.qk_norm
        + m.heads * m.attention_sinks
    )
    return m.hidden * (q + 2 * kv) + q * m.hidden + extra


def _latent(m: Model) -> int:
    q, rank = m.heads * (m.qk_nope_dim + m.qk_rope_dim), m.q_lora_rank
    query = m.hidden * rank + rank + rank * q if rank else m.hidden * q
    latent = m.hidden * (m.kv_lora_rank + m.qk_rope_dim) + m.kv_lora_rank
    return (
        query + latent + m.kv_lora_rank * m.heads * (m.qk_nope_dim + m.v_head_dim) + m.heads * m.v_head_dim * m.hidden
    )


def _mlp(m: Model, width: int) -> int:
    return 3 * m.hidden * width + (2 * width + m.hidden) * m.mlp_bias


def _experts(m: Model) -> int:
    router = m.hidden * m.experts + m.experts * m.router_bias
    shared = 3 * m.hidden * m.shared_expert_hidden + m.hidden * m.shared_expert_gate
    return router + m.experts * _mlp(m, m.expert_hidden) + shared
