"""List what the importer reads for each Hugging Face `model_type`: tables, no code.

Line numbers cite Megatron Bridge 0.6.2, below ``megatron/bridge/``.
"""

from __future__ import annotations

from collections.abc import Mapping

from moedsl.bridge.importer.layers import (
    Every,
    Firsts,
    Indexes,
    Leading,
    Length,
    Marked,
    Numbers,
    Pattern,
    Sharing,
    Windows,
    Zeros,
)
from moedsl.bridge.importer.rules import (
    Alike,
    Const,
    Else,
    Family,
    Flag,
    Given,
    HeadDim,
    Inside,
    Int,
    OfMtp,
    OfText,
    OfWindows,
    Only,
    Positions,
    Product,
    Repeated,
    Rule,
    Times,
    Unbuilt,
)  # fmt: skip


def _ints(**keys: str) -> dict[str, Rule]:
    """Make a rule for each fact that is a whole number, from its key."""
    return {fact: Int(key) for fact, key in keys.items()}


_CORE: Mapping[str, Rule] = {
    **_ints(layers="num_hidden_layers", hidden="hidden_size", vocab="vocab_size", max_seq="max_position_embeddings"),
    **_ints(heads="num_attention_heads", query_groups="num_key_value_heads"),
    "head_dim": HeadDim(),
    **_ints(ffn_hidden="intermediate_size", topk="num_experts_per_tok"),
    "routing_groups": Int("n_group", absent=1, null=1),
    "topk_groups": Int("topk_group", absent=1, null=1),
    "position_embedding_type": Positions(),
}
_TIED: Mapping[str, Rule] = {"tied_embeddings": Flag("tie_word_embeddings", absent=False)}
_MTP = Int("num_nextn_predict_layers", least=0, absent=0, null=0, note="num_nextn_predict_layers 0: no MTP layer")

_EXPERT_BIAS = "The router's expert bias is a buffer, not a parameter."
_SILU = Only("hidden_act", ("silu",), "the expert and dense MLPs are SwiGLU")
_UNTIED = Only("tie_word_embeddings", (False,), "Megatron Bridge always unties the embeddings of this family")
_SIGMOID = Only("scoring_func", ("sigmoid",), "Megatron Bridge builds this family's router with that score")
_NO_BIAS = Only("attention_bias", (False,), "Megatron Bridge builds this family without attention biases")
_EVERY = (
    Only("decoder_sparse_step", (1,), "Megatron Bridge builds experts in every layer of this family"),
    Only("mlp_only_layers", ([], None), "Megatron Bridge builds experts in every layer of this family"),
)
_NO_WINDOW = (Only("use_sliding_window", (False, None), "Megatron Bridge builds this family with full attention"),)
_QWEN_ONLY = (_SILU, _NO_BIAS, *_EVERY, *_NO_WINDOW)


_NO_Q_LORA = (
    "q_lora_rank null: queries are not compressed; Megatron-Core normalises the input of linear_q_proj once more"
)


def _mla(bridge: str, qk_norm: int, mla: int) -> dict[str, Rule]:
    """Make the rules of the DeepSeek architecture: latent attention, leading dense layers, shared experts."""
    return {
        **_CORE,
        "head_dim": Int("qk_rope_head_dim"),
        "attention": Const("mla", f"{bridge}:{mla}"),
        "position_embedding_type": Const("rope", "models/conversion/model_bridge.py:685"),
        "qk_norm": Const(True, f"{bridge}:{qk_norm}"),
        "q_lora_rank": Int("q_lora_rank", null=0, note=_NO_Q_LORA),
        **_ints(kv_lora_rank="kv_lora_rank", qk_nope_dim="qk_nope_head_dim", qk_rope_dim="qk_rope_head_dim"),
        **_ints(v_head_dim="v_head_dim", experts="n_routed_experts", expert_hidden="moe_intermediate_size"),
        "shared_expert_hidden": Product("n_shared_experts", "moe_intermediate_size"),
        "dense_layers": Int("first_k_dense_replace", least=0),
        "mtp_layers": _MTP,
    }


