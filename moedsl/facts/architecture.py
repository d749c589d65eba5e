"""Name the fields of Bridge's model that state a fact of the architecture (moedsl/facts/facts.py)."""

from __future__ import annotations

from collections.abc import Mapping

_M = "model."
PLAIN = {
    "layers": "num_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "ffn_hidden": "ffn_hidden_size",
    "topk": "moe_router_topk",
    "max_seq": "seq_length",
    "qk_nope_dim": "qk_head_dim",
    "qk_rope_dim": "qk_pos_emb_head_dim",
    "v_head_dim": "v_head_dim",
}
OR_ZERO = {
    "experts": "num_moe_experts",
    "shared_expert_hidden": "moe_shared_expert_intermediate_size",
    "moe_latent": "moe_latent_size",
    "mtp_layers": "mtp_num_layers",
    "q_lora_rank": "q_lora_rank",
    "kv_lora_rank": "kv_lora_rank",
}
FLAGS = {
    "qk_norm": "qk_layernorm",
    "qkv_bias": "add_qkv_bias",
    "attention_bias": "add_bias_linear",
    "mlp_bias": "add_bias_linear",
    "shared_expert_gate": "moe_shared_expert_gate",
    "tied_embeddings": "share_embeddings_and_output_weights",
    "router_bias": "add_router_bias",
    "gated": "gated_linear_unit",
    "mtp_repeated": "mtp_use_repeated_layer",
    "attention_gate": "attention_output_gate",
}
MIXER = {
    "mamba_heads": "mamba_num_heads",
    "mamba_head_dim": "mamba_head_dim",
    "mamba_state": "mamba_state_dim",
    "mamba_groups": "mamba_num_groups",
}
"""Fields that every provider has; they are meaningful only with a pattern."""
DELTA_NET = {
    "linear_key_heads": "linear_num_key_heads",
    "linear_value_heads": "linear_num_value_heads",
    "linear_key_dim": "linear_key_head_dim",
    "linear_value_dim": "linear_value_head_dim",
}
"""Fields that every provider has; they are meaningful only with gated delta nets."""

INDEXER = {
    "indexer_heads": "dsa_indexer_n_heads",
    "indexer_dim": "dsa_indexer_head_dim",
    "indexer_topk": "dsa_indexer_topk",
    "indexer_every": "dsa_indexer_topk_freq",
    "indexer_leading": "dsa_indexer_skip_topk_offset",
}
"""Fields that every provider has; they are meaningful only with sparse attention."""

FIELDS: Mapping[str, str] = {
    word: _M + name for word, name in {**PLAIN, **OR_ZERO, **FLAGS, **MIXER, **DELTA_NET, **INDEXER}.items()
} | {"query_groups": "model.num_query_groups", "expert_hidden": "model.moe_ffn_hidden_size"}
"""Fact -> its field, for the line that set it."""

SHARED: Mapping[str, str] = {
    _M + name: word
    for name, word in {
        "kv_channels": "head_dim",
        "multi_latent_attention": "attention",
        "moe_layer_freq": "dense_layers",
        "moe_router_num_groups": "routing_groups",
        "moe_router_group_topk": "topk_groups",
        "hybrid_layer_pattern": "layer_pattern",
        "hybrid_override_pattern": "layer_pattern",
        "mtp_hybrid_override_pattern": "mtp_pattern",
        "linear_attention_freq": "linear_every",
        "experimental_attention_variant": "linear_every",
        "window_size": "window",
        "window_attn_skip_freq": "window_every",
        "softmax_type": "attention_sinks",
        "position_embedding_type": "position_embedding_type",
    }.items()
}
"""Fields that state a fact in another form."""
COUNTED = ("model.vocab_size", "model.mtp_num_layers", "model.seq_length")
"""Fields of facts that a run states itself."""


def facts() -> Mapping[str, str]:
    """Each field that only the declaration of a model decides, with the word that declares it."""
    return {**{field: word for word, field in FIELDS.items() if field not in COUNTED}, **SHARED}
