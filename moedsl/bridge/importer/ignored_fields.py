"""List configuration keys that change no fact of a model, with the reason for ignoring each."""

from __future__ import annotations

from collections.abc import Mapping

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
        attention_dropout hidden_dropout dropout resid_pdrop initializer_range""",
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
        use_moe_router_bias moe_router_activation moe_router_scaling_factor need_fp32_gate""",
    "clamps of the activation, in the same kernel (core transformer/mlp.py:293)": "swiglu_limits swiglu_limits_shared",
    "how the weight of a norm is stored": "zero_centered",
    "inference, or repeated by another key": """
        use_cache pretraining_tp ep_size max_window_layers sliding_window qk_head_dim num_logits_to_keep
        moe_router_dtype vision_soft_tokens_per_image""",
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
"""The reason for each key. A family that reads one of these keys has it in its own table."""