_MLA_NOTES = (
    "head_dim is Megatron's kv_channels, which Bridge takes from qk_rope_head_dim; latent attention does not use it.",
    _EXPERT_BIAS,
)


def _mla_only(score: str) -> tuple[Only, ...]:
    return (
        _SILU,
        _NO_BIAS,
        _UNTIED,
        Only("moe_layer_freq", (1,), "after the leading dense layers each layer has experts"),
        Only("scoring_func", (score,), "Megatron Bridge builds this family's router with that score"),
    )


_QWEN3_MOE: Mapping[str, Rule] = _CORE | {
    "qk_norm": Const(True, "models/qwen/qwen3_moe_bridge.py:60"),
    **_ints(experts="num_experts", expert_hidden="moe_intermediate_size"),
}
_VISION: Mapping[str, Rule] = {
    **_ints(layers="depth", hidden="hidden_size", ffn_hidden="intermediate_size", heads="num_heads"),
    **_ints(patch="patch_size", temporal_patch="temporal_patch_size", merge="spatial_merge_size"),
    **_ints(in_channels="in_channels", positions="num_position_embeddings", out_hidden="out_hidden_size"),
    "deepstack": Indexes("deepstack_visual_indexes"),
}
_TEXT_TYPE = Only("model_type", ("qwen3_vl_moe_text", "qwen3_vl_moe"), "another language model")
_VISION_TYPE = Only("model_type", ("qwen3_vl_moe", "qwen3_vl_moe_vision"), "another vision tower")
_VISION_GELU = Only("hidden_act", ("gelu_pytorch_tanh",), "the vision tower's MLP is a plain GELU")
_TIED_ABOVE = Only("tie_word_embeddings", (False,), "it is read at the top of the configuration")


def _gated_delta(bridge: str, qk_norm: int, gate: int, shared: int) -> Mapping[str, Rule]:
    """Make the rules of layers with a gated delta net, gated full attention in between, and experts in each layer."""
    return {
        **_CORE,
        "qk_norm": Const(True, f"{bridge}:{qk_norm}"),
        "attention_gate": Const(True, f"{bridge}:{gate}"),
        "linear_every": Every(),
        **_ints(linear_key_heads="linear_num_key_heads", linear_value_heads="linear_num_value_heads"),
        **_ints(linear_key_dim="linear_key_head_dim", linear_value_dim="linear_value_head_dim"),
        **_ints(experts="num_experts", expert_hidden="moe_intermediate_size"),
        "shared_expert_hidden": Int("shared_expert_intermediate_size"),
        "shared_expert_gate": Const(True, f"{bridge}:{shared}"),
    }


