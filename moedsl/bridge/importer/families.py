"""List what the importer reads for each Hugging Face `model_type`: tables, no code.

Line numbers cite Megatron Bridge 0.6.2, below ``megatron/bridge/``.
"""

from __future__ import annotations

from collections.abc import Mapping

from moedsl.bridge.importer.layers import Firsts, Leading, Marked, Numbers, Sharing, Windows, Zeros
from moedsl.bridge.importer.parts import (
    CORE,
    DELTA_NET,
    EVERY,
    EXPERT_BIAS,
    GATED_DELTA_ONLY,
    GEMMA4_NOTES,
    GEMMA4_ONLY,
    GEMMA4_TEXT,
    GEMMA4_TOWER,
    GPT_OSS_BIAS,
    K25,
    M3,
    MLA_NOTES,
    MOON,
    MTP,
    NEMOTRON_H,
    NEMOTRON_H_ONLY,
    NO_BIAS,
    NO_WINDOW,
    QWEN3_5_MOE,
    QWEN3_5_ONLY,
    QWEN3_MOE,
    QWEN3_NEXT,
    QWEN35,
    QWEN_ONLY,
    SIGMOID,
    SILU,
    STEP,
    TEXT_TYPE,
    TIED,
    TIED_ABOVE,
    UNTIED,
    VISION,
    VISION_GELU,
    VISION_TYPE,
    ints,
    mla,
    mla_only,
)
from moedsl.bridge.importer.rules import (
    Alike,
    Const,
    Dense,
    Else,
    Family,
    Flag,
    HeadDim,
    Inside,
    Int,
    LastLayer,
    OfMtp,
    OfText,
    OfWindows,
    Only,
    Product,
    Rule,
    Unbuilt,
)  # fmt: skip

_LING = "models/bailing/bailing_moe2_bridge.py"
_ERNIE = "models/ernie/ernie_45_bridge.py"
_FLASH = "models/glm/glm47_flash_bridge.py"
_HY = "models/hy_v3/hy_v3_bridge.py"
_SARVAM_PROVIDER = "models/sarvam/sarvam_provider.py"


def _settled(bridge: str, **values: bool | int | str) -> tuple[Only, ...]:
    """Make the checks of keys that a bridge does not read: it always builds these values."""
    return tuple(Only(key, (value,), f"Megatron Bridge builds nothing else: {bridge}") for key, value in values.items())


_SARVAM: dict[str, Rule] = {
    **ints(experts="num_experts", expert_hidden="moe_intermediate_size"),
    "shared_expert_hidden": Product("num_shared_experts", "moe_intermediate_size"),
    "dense_layers": Int("first_k_dense_replace", least=0),
    "routing_groups": Const(1, "models/sarvam/common.py:17"),
    "topk_groups": Const(1, "models/sarvam/common.py:17"),
    "mtp_layers": Const(0, "models/sarvam/common.py:17"),
}
_SARVAM_ONLY = (
    SILU,
    UNTIED,
    *_settled(_SARVAM_PROVIDER, n_group=1, topk_group=1, use_bias=False, use_qkv_bias=False, attention_bias=False),
    *_settled(_SARVAM_PROVIDER, use_qk_norm=True, score_function="sigmoid", moe_router_enable_expert_bias=True),
    *_settled(_SARVAM_PROVIDER, scoring_func="sigmoid", use_rmsnorm=True, norm_head=False),
    Alike("moe_shared_expert_intermediate_size", "moe_intermediate_size"),
    Only("num_nextn_predict_layers", (0, None), "Megatron Bridge builds no MTP of this family"),
)

