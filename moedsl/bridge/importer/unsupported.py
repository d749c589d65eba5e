"""List the families of MoE models that cannot be imported, and what a key says of an unknown one, with the reasons.

Line numbers cite Megatron Bridge 0.6.2, below ``megatron/bridge/``, and Megatron-Core 0.19.2, below ``megatron/core/``.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen


@frozen
class Unsupported:
    """One `model_type`: models of it, and why there is no declaration of them."""

    models: str
    why: str
    bridge: bool = True
    """Whether Megatron Bridge 0.6.2 has a bridge for it."""


_UNCOMPARED = "no published configuration was compared yet with what Megatron Bridge builds of it"
_TOWER = "its vision tower is not Qwen3-VL's, Kimi-K2.5's or Gemma 4's, the only ones whose parts have facts"
_SOUND = "it has an encoder of sound, for which there are no facts"

UNSUPPORTED: Mapping[str, Unsupported] = {
    "NemotronH_Nano_Omni_Reasoning_V3": Unsupported("Nemotron 3 Nano Omni", _SOUND),
    "bailing_moe_v2": Unsupported("Ling 2.0, Ring", _UNCOMPARED),
    "deepseek_v32": Unsupported(
        "DeepSeek-V3.2",
        "Megatron Bridge 0.6.2 has no bridge for DeepseekV32ForCausalLM, which has sparse attention",
        False,
    ),
    "deepseek_v4": Unsupported(
        "DeepSeek-V4 Flash and Pro",
        "Megatron-Core 0.19.2 cannot build its compressed attention and hyper-connections: the variants of attention "
        "are gated_delta_net and dsa (core transformer/transformer_config.py:294). It needs a newer Megatron-Core",
    ),
    "ernie4_5_moe": Unsupported("ERNIE 4.5", _UNCOMPARED),
    "ernie4_5_vl_moe": Unsupported("ERNIE 4.5 VL", _TOWER),
    "glm4_moe_lite": Unsupported("GLM-4.7-Flash", _UNCOMPARED),
    "glm4v_moe": Unsupported("GLM-4.5V", _TOWER),
    "hy_v3": Unsupported("Hunyuan V3", _UNCOMPARED),
    "kimi_k3": Unsupported("Kimi-K3", "Megatron Bridge 0.6.2 has no bridge for KimiK3ForConditionalGeneration", False),
    "kimi_linear": Unsupported("Kimi-Linear", "Megatron Bridge 0.6.2 has no bridge for KimiLinearForCausalLM", False),
    "qwen3_omni_moe": Unsupported("Qwen3-Omni", _SOUND),
    "sarvam_mla": Unsupported("Sarvam 105B", _UNCOMPARED),
    "sarvam_moe": Unsupported("Sarvam 30B", _UNCOMPARED),
    "step3p7": Unsupported(
        "Step-3.7-Flash",
        "Megatron Bridge 0.6.2 bridges Step3p7ForConditionalGeneration (models/stepfun/step37_bridge.py:94), not "
        "Step3p7FlashForCausalLM; its language model is Step-3.5's",
    ),
}

SIGNS: tuple[tuple[str, str], ...] = (
    (r"index_.*|indexer_.*|sparse_attention.*", "sparse attention with an indexer"),
    (r"linear_.*|full_attention_interval|kda_.*", "linear attention in some layers"),
    (r"hybrid_layer_pattern", "layers of windowed attention between layers of full attention"),
    (r"mamba_.*|ssm_.*|hybrid_.*|mtp_hybrid_.*|conv_kernel|attn_layer_.*", "a hybrid with state-space layers"),
    (r"moe_latent_.*|latent_moe_.*|o_lora_rank", "unsupported projections"),
    (r"layer_types|mlp_layer_types|sliding_window_pattern|moe_layers_enum", "layers of several kinds"),
    (r"swa_.*|attention_chunk_size|add_swa_.*|add_full_.*", "windowed layers with shapes of their own"),
    (r"compress_.*|hc_.*|num_hash_layers|attn_res_.*", "unsupported residual or attention paths"),
    (r"attn_output_gate|attention_output_gate|use_head_wise_attn_gate", "gated attention"),
    (r"attention_k_eq_v|num_kv_shared_layers", "shared attention projections"),
    (r"qk_norm_type", "a norm of queries and keys other than `qk_norm`"),
    (r"vision_config|audio_config", "unsupported kind of encoder"),
)
"""Keys, as whole-word patterns, that explain why an unknown architecture cannot be declared."""