_DELTA_NET = ("One layer in linear_every has full attention, the others a gated delta net and its convolution of 4.",)
_GATED_DELTA_ONLY = (
    _SILU,
    *_EVERY,
    *_NO_WINDOW,
    Only("linear_conv_kernel_dim", (4,), "memory and time of a gated delta net are known for a convolution of 4"),
)
_NEXT = "models/qwen/qwen3_next_bridge.py"
_QWEN3_NEXT: Mapping[str, Rule] = {
    **_gated_delta(_NEXT, 64, 81, 75),
    **_TIED,
    "position_embedding_type": Const("rope", f"{_NEXT}:60"),
    "mtp_layers": Else(Int("mtp_num_hidden_layers", least=0), Const(1, "recipes/qwen/h100/qwen3_next.py:63")),
}
_QWEN35 = "models/qwen/qwen35_bridge.py"
_QWEN3_5_MOE: Mapping[str, Rule] = {
    **_gated_delta(_QWEN35, 55, 60, 96),
    "ffn_hidden": Else(Int("intermediate_size"), Times(4, "hidden_size", "transformer/transformer_config.py:1330")),
    "mtp_layers": Int("mtp_num_hidden_layers", least=0, absent=0, null=0),
}
_QWEN3_5_ONLY = (
    *_GATED_DELTA_ONLY,
    Only("attention_bias", (False,), "Megatron Bridge leaves the output projection of this family without a bias"),
    Only("attn_output_gate", (True,), "Megatron Bridge builds this family with gated attention"),
    Only("mtp_use_dedicated_embeddings", (False,), "MTP with an embedding of its own is not supported"),
)
_NEMOTRON = "models/nemotronh/nemotron_h_bridge.py"
_BLOCKS = Pattern("hybrid_override_pattern", "layers_block_type")
_DEPTHS = "num_nextn_predict_layers"
_NEMOTRON_H: Mapping[str, Rule] = {
    **_CORE,
    **_TIED,
    "layers": Length(_BLOCKS),
    "layer_pattern": _BLOCKS,
    "head_dim": Int("head_dim"),
    "position_embedding_type": Const("none", f"{_NEMOTRON}:272"),
    "gated": Const(False, f"{_NEMOTRON}:275"),
    **_ints(mamba_heads="mamba_num_heads", mamba_head_dim="mamba_head_dim", mamba_state="ssm_state_size"),
    **_ints(mamba_groups="n_groups", experts="n_routed_experts", expert_hidden="moe_intermediate_size"),
    "moe_latent": Int("moe_latent_size", absent=0, null=0),
    "shared_expert_hidden": Int("moe_shared_expert_intermediate_size"),
    "mtp_layers": Int(_DEPTHS, least=0, absent=0, null=0),
    "mtp_pattern": Pattern("mtp_hybrid_override_pattern", "mtp_layers_block_type", _DEPTHS),
    "mtp_repeated": Repeated("mtp_use_repeated_layer", _DEPTHS, f"{_NEMOTRON}:305"),
}
_MIXER = "core ssm/mamba_mixer.py builds its mixer so"
_NEMOTRON_H_ONLY = (
    _NO_BIAS,
    Only("mlp_hidden_act", ("relu2",), "Megatron Bridge builds this family with squared ReLU"),
    Only("mamba_hidden_act", ("silu",), _MIXER),
    Only("use_bias", (False,), "biases in every linear layer are not supported"),
    Only("mamba_proj_bias", (False,), _MIXER),
    Only("use_conv_bias", (True,), _MIXER),
    Only("conv_kernel", (4,), _MIXER),
    Only("chunk_size", (128,), "the mixer's memory and time are known for chunks of 128 tokens"),
    Only("residual_in_fp32", (False,), "a residual stream of four bytes is not supported"),
    Only("sliding_window", (None,), "Megatron Bridge builds this family with full attention"),
    Only("n_shared_experts", (1,), "moe_shared_expert_intermediate_size is the width of the only shared expert"),
)
_GPT_OSS_BIAS = Const(True, "models/gpt_oss/gpt_oss_bridge.py:62")

_M3 = "models/minimax_m3/minimax_m3_bridge.py"
_K25 = "models/kimi_vl/kimi_k25_vl_bridge.py"
_MOON = "models/kimi_vl/modeling_kimi_k25_vl.py:157"
"""The line where Bridge loads the vision tower from the model's repository."""

_STEP = "models/stepfun/step35"

