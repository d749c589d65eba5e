"""List what the importer knows by name: names of models, keys that change no fact, and families that cannot be
imported.

Line numbers cite Megatron Bridge 0.6.2, below ``megatron/bridge/``, and Megatron-Core 0.19.2, below ``megatron/core/``.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

NAMES: Mapping[str, str] = {
    "google/gemma-4-26B-A4B": "gemma4_26b_a4b",
    "google/gemma-4-26B-A4B-it": "gemma4_26b_a4b_it",
    "Qwen/Qwen3-30B-A3B": "qwen3_30b_a3b",
    "Qwen/Qwen3-235B-A22B": "qwen3_235b_a22b",
    "Qwen/Qwen3-Coder-480B-A35B-Instruct": "qwen3_coder_480b_a35b",
    "Qwen/Qwen3-Next-80B-A3B-Instruct": "qwen3_next_80b_a3b",
    "Qwen/Qwen3.5-35B-A3B": "qwen35_vl_35b_a3b",
    "Qwen/Qwen3.5-122B-A10B": "qwen35_vl_122b_a10b",
    "Qwen/Qwen3.5-397B-A17B": "qwen35_vl_397b_a17b",
    "Qwen/Qwen3-VL-30B-A3B-Instruct": "qwen3_vl_30b_a3b",
    "Qwen/Qwen3-VL-235B-A22B-Instruct": "qwen3_vl_235b_a22b",
    "LGAI-EXAONE/K-EXAONE-236B-A23B": "exaone_moe_236b_a23b",
    "XiaomiMiMo/MiMo-V2-Flash": "mimo_v2_flash",
    "allenai/OLMoE-1B-7B-0125": "olmoe_7b",
    "deepseek-ai/DeepSeek-V2": "deepseek_v2",
    "deepseek-ai/DeepSeek-V2-Lite": "deepseek_v2_lite",
    "deepseek-ai/DeepSeek-V3": "deepseek_v3",
    "moonshotai/Kimi-K2-Instruct": "kimi_k2",
    "moonshotai/Kimi-K2.5": "kimi_k25",
    "moonshotai/Moonlight-16B-A3B": "moonlight_16b",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "nemotron_3_nano",
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16": "nemotron_3_super",
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": "nemotron_3_ultra",
    "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16": "nemotron_3_5_lightning",
    "openai/gpt-oss-20b": "gpt_oss_20b",
    "openai/gpt-oss-120b": "gpt_oss_120b",
    "stepfun-ai/Step-3.5-Flash": "step35_196b_a11b",
    "zai-org/GLM-5": "glm5_744b",
    "zai-org/GLM-5.1": "glm51_744b",
    "zai-org/GLM-5.2": "glm52_744b",
    "zai-org/GLM-4.5": "glm45_355b",
    "zai-org/GLM-4.5-Air": "glm45_air_106b",
}
"""Hugging Face id -> the name that Megatron Bridge's recipes use."""

REVISIONS: Mapping[str, tuple[str, str]] = {
    "zai-org/GLM-5.2": ("4d67f66cc64d3219133b767c253b2ad1425c6c88", 'bridge "recipes/glm/gb200/glm5.py:30"'),
    "Qwen/Qwen3-30B-A3B": ("ad44e777bcd18fa416d9da3bd8f70d33ebb85d39", 'bridge "recipes/qwen/h100/qwen3_moe.py:29"'),
    "moonshotai/Moonlight-16B-A3B": (
        "476b36a473d4467f94469414bef6cee75c9c8172",
        'bridge "recipes/moonlight/h100/moonlight_16b.py:30"',
    ),
    "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16": (
        "b3caaabed0263651a17dc1f2d4ce97e794f76c44",
        'bridge "recipes/nemotronh/h100/nemotron_3_nano.py:37"',
    ),
}
"""Hugging Face id -> the commit that Megatron Bridge's recipes use, with its line."""


