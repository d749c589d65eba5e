"""Model FLOPs as Megatron Bridge reports them (bridge training/utils/flop_utils.py:transformer_flops), for TFLOPS a
GPU.

Forward and backward, causal attention at half the square, MTP layers and logits included, recompute and routing not.
"""

from __future__ import annotations

from moedsl.cost.compute import context
from moedsl.cost.parameters import padded_vocab
from moedsl.facts import Model


def of_token(m: Model, seq: int, tp: int = 1) -> float:
    """FLOPs of one token, forward and backward. Bridge counts the padded vocabulary even where the model has none."""
    moe_layers = m.layers - m.dense_layers + m.mtp_layers
    mlp = (
        3
        * m.hidden
        * (m.ffn_hidden * m.dense_layers + (m.expert_hidden * m.topk + m.shared_expert_hidden) * moe_layers)
    )
    mtp = m.mtp_layers * (3 * m.hidden + 2 * m.hidden**2)
    vocab = padded_vocab(m.vocab, 1280 if m.attention == "mla" else 128, tp)
    logits = m.hidden * vocab * (m.mtp_layers + 1)
    return 6.0 * (mlp + (m.layers + m.mtp_layers) * _attention(m, seq) + mtp + logits)


def _attention(m: Model, seq: int) -> float:
    if m.attention != "mla":
        width = m.heads * m.head_dim
        return m.hidden * (2 * width + 2 * m.query_groups * m.head_dim) + 2 * width * context(m, seq)
    qk = m.qk_nope_dim + m.qk_rope_dim
    query = m.q_lora_rank * (m.hidden + m.heads * qk + 1) if m.q_lora_rank else m.hidden * m.heads * qk
    latent = m.kv_lora_rank * (m.hidden + m.heads * (m.qk_nope_dim + m.v_head_dim) + 1) + m.hidden * m.qk_rope_dim
    core = seq / 2 * m.heads * (qk + m.v_head_dim)
    return query + latent + m.heads * m.v_head_dim * m.hidden + core


def of_step(m: Model, seq: int, global_batch: int, tp: int = 1) -> float:
    """FLOPs of one optimizer step of `global_batch` sequences; the vision tower is not in it."""
    return of_token(m, seq, tp) * seq * global_batch