_GEMMA4 = "models/gemma/gemma4_provider.py"
_GEMMA4_LAYERS = "models/gemma/modeling_gemma4.py"
_GEMMA4_TOWER = "models/gemma_vl/modeling_gemma4_vl.py:158"
_GEMMA4_TEXT: Mapping[str, Rule] = _CORE | {
    "position_embedding_type": Const("rope", f"{_GEMMA4}:277"),
    "qk_norm": Const(True, f"{_GEMMA4}:293"),
    "sandwich_norms": Const(True, f"{_GEMMA4_LAYERS}:1276"),
    "softcap": Given("final_logit_softcapping"),
    "window": Int("sliding_window"),
    "window_every": Windows(),
    **_ints(full_query_groups="num_global_key_value_heads", full_head_dim="global_head_dim", experts="num_experts"),
    **_ints(topk="top_k_experts", expert_hidden="moe_intermediate_size", shared_expert_hidden="intermediate_size"),
}
_GEMMA4_ONLY = (
    Only("enable_moe_block", (True,), "a dense Gemma 4 has no experts"),
    Only("hidden_activation", ("gelu_pytorch_tanh",), "Megatron Bridge builds this family with that GELU"),
    _NO_BIAS,
    Only("attention_k_eq_v", (True, False), "Megatron Bridge builds the projection of values in either case"),
    Only("hidden_size_per_layer_input", (0,), "Megatron Bridge builds no embeddings of layers with experts"),
    Only("num_kv_shared_layers", (0,), "Megatron Bridge shares no keys and values among layers with experts"),
    Only("use_double_wide_mlp", (False,), "Megatron Bridge builds layers with experts of one width"),
    Only("use_bidirectional_attention", ("vision", None), "text is causal"),
    Alike("vocab_size_per_layer_input", "vocab_size"),
)
_GEMMA4_NOTES = (
    "The window counts the token itself. A layer has a dense MLP next to its experts: shared experts to Megatron.",
    "Megatron Bridge keeps a projection of values where they are the keys (models/gemma/gemma4_bridge.py:423).",
)