_GROUPS = {
    "token ids and prompts": """
        bos_token_id eos_token_id pad_token_id sep_token_id unk_token_id decoder_start_token_id image_token_id
        video_token_id vision_start_token_id vision_end_token_id forced_bos_token_id forced_eos_token_id
        tokenizer_class prefix media_placeholder_token_id ignore_index use_unified_vision_chunk video_placeholder
        audio_token_id boa_token_id boi_token_id eoa_token_id eoa_token_index eoi_token_id""",
    "number formats and stored weights": """
        torch_dtype dtype mamba_ssm_dtype quantization_config use_bfloat16 torchscript tf_legacy_loss""",
    "where code and versions came from": """
        model_type architectures auto_map transformers_version finetuning_task task_specific_params""",
    "tags of tools that fine-tune": """
        unsloth_fixed unsloth_version attn_implementation pad_token bos_token eos_token unk_token chat_template
        gradient_checkpointing""",
    "dropout and initialisation": """
        attention_dropout hidden_dropout dropout resid_pdrop initializer_range embedding_dropout output_dropout""",
    "position encoding: no shape depends on it": """
        rope_theta rope_scaling rope_parameters rope_interleave partial_rotary_factor initial_context_length
        rotary_dim init_pos_emb_time swa_rope_theta attention_value_scale mrope_section indexer_rope_interleave
        max_position_embeddings partial_rotary_factors""",
    "norm epsilon": "rms_norm_eps layer_norm_eps layer_norm_epsilon norm_eps layernorm_epsilon projector_ln_eps",
    "a state-space mixer's start, clamp, kernels and cache; its width is heads times their dimension": """
        time_step_min time_step_max time_step_floor time_step_limit rescale_prenorm_residual use_mamba_kernels
        mamba_ssm_cache_dtype expand""",
    "MTP modules that Bridge does not build (models/minimax_m2/minimax_m2_bridge.py:126)": """
        use_mtp num_mtp_modules mtp_transformer_layers""",
    "a plan decides it": "moe_shared_expert_overlap",
    "routing scalars and losses: no shape depends on them": """
        norm_topk_prob routed_scaling_factor topk_method router_aux_loss_coef aux_loss_alpha
        seq_aux output_router_logits router_jitter_noise scoring_func experts_per_token norm_expert_weight
        use_moe_router_bias moe_router_activation moe_router_scaling_factor need_fp32_gate
        mtp_loss_scaling_factor moe_norm_min router_scaling_factor route_norm enable_moe_fp32_combine""",
    "clamps of the activation, in the same kernel (core transformer/mlp.py:293)": "swiglu_limits swiglu_limits_shared",
    "how the weight of a norm is stored": "zero_centered",
    "inference, or repeated by another key": """
        use_cache pretraining_tp ep_size max_window_layers sliding_window qk_head_dim num_logits_to_keep
        moe_router_dtype router_dtype vision_soft_tokens_per_image""",
    "buffers that scale pooled patches": "standardize",
    "the width that latent attention does not use": "head_dim",
    "generation and library defaults": """
        bad_words_ids begin_suppress_tokens chunk_size_feed_forward cross_attention_hidden_size diversity_penalty
        do_sample early_stopping encoder_no_repeat_ngram_size exponential_decay_length_penalty id2label is_decoder
        label2id length_penalty max_length min_length no_repeat_ngram_size num_beam_groups num_beams
        num_return_sequences output_attentions output_hidden_states output_scores problem_type
        remove_invalid_values repetition_penalty return_dict return_dict_in_generate suppress_tokens temperature
        tie_encoder_decoder top_k top_p typical_p""",
}

HARMLESS: Mapping[str, str] = {key: why for why, keys in _GROUPS.items() for key in keys.split()}
"""Ignored key -> the reason. A family that reads one of these keys has it in its own table."""


@frozen
class Unsupported:
    """A `model_type` that cannot be imported: its models, and the reason."""

    models: str
    why: str
    bridge: bool = True
    """Whether Megatron Bridge 0.6.2 has a bridge for it."""


_TOWER = "its vision tower is not Qwen3-VL's, Kimi-K2.5's or Gemma 4's, the only ones whose parts have facts"
_SOUND = "it has an encoder of sound, for which there are no facts"