FAMILIES: Mapping[str, Family] = {
    "qwen3_moe": Family(
        QWEN3_MOE | TIED,
        (
            *QWEN_ONLY,
            Only("qkv_bias", (False,), "Megatron Bridge builds this family without attention biases"),
            Only("use_qk_norm", (True,), "Megatron Bridge always normalises queries and keys of this family"),
            Only("shared_expert_intermediate_size", (0, None), "this family is built without shared experts"),
        ),
    ),
    "qwen3_vl_moe": Family(
        QWEN3_MOE
        | {
            "qk_norm": Const(True, "models/qwen_vl/qwen3_vl_bridge.py:246"),
            "position_embedding_type": Const("mrope", "models/qwen_vl/qwen3_vl_bridge.py:267"),
        },
        (*QWEN_ONLY, TEXT_TYPE, TIED_ABOVE),
        vision=VISION,
        vision_only=(VISION_TYPE, VISION_GELU),
        outer=TIED,
    ),
    "qwen3_next": Family(QWEN3_NEXT, (*GATED_DELTA_ONLY, NO_BIAS), DELTA_NET),
    "qwen3_5_moe": Family(
        QWEN3_5_MOE | {"position_embedding_type": Const("mrope", "models/qwen_vl/qwen35_vl_bridge.py:198")},
        (*QWEN3_5_ONLY, TIED_ABOVE, Only("model_type", ("qwen3_5_moe_text",), "another language model")),
        DELTA_NET,
        vision={fact: rule for fact, rule in VISION.items() if fact != "deepstack"},
        vision_only=(
            Only("model_type", ("qwen3_5_moe", "qwen3_5_moe_vision"), "another vision tower"),
            Only("deepstack_visual_indexes", ([],), "Megatron Bridge has no mergers for them in this family"),
            VISION_GELU,
        ),
        outer=TIED,
    ),
    "qwen3_5_moe_text": Family(
        QWEN3_5_MOE | TIED | {"position_embedding_type": Const("rope", f"{QWEN35}:404")}, QWEN3_5_ONLY, DELTA_NET
    ),
    "qwen2_moe": Family(
        CORE
        | TIED
        | {
            "qkv_bias": Flag("qkv_bias", absent=True),
            **ints(experts="num_experts", expert_hidden="moe_intermediate_size"),
            "shared_expert_hidden": Int("shared_expert_intermediate_size"),
            "shared_expert_gate": Const(True, "no bridge in 0.6.2; Hugging Face's Qwen2MoeSparseMoeBlock"),
        },
        (SILU, *EVERY, *NO_WINDOW),
        bridge=False,
    ),
    "mixtral": Family(
        CORE | TIED | {"experts": Int("num_local_experts"), "expert_hidden": Int("intermediate_size")},
        (SILU, Only("sliding_window", (None,), "a window on every layer is not built by Megatron Bridge")),
        bridge=False,
    ),
    "deepseek_v2": Family(mla("models/deepseek/deepseek_v2_bridge.py", 53, 54), mla_only("softmax"), MLA_NOTES),
    "deepseek_v3": Family(mla("models/deepseek/deepseek_v3_bridge.py", 62, 63), mla_only("sigmoid"), MLA_NOTES),
    "glm_moe_dsa": Family(
        mla("models/glm_moe_dsa/glm5_bridge.py", 87, 88)
        | {
            **ints(indexer_heads="index_n_heads", indexer_dim="index_head_dim", indexer_topk="index_topk"),
            "indexer_every": Sharing(),
            "indexer_leading": Int("index_skip_topk_offset", least=0, absent=0),
            "dense_layers": Leading("first_k_dense_replace", "mlp_layer_types"),
        },
        (
            *mla_only("sigmoid"),
            Only("index_topk_pattern", (None,), "Megatron Bridge reads the frequency alone"),
            Only("index_share_for_mtp_iteration", (True, False), "Megatron-Core's MTP layer has an indexer"),
        ),
        MLA_NOTES,
    ),
    "glm4_moe_lite": Family(
        mla(_FLASH, 78, 77) | {"dense_layers": Int("first_k_dense_replace", least=0, absent=1)},
        (*mla_only("sigmoid"), Dense("mlp_layer_types", "first_k_dense_replace", 1)),
        MLA_NOTES,
    ),
    # The published configuration names DeepseekV3ForCausalLM, so Bridge builds it with DeepSeek-V3's bridge.
    "kimi_k2": Family(mla("models/deepseek/deepseek_v3_bridge.py", 62, 63), mla_only("sigmoid"), MLA_NOTES),
    "kimi_k25": Family(
        mla(K25, 77, 78),
        (*mla_only("sigmoid"), Only("model_type", ("kimi_k2",), "another language model")),
        MLA_NOTES,
        vision={
            **ints(layers="vt_num_hidden_layers", hidden="vt_hidden_size", ffn_hidden="vt_intermediate_size"),
            **ints(heads="vt_num_attention_heads", patch="patch_size"),
            "temporal_patch": Const(1, MOON),
            "merge": Const(2, MOON),
            "in_channels": Const(3, MOON),
            "positions": Product("init_pos_emb_height", "init_pos_emb_width"),
            "out_hidden": Int("text_hidden_size"),
            "final_norm": Const(True, MOON),
            "replicated": Const(True, f"{K25}:260"),
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
        outer=TIED,
    ),
    "gpt_oss": Family(
        CORE
        | {
            **ints(head_dim="head_dim", experts="num_local_experts", expert_hidden="intermediate_size"),
            "qkv_bias": GPT_OSS_BIAS,
            "attention_bias": GPT_OSS_BIAS,
            "mlp_bias": GPT_OSS_BIAS,
            "router_bias": GPT_OSS_BIAS,
            "router_balanced": Const(False, "models/gpt_oss/gpt_oss_bridge.py:71"),
            "attention_sinks": Const(True, "models/gpt_oss/gpt_oss_bridge.py:86"),
            "position_embedding_type": Const("yarn", "models/gpt_oss/gpt_oss_bridge.py:65"),
            "window": Int("sliding_window"),
            "window_every": Windows(always=2),
        },
        (
            SILU,
            UNTIED,
            Only("attention_bias", (True,), "Megatron Bridge builds this family with biases"),
            Only("swiglu_limit", (7.0, 7), "Megatron Bridge clamps this family's activation at 7"),
        ),
        ("The window counts the token itself; Bridge passes (window - 1, 0). Layers 2, 4, ... have full attention.",),
    ),
    "gemma4": Family(
        GEMMA4_TEXT,
        (
            *GEMMA4_ONLY,
            Only("model_type", ("gemma4_text",), "another language model"),
            Only("tie_word_embeddings", (True,), "it is read at the top of the configuration"),
        ),
        GEMMA4_NOTES,
        vision={
            **ints(layers="num_hidden_layers", hidden="hidden_size", ffn_hidden="intermediate_size"),
            **ints(heads="num_attention_heads", patch="patch_size"),
            "temporal_patch": Const(1, GEMMA4_TOWER),
            "merge": Int("pooling_kernel_size"),
            "in_channels": Const(3, GEMMA4_TOWER),
            "positions": Int("position_embedding_size"),
            "out_hidden": OfText("hidden_size"),
            "replicated": Const(True, GEMMA4_TOWER),
            "pooled": Const(True, GEMMA4_TOWER),
            "image_tokens": Int("default_output_length"),
        },
        vision_only=(
            Only("model_type", ("gemma4_vision",), "another vision tower"),
            Only("hidden_activation", ("gelu_pytorch_tanh",), "the tower's MLP is a gated GELU"),
            Only("use_clipped_linears", (False,), "limits of linear layers are not supported"),
            NO_BIAS,
            Alike("num_key_value_heads", "num_attention_heads"),
            Alike("global_head_dim", "head_dim"),
        ),
        outer=TIED,
    ),
    "gemma4_text": Family(GEMMA4_TEXT | TIED, GEMMA4_ONLY, GEMMA4_NOTES),
    "glm4_moe": Family(
        CORE
        | {
            "qk_norm": Flag("use_qk_norm", absent=False),
            "qkv_bias": Flag("attention_bias", absent=False),
            **ints(experts="n_routed_experts", expert_hidden="moe_intermediate_size"),
            "shared_expert_hidden": Product("n_shared_experts", "moe_intermediate_size"),
            "dense_layers": Int("first_k_dense_replace", least=0),
            "mtp_layers": MTP,
        },
        (
            SILU,
            UNTIED,
            Only("n_shared_experts", (1,), "Bridge gives this family one shared expert: models/glm/glm45_bridge.py:88"),
            SIGMOID,
        ),
        (EXPERT_BIAS,),
    ),
    "olmoe": Family(
        CORE
        | {
            "qk_norm": Const(True, "models/olmoe/olmoe_bridge.py:80"),
            "qk_norm_over": Const("all_heads", "models/olmoe/olmoe_provider.py:123"),
            **ints(experts="num_experts", expert_hidden="intermediate_size"),
        },
        (SILU, NO_BIAS, UNTIED, Only("scoring_func", ("softmax",), "Megatron Bridge refuses another score")),
        ("The expert MLPs are as wide as intermediate_size; no layer is dense.",),
    ),
    "minimax_m2": Family(
        CORE
        | TIED
        | {
            "qk_norm": Const(True, "models/minimax_m2/minimax_m2_bridge.py:157"),
            "qk_norm_over": Const("split_heads", "models/minimax_m2/minimax_m2_bridge.py:158"),
            "position_embedding_type": Const("rope", "models/minimax_m2/minimax_m2_bridge.py:142"),
            **ints(experts="num_local_experts", expert_hidden="intermediate_size"),
        },
        (
            SILU,
            Only("use_qk_norm", (True,), "Megatron Bridge always normalises queries and keys of this family"),
            Only("qk_norm_type", ("per_layer",), "Megatron Bridge normalises all heads of this family at once"),
            Only("shared_intermediate_size", (0, None), "this family is built without shared experts"),
            Only("use_routing_bias", (True,), "Megatron Bridge builds this family's router with an expert bias"),
            SIGMOID,
        ),
        (EXPERT_BIAS, "Megatron Bridge leaves out the MTP modules: models/minimax_m2/minimax_m2_bridge.py:126."),
    ),
    "minimax_m3_vl": Family(
        CORE
        | {
            "qk_norm": Flag("use_qk_norm", absent=True),
            "position_embedding_type": Const("rope", f"{M3}:314"),
            **ints(ffn_hidden="dense_intermediate_size", experts="num_local_experts"),
            **ints(expert_hidden="intermediate_size", shared_expert_hidden="shared_intermediate_size"),
            "dense_layers": Zeros("moe_layer_freq", alone=True, number="first_k_dense_replace"),
        },
        (
            Only("model_type", ("minimax_m3_vl_text", "minimax_m3"), "another language model"),
            Only("hidden_act", ("swigluoai", "silu"), "Megatron Bridge builds this family with GPT-OSS's activation"),
            Only("swiglu_alpha", (1.702,), "Megatron Bridge builds this family with GPT-OSS's activation"),
            Only("qk_norm_type", ("per_head",), "Megatron Bridge normalises each head of this family"),
            Only("n_shared_experts", (1,), "shared_intermediate_size is the width of the only shared expert"),
            Only("attention_output_gate", (False,), "Megatron Bridge builds this family without a gate of attention"),
            SIGMOID,
            Only("use_routing_bias", (True,), "Megatron Bridge builds this family's router with an expert bias"),
            UNTIED,
            Alike("moe_intermediate_size", "intermediate_size"),
            Only("swiglu_limit", (7.0, 7), "Megatron Bridge builds this family with GPT-OSS's activation"),
            Only("use_gemma_norm", (True, False), "Megatron Bridge builds either norm"),
            Unbuilt("sparse_attention_config"),
            Unbuilt("num_nextn_predict_layers"),
        ),
        (
            "The language model alone, as Megatron Bridge's recipes train it: recipes/minimax/h100/minimax_m3.py:43.",
            f"Megatron Bridge trains full attention, without the indexer of sparse attention: {M3}:261.",
            f"It leaves out the MTP modules: {M3}:389.",
            EXPERT_BIAS,
        ),
        language=(
            UNTIED,
            *map(Unbuilt, ("text_config", "vision_config", "projector_hidden_size", "multimodal_projector_bias")),
            *map(Unbuilt, ("img_token_compression_config", "image_token_index", "video_token_index")),
            Unbuilt("merged_hidden_size"),
        ),
    ),
    "exaone_moe": Family(
        CORE
        | TIED
        | {
            "qk_norm": Const(True, "models/exaone/exaone_moe/exaone_moe_bridge.py:103"),
            "position_embedding_type": Const("rope", "models/exaone/exaone_moe/exaone_moe_provider.py:78"),
            **ints(experts="num_experts", expert_hidden="moe_intermediate_size"),
            "shared_expert_hidden": Product("num_shared_experts", "moe_intermediate_size"),
            "dense_layers": Leading("first_k_dense_replace", "mlp_layer_types"),
            "window": Int("sliding_window"),
            "window_every": Windows(again="sliding_window_pattern"),
            "mtp_layers": MTP,
            "mtp_dense": OfMtp("num_nextn_predict_layers", "models/exaone/exaone_moe/exaone_moe_provider.py:63"),
        },
        (
            SILU,
            SIGMOID,
            Only("mtp_share_layers", (False,), "several depths of MTP with one layer's weights are not supported"),
        ),
        ("The window counts the token itself; layers of full attention have no rotary embedding.", EXPERT_BIAS),
    ),
    "mimo_v2_flash": Family(
        CORE
        | {
            **ints(v_head_dim="v_head_dim", experts="n_routed_experts", expert_hidden="moe_intermediate_size"),
            "dense_layers": Zeros("moe_layer_freq", alone=True),
            "window": Int("sliding_window_size"),
            "window_every": Marked("hybrid_layer_pattern"),
            "window_leading": Zeros("hybrid_layer_pattern"),
            "window_query_groups": Int("swa_num_key_value_heads"),
            "window_sinks": Const(True, "models/mimo_v2_flash/modeling_mimo_v2_flash.py:252"),
        },
        (
            SILU,
            NO_BIAS,
            UNTIED,
            Only("n_shared_experts", (0, None), "Megatron Bridge builds this family without shared experts"),
            SIGMOID,
            Only("add_swa_attention_sink_bias", (True,), "Megatron Bridge gives each windowed layer attention sinks"),
            Only("add_full_attention_sink_bias", (False,), "Megatron Bridge gives full attention no sinks"),
            *(Alike(key, "sliding_window_size") for key in ("sliding_window", "attention_chunk_size")),
            Alike("swa_num_attention_heads", "num_attention_heads"),
            Alike("swa_head_dim", "head_dim"),
            Alike("swa_v_head_dim", "v_head_dim"),
        ),
        (
            "The window counts the token itself; layers of full attention have no sinks.",
            EXPERT_BIAS,
            "MTP is left out: only the checkpoint names its layers (models/mimo_v2_flash/mimo_v2_flash_bridge.py:182).",
        ),
    ),
    "step3p5": Family(
        CORE
        | {
            "query_groups": Int("num_attention_groups"),
            "qk_norm": Flag("use_qk_norm", absent=False),
            "attention_gate": Flag("use_head_wise_attn_gate", absent=True),
            "window": Int("sliding_window"),
            "window_every": Firsts(),
            "window_first": Const(True, f"{STEP}_provider.py:109"),
            "window_heads": OfWindows("num_attention_heads", Const(96, f"{STEP}_bridge.py:302")),
            "window_query_groups": OfWindows("num_attention_groups", Const(8, f"{STEP}_bridge.py:303")),
            "dense_layers": Numbers("moe_layers_enum"),
            **ints(experts="moe_num_experts", topk="moe_top_k", expert_hidden="moe_intermediate_size"),
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
            EXPERT_BIAS,
        ),
    ),
    "bailing_moe_v2": Family(
        CORE
        | {
            "qk_norm": Const(True, f"{_LING}:91"),
            "qkv_bias": Flag("use_qkv_bias", absent=False),
            "routing_groups": Int("n_group", absent=8),
            "topk_groups": Int("topk_group", absent=4),
            **ints(experts="num_experts", expert_hidden="moe_intermediate_size"),
            "shared_expert_hidden": Int("moe_intermediate_size"),
            "dense_layers": Int("first_k_dense_replace", least=0),
            "mtp_layers": MTP,
        },
        (
            SILU,
            UNTIED,
            Only("num_shared_experts", (1,), f"Megatron Bridge gives this family one shared expert: {_LING}:108"),
            Alike("moe_shared_expert_intermediate_size", "moe_intermediate_size"),
            *_settled(_LING, use_qk_norm=True, score_function="sigmoid", moe_router_enable_expert_bias=True),
            *_settled(_LING, use_bias=False, use_rmsnorm=True, norm_head=False),
        ),
        (EXPERT_BIAS,),
    ),
    "ernie4_5_moe": Family(
        CORE
        | {
            "position_embedding_type": Const("rope", f"{_ERNIE}:192"),
            # transformers' default of an absent key is true
            "tied_embeddings": Else(Flag("tie_word_embeddings"), Const(True, "models/conversion/model_bridge.py:452")),
            "dense_layers": Leading("moe_layer_start_index", "mlp_layer_types"),
            **ints(experts="moe_num_experts", topk="moe_k", expert_hidden="moe_intermediate_size"),
            "shared_expert_hidden": Product("moe_num_shared_experts", "moe_intermediate_size"),
        },
        (
            SILU,
            LastLayer("moe_layer_end_index"),
            *_settled(_ERNIE, moe_layer_interval=1, use_bias=False, moe_use_aux_free=True, moe_gate="topk"),
            Unbuilt("moe_capacity"),
            Unbuilt("num_nextn_predict_layers"),
        ),
        (
            EXPERT_BIAS,
            f"Megatron Bridge leaves out MTP, whose weights are not published: {_ERNIE}:239.",
            f"It routes by a sigmoid, the published models by a softmax: compare the first losses ({_ERNIE}:225).",
        ),
    ),
    "hy_v3": Family(
        CORE
        | TIED
        | {
            "qk_norm": Const(True, f"{_HY}:75"),
            **ints(experts="num_experts", expert_hidden="moe_intermediate_size"),
            "shared_expert_hidden": Product("num_shared_experts", "moe_intermediate_size"),
            "dense_layers": Int("first_k_dense_replace", least=0),
            "mtp_layers": MTP,
        },
        (
            SILU,
            NO_BIAS,
            Dense("mlp_layer_types", "first_k_dense_replace"),
            Alike("expert_hidden_dim", "moe_intermediate_size"),
            *_settled(_HY, moe_router_use_sigmoid=True, moe_router_enable_expert_bias=True, qk_norm=True),
        ),
        (EXPERT_BIAS,),
    ),
    "sarvam_moe": Family(
        CORE
        | _SARVAM
        | {
            "qk_norm": Const(True, f"{_SARVAM_PROVIDER}:88"),
            "head_dim": Int("head_dim"),
            "position_embedding_type": Const("rope", f"{_SARVAM_PROVIDER}:83"),
        },
        _SARVAM_ONLY,
        (EXPERT_BIAS,),
    ),
    "sarvam_mla": Family(
        mla(_SARVAM_PROVIDER, 173, 200)
        | _SARVAM
        | {"head_dim": HeadDim("kv_channels"), "q_lora_rank": Const(0, f"{_SARVAM_PROVIDER}:227")},
        (*_SARVAM_ONLY, Only("q_lora_rank", (None,), "Megatron Bridge builds this family without it")),
        ("head_dim is Megatron's kv_channels, which latent attention does not use.", EXPERT_BIAS),
    ),
    "nemotron_h": Family(
        NEMOTRON_H,
        NEMOTRON_H_ONLY,
        (
            "Letters of the pattern: M Mamba-2, * attention, E experts, - dense MLP; each is a layer of one block.",
            EXPERT_BIAS,
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