FAMILIES: Mapping[str, Family] = {
    "qwen3_moe": Family(
        _QWEN3_MOE | _TIED,
        (
            *_QWEN_ONLY,
            Only("qkv_bias", (False,), "Megatron Bridge builds this family without attention biases"),
            Only("use_qk_norm", (True,), "Megatron Bridge always normalises queries and keys of this family"),
            Only("shared_expert_intermediate_size", (0, None), "this family is built without shared experts"),
        ),
    ),
    "qwen3_vl_moe": Family(
        _QWEN3_MOE
        | {
            "qk_norm": Const(True, "models/qwen_vl/qwen3_vl_bridge.py:246"),
            "position_embedding_type": Const("mrope", "models/qwen_vl/qwen3_vl_bridge.py:267"),
        },
        (*_QWEN_ONLY, _TEXT_TYPE, _TIED_ABOVE),
        vision=_VISION,
        vision_only=(_VISION_TYPE, _VISION_GELU),
        outer=_TIED,
    ),
    "qwen3_next": Family(_QWEN3_NEXT, (*_GATED_DELTA_ONLY, _NO_BIAS), _DELTA_NET),
    "qwen3_5_moe": Family(
        _QWEN3_5_MOE | {"position_embedding_type": Const("mrope", "models/qwen_vl/qwen35_vl_bridge.py:198")},
        (*_QWEN3_5_ONLY, _TIED_ABOVE, Only("model_type", ("qwen3_5_moe_text",), "another language model")),
        _DELTA_NET,
        vision={fact: rule for fact, rule in _VISION.items() if fact != "deepstack"},
        vision_only=(
            Only("model_type", ("qwen3_5_moe", "qwen3_5_moe_vision"), "another vision tower"),
            Only("deepstack_visual_indexes", ([],), "Megatron Bridge has no mergers for them in this family"),
            _VISION_GELU,
        ),
        outer=_TIED,
    ),
    "qwen3_5_moe_text": Family(
        _QWEN3_5_MOE | _TIED | {"position_embedding_type": Const("rope", f"{_QWEN35}:404")}, _QWEN3_5_ONLY, _DELTA_NET
    ),
    "qwen2_moe": Family(
        _CORE
        | _TIED
        | {
            "qkv_bias": Flag("qkv_bias", absent=True),
            **_ints(experts="num_experts", expert_hidden="moe_intermediate_size"),
            "shared_expert_hidden": Int("shared_expert_intermediate_size"),
            "shared_expert_gate": Const(True, "no bridge in 0.6.2; Hugging Face's Qwen2MoeSparseMoeBlock"),
        },
        (_SILU, *_EVERY, *_NO_WINDOW),
        bridge=False,
    ),
    "mixtral": Family(
        _CORE | _TIED | {"experts": Int("num_local_experts"), "expert_hidden": Int("intermediate_size")},
        (_SILU, Only("sliding_window", (None,), "a window on every layer is not built by Megatron Bridge")),
        bridge=False,
    ),
    "deepseek_v2": Family(_mla("models/deepseek/deepseek_v2_bridge.py", 53, 54), _mla_only("softmax"), _MLA_NOTES),
    "deepseek_v3": Family(_mla("models/deepseek/deepseek_v3_bridge.py", 62, 63), _mla_only("sigmoid"), _MLA_NOTES),
    "glm_moe_dsa": Family(
        _mla("models/glm_moe_dsa/glm5_bridge.py", 87, 88)
        | {
            **_ints(indexer_heads="index_n_heads", indexer_dim="index_head_dim", indexer_topk="index_topk"),
            "indexer_every": Sharing(),
            "indexer_leading": Int("index_skip_topk_offset", least=0, absent=0),
            "dense_layers": Leading("first_k_dense_replace", "mlp_layer_types"),
        },
        (
            *_mla_only("sigmoid"),
            Only("index_topk_pattern", (None,), "Megatron Bridge reads the frequency alone"),
            Only("index_share_for_mtp_iteration", (True, False), "Megatron-Core's MTP layer has an indexer"),
        ),
        _MLA_NOTES,
    ),
    # The published configuration names DeepseekV3ForCausalLM, so Bridge builds it with DeepSeek-V3's bridge.
    "kimi_k2": Family(_mla("models/deepseek/deepseek_v3_bridge.py", 62, 63), _mla_only("sigmoid"), _MLA_NOTES),
    "kimi_k25": Family(
        _mla(_K25, 77, 78),
        (*_mla_only("sigmoid"), Only("model_type", ("kimi_k2",), "another language model")),
        _MLA_NOTES,
        vision={
            **_ints(layers="vt_num_hidden_layers", hidden="vt_hidden_size", ffn_hidden="vt_intermediate_size"),
            **_ints(heads="vt_num_attention_heads", patch="patch_size"),
            "temporal_patch": Const(1, _MOON),
            "merge": Const(2, _MOON),
            "in_channels": Const(3, _MOON),
            "positions": Product("init_pos_emb_height", "init_pos_emb_width"),
            "out_hidden": Int("text_hidden_size"),
            "final_norm": Const(True, _MOON),
            "replicated": Const(True, f"{_K25}:260"),
        },
        vision_only=(
            Only("merge_kernel_size", ([2, 2],), "patches are merged two by two"),
            Only("merge_type", ("sd2_tpool",), "the repository's code has no other"),
            Only("mm_projector_type", ("patchmerger",), "Megatron Bridge has no other projector"),
            Only("pos_emb_type", ("divided_fixed",), "positions in time are not learned"),
            Only("video_attn_type", ("spatial_temporal",), "the repository's code has no other"),
            Only("projector_hidden_act", ("gelu",), "the projector's MLP is a plain GELU"),
            Alike("mm_hidden_size", "vt_hidden_size"),
        ),
        outer=_TIED,
    ),
    "gpt_oss": Family(
        _CORE
        | {
            **_ints(head_dim="head_dim", experts="num_local_experts", expert_hidden="intermediate_size"),
            "qkv_bias": _GPT_OSS_BIAS,
            "attention_bias": _GPT_OSS_BIAS,
            "mlp_bias": _GPT_OSS_BIAS,
            "router_bias": _GPT_OSS_BIAS,
            "router_balanced": Const(False, "models/gpt_oss/gpt_oss_bridge.py:71"),
            "attention_sinks": Const(True, "models/gpt_oss/gpt_oss_bridge.py:86"),
            "position_embedding_type": Const("yarn", "models/gpt_oss/gpt_oss_bridge.py:65"),
            "window": Int("sliding_window"),
            "window_every": Windows(always=2),
        },
        (
            _SILU,
            _UNTIED,
            Only("attention_bias", (True,), "Megatron Bridge builds this family with biases"),
            Only("swiglu_limit", (7.0, 7), "Megatron Bridge clamps this family's activation at 7"),
        ),
        ("The window counts the token itself; Bridge passes (window - 1, 0). Layers 2, 4, ... have full attention.",),
    ),
    "gemma4": Family(
        _GEMMA4_TEXT,
        (
            *_GEMMA4_ONLY,
            Only("model_type", ("gemma4_text",), "another language model"),
            Only("tie_word_embeddings", (True,), "it is read at the top of the configuration"),
        ),
        _GEMMA4_NOTES,
        vision={
            **_ints(layers="num_hidden_layers", hidden="hidden_size", ffn_hidden="intermediate_size"),
            **_ints(heads="num_attention_heads", patch="patch_size"),
            "temporal_patch": Const(1, _GEMMA4_TOWER),
            "merge": Int("pooling_kernel_size"),
            "in_channels": Const(3, _GEMMA4_TOWER),
            "positions": Int("position_embedding_size"),
            "out_hidden": OfText("hidden_size"),
            "replicated": Const(True, _GEMMA4_TOWER),
            "pooled": Const(True, _GEMMA4_TOWER),
            "image_tokens": Int("default_output_length"),
        },
        vision_only=(
            Only("model_type", ("gemma4_vision",), "another vision tower"),
            Only("hidden_activation", ("gelu_pytorch_tanh",), "the tower's MLP is a gated GELU"),
            Only("use_clipped_linears", (False,), "limits of linear layers are not supported"),
            _NO_BIAS,
            Alike("num_key_value_heads", "num_attention_heads"),
            Alike("global_head_dim", "head_dim"),
        ),
        outer=_TIED,
    ),
    "gemma4_text": Family(_GEMMA4_TEXT | _TIED, _GEMMA4_ONLY, _GEMMA4_NOTES),
    "glm4_moe": Family(
        _CORE
        | {
            "qk_norm": Flag("use_qk_norm", absent=False),
            "qkv_bias": Flag("attention_bias", absent=False),
            **_ints(experts="n_routed_experts", expert_hidden="moe_intermediate_size"),
            "shared_expert_hidden": Product("n_shared_experts", "moe_intermediate_size"),
            "dense_layers": Int("first_k_dense_replace", least=0),
            "mtp_layers": _MTP,
        },
        (
            _SILU,
            _UNTIED,
            Only("n_shared_experts", (1,), "Bridge gives this family one shared expert: models/glm/glm45_bridge.py:88"),
            _SIGMOID,
        ),
        (_EXPERT_BIAS,),
    ),
    "olmoe": Family(
        _CORE
        | {
            "qk_norm": Const(True, "models/olmoe/olmoe_bridge.py:80"),
            "qk_norm_over": Const("all_heads", "models/olmoe/olmoe_provider.py:123"),
            **_ints(experts="num_experts", expert_hidden="intermediate_size"),
        },
        (_SILU, _NO_BIAS, _UNTIED, Only("scoring_func", ("softmax",), "Megatron Bridge refuses another score")),
        ("The expert MLPs are as wide as intermediate_size; no layer is dense.",),
    ),
    "minimax_m2": Family(
        _CORE
        | _TIED
        | {
            "qk_norm": Const(True, "models/minimax_m2/minimax_m2_bridge.py:157"),
            "qk_norm_over": Const("split_heads", "models/minimax_m2/minimax_m2_bridge.py:158"),
            "position_embedding_type": Const("rope", "models/minimax_m2/minimax_m2_bridge.py:142"),
            **_ints(experts="num_local_experts", expert_hidden="intermediate_size"),
        },
        (
            _SILU,
            Only("use_qk_norm", (True,), "Megatron Bridge always normalises queries and keys of this family"),
            Only("qk_norm_type", ("per_layer",), "Megatron Bridge normalises all heads of this family at once"),
            Only("shared_intermediate_size", (0, None), "this family is built without shared experts"),
            Only("use_routing_bias", (True,), "Megatron Bridge builds this family's router with an expert bias"),
            _SIGMOID,
        ),
        (_EXPERT_BIAS, "Megatron Bridge leaves out the MTP modules: models/minimax_m2/minimax_m2_bridge.py:126."),
    ),
    "minimax_m3_vl": Family(
        _CORE
        | {
            "qk_norm": Flag("use_qk_norm", absent=True),
            "position_embedding_type": Const("rope", f"{_M3}:314"),
            **_ints(ffn_hidden="dense_intermediate_size", experts="num_local_experts"),
            **_ints(expert_hidden="intermediate_size", shared_expert_hidden="shared_intermediate_size"),
            "dense_layers": Zeros("moe_layer_freq", alone=True, number="first_k_dense_replace"),
        },
        (
            Only("model_type", ("minimax_m3_vl_text", "minimax_m3"), "another language model"),
            Only("hidden_act", ("swigluoai", "silu"), "Megatron Bridge builds this family with GPT-OSS's activation"),
            Only("swiglu_alpha", (1.702,), "Megatron Bridge builds this family with GPT-OSS's activation"),
            Only("qk_norm_type", ("per_head",), "Megatron Bridge normalises each head of this family"),
            Only("n_shared_experts", (1,), "shared_intermediate_size is the width of the only shared expert"),
            Only("attention_output_gate", (False,), "Megatron Bridge builds this family without a gate of attention"),
            _SIGMOID,
            Only("use_routing_bias", (True,), "Megatron Bridge builds this family's router with an expert bias"),
            _UNTIED,
            Alike("moe_intermediate_size", "intermediate_size"),
            Only("swiglu_limit", (7.0, 7), "Megatron Bridge builds this family with GPT-OSS's activation"),
            Only("use_gemma_norm", (True, False), "Megatron Bridge builds either norm"),
            Unbuilt("sparse_attention_config"),
            Unbuilt("num_nextn_predict_layers"),
        ),
        (
            "The language model alone, as Megatron Bridge's recipes train it: recipes/minimax/h100/minimax_m3.py:43.",
            f"Megatron Bridge trains full attention, without the indexer of sparse attention: {_M3}:261.",
            f"It leaves out the MTP modules: {_M3}:389.",
            _EXPERT_BIAS,
        ),
        language=(
            _UNTIED,
            *map(Unbuilt, ("text_config", "vision_config", "projector_hidden_size", "multimodal_projector_bias")),
            *map(Unbuilt, ("img_token_compression_config", "image_token_index", "video_token_index")),
            Unbuilt("merged_hidden_size"),
        ),
    ),
    "exaone_moe": Family(
        _CORE
        | _TIED
        | {
            "qk_norm": Const(True, "models/exaone/exaone_moe/exaone_moe_bridge.py:103"),
            "position_embedding_type": Const("rope", "models/exaone/exaone_moe/exaone_moe_provider.py:78"),
            **_ints(experts="num_experts", expert_hidden="moe_intermediate_size"),
            "shared_expert_hidden": Product("num_shared_experts", "moe_intermediate_size"),
            "dense_layers": Leading("first_k_dense_replace", "mlp_layer_types"),
            "window": Int("sliding_window"),
            "window_every": Windows(again="sliding_window_pattern"),
            "mtp_layers": _MTP,
            "mtp_dense": OfMtp("num_nextn_predict_layers", "models/exaone/exaone_moe/exaone_moe_provider.py:63"),
        },
        (
            _SILU,
            _SIGMOID,
            Only("mtp_share_layers", (False,), "several depths of MTP with one layer's weights are not supported"),
        ),
        ("The window counts the token itself; layers of full attention have no rotary embedding.", _EXPERT_BIAS),
    ),
    "mimo_v2_flash": Family(
        _CORE
        | {
            **_ints(v_head_dim="v_head_dim", experts="n_routed_experts", expert_hidden="moe_intermediate_size"),
            "dense_layers": Zeros("moe_layer_freq", alone=True),
            "window": Int("sliding_window_size"),
            "window_every": Marked("hybrid_layer_pattern"),
            "window_leading": Zeros("hybrid_layer_pattern"),
            "window_query_groups": Int("swa_num_key_value_heads"),
            "window_sinks": Const(True, "models/mimo_v2_flash/modeling_mimo_v2_flash.py:252"),
        },
        (
            _SILU,
            _NO_BIAS,
            _UNTIED,
            Only("n_shared_experts", (0, None), "Megatron Bridge builds this family without shared experts"),
            _SIGMOID,
            Only("add_swa_attention_sink_bias", (True,), "Megatron Bridge gives each windowed layer attention sinks"),
            Only("add_full_attention_sink_bias", (False,), "Megatron Bridge gives full attention no sinks"),
            *(Alike(key, "sliding_window_size") for key in ("sliding_window", "attention_chunk_size")),
            Alike("swa_num_attention_heads", "num_attention_heads"),
            Alike("swa_head_dim", "head_dim"),
            Alike("swa_v_head_dim", "v_head_dim"),
        ),
        (
            "The window counts the token itself; layers of full attention have no sinks.",
            _EXPERT_BIAS,
            "MTP is left out: only the checkpoint names its layers (models/mimo_v2_flash/mimo_v2_flash_bridge.py:182).",
        ),
    ),
    "step3p5": Family(
        _CORE
        | {
            "query_groups": Int("num_attention_groups"),
            "qk_norm": Flag("use_qk_norm", absent=False),
            "attention_gate": Flag("use_head_wise_attn_gate", absent=True),
            "window": Int("sliding_window"),
            "window_every": Firsts(),
            "window_first": Const(True, f"{_STEP}_provider.py:109"),
            "window_heads": OfWindows("num_attention_heads", Const(96, f"{_STEP}_bridge.py:302")),
            "window_query_groups": OfWindows("num_attention_groups", Const(8, f"{_STEP}_bridge.py:303")),
            "dense_layers": Numbers("moe_layers_enum"),
            **_ints(experts="moe_num_experts", topk="moe_top_k", expert_hidden="moe_intermediate_size"),
            "shared_expert_hidden": Int("share_expert_dim"),
            # transformers' default of an absent key is true
            "tied_embeddings": Else(Flag("tie_word_embeddings"), Const(True, "models/conversion/model_bridge.py:452")),
        },
        (
            Inside("attention_other_setting", "head_dim", "head_dim", 128),
            Alike("share_expert_dims", "share_expert_dim"),
            Only("moe_every_n_layer", (1,), "after the leading dense layers each layer has experts"),
            *(Unbuilt(key) for key in ("num_nextn_predict_layers", "max_seq_len")),
        ),
        (
            "The window counts the tokens before each.",
            "The gate of a head is as wide as it; the checkpoint's is a number (models/stepfun/step35_bridge.py:287).",
            "MTP is left out: with a pipeline Bridge gives it other heads (models/stepfun/step35_provider.py:95).",
            _EXPERT_BIAS,
        ),
    ),
    "nemotron_h": Family(
        _NEMOTRON_H,
        _NEMOTRON_H_ONLY,
        (
            "Letters of the pattern: M Mamba-2, * attention, E experts, - dense MLP; each is a layer of one block.",
            _EXPERT_BIAS,
        ),
    ),
}

PLUMBING = (
    Only("add_cross_attention", (False,), "only decoders are supported"),
    Only("is_encoder_decoder", (False,), "only decoders are supported"),
    Only("pruned_heads", ({},), "all layers must be alike"),
    Only("mlp_bias", (False,), "biases are what Megatron Bridge makes them for a family"),
)
"""Checks for every configuration."""

FLAT: Mapping[str, str] = {"minimax_m3": "minimax_m3_vl"}
"""`model_type` of a language model alone, with its fields at the top level -> the family that it belongs to. NVIDIA's
aiconfigurator writes such files; the Hub's file has these fields in `text_config`."""