UNSUPPORTED: Mapping[str, Unsupported] = {
    "NemotronH_Nano_Omni_Reasoning_V3": Unsupported("Nemotron 3 Nano Omni", _SOUND),
    "deepseek_v4": Unsupported(
        "DeepSeek-V4 Flash and Pro",
        "Megatron-Core 0.19.2 cannot build its compressed attention and hyper-connections: the variants of attention "
        "are gated_delta_net and dsa (core transformer/transformer_config.py:294). It needs a newer Megatron-Core",
    ),
    "ernie4_5_vl_moe": Unsupported("ERNIE 4.5 VL", _TOWER),
    "glm4v_moe": Unsupported("GLM-4.5V", _TOWER),
    "qwen3_omni_moe": Unsupported("Qwen3-Omni", _SOUND),
    "step3p7": Unsupported(
        "Step-3.7-Flash",
        "Megatron Bridge 0.6.2 bridges Step3p7ForConditionalGeneration (models/stepfun/step37_bridge.py:94), not "
        "Step3p7FlashForCausalLM; its language model is Step-3.5's",
    ),
    "afmoe": Unsupported("Trinity", "", False),
    "bailing_moe": Unsupported("Ling 1", "", False),
    "dbrx": Unsupported("DBRX", "", False),
    "deepseek": Unsupported("DeepSeek-MoE-16B", "", False),
    "deepseek_v32": Unsupported("DeepSeek-V3.2", "it has sparse attention", False),
    "dots1": Unsupported("dots.llm1", "", False),
    "flex_olmo": Unsupported("FlexOlmo", "", False),
    "granitemoe": Unsupported("Granite 3 MoE", "", False),
    "granitemoehybrid": Unsupported("Granite 4", "it has state-space layers", False),
    "hunyuan_v1_moe": Unsupported("Hunyuan-A13B", "", False),
    "jamba": Unsupported("Jamba", "it has state-space layers", False),
    "kimi_k3": Unsupported("Kimi-K3", "it has linear attention", False),
    "kimi_linear": Unsupported("Kimi-Linear", "it has linear attention", False),
    "lfm2_moe": Unsupported("LFM2-8B-A1B", "it has short convolutions", False),
    "llama4": Unsupported("Llama 4 Scout and Maverick", "", False),
    "longcat_flash": Unsupported("LongCat-Flash", "two attentions a layer, experts that compute nothing", False),
    "minimax": Unsupported("MiniMax-Text-01, M1", "it has linear attention", False),
    "phimoe": Unsupported("Phi-3.5-MoE", "", False),
}
"""`model_type` -> why it is not imported. If Bridge has no bridge for it, the reason may be empty."""

ARCHITECTURES: Mapping[str, tuple[str, ...]] = {
    name: tuple(of)
    for name, *of in map(
        str.split,
        """
        BailingMoeV2ForCausalLM bailing_moe_v2
        DeepseekV2ForCausalLM deepseek_v2
        DeepseekV3ForCausalLM deepseek_v3 kimi_k2
        DeepseekV4ForCausalLM deepseek_v4
        Ernie4_5_MoeForCausalLM ernie4_5_moe
        Ernie4_5_VLMoeForConditionalGeneration ernie4_5_vl_moe
        ExaoneMoEForCausalLM exaone_moe
        ExaoneMoeForCausalLM exaone_moe
        Gemma4ForCausalLM gemma4_text
        Gemma4ForConditionalGeneration gemma4
        Glm4MoeForCausalLM glm4_moe
        Glm4MoeLiteForCausalLM glm4_moe_lite
        Glm4vMoeForConditionalGeneration glm4v_moe
        GlmMoeDsaForCausalLM glm_moe_dsa
        GptOssForCausalLM gpt_oss
        HYV3ForCausalLM hy_v3
        KimiK25ForConditionalGeneration kimi_k25
        KimiK2ForCausalLM kimi_k2
        MiMoV2FlashForCausalLM mimo_v2_flash
        MiniMaxM2ForCausalLM minimax_m2
        MiniMaxM3SparseForConditionalGeneration minimax_m3_vl minimax_m3
        NemotronHForCausalLM nemotron_h
        NemotronH_Nano_Omni_Reasoning_V3 NemotronH_Nano_Omni_Reasoning_V3
        OlmoeForCausalLM olmoe
        Qwen3MoeForCausalLM qwen3_moe
        Qwen3NextForCausalLM qwen3_next
        Qwen3OmniMoeForConditionalGeneration qwen3_omni_moe
        Qwen3VLMoeForConditionalGeneration qwen3_vl_moe
        Qwen3_5MoeForCausalLM qwen3_5_moe_text
        Qwen3_5MoeForConditionalGeneration qwen3_5_moe
        SarvamMLAForCausalLM sarvam_mla
        SarvamMoEForCausalLM sarvam_moe
        Step3p5ForCausalLM step3p5
        Step3p7ForConditionalGeneration step3p7
        """.strip().splitlines(),
    )
}
"""The class for which Megatron Bridge registers a bridge -> the families of its models, by `model_type`."""

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
