"""Name the rules that families share: the facts of any decoder, latent attention, and checks of single keys.

Line numbers cite Megatron Bridge 0.6.2, below ``megatron/bridge/``.
"""

from __future__ import annotations

from moedsl.bridge.importer.layers import Every, Indexes, Length, Pattern, Windows
from moedsl.bridge.importer.rules import (
    Alike,
    Const,
    Else,
    Flag,
    Given,
    HeadDim,
    Int,
    Only,
    Positions,
    Product,
    Repeated,
    Rule,
    Times,
)


def ints(**keys: str) -> dict[str, Rule]:
    """Make a rule for each fact that is a whole number, from its key."""
    return {fact: Int(key) for fact, key in keys.items()}


CORE: dict[str, Rule] = {
    **ints(layers="num_hidden_layers", hidden="hidden_size", vocab="vocab_size", max_seq="max_position_embeddings"),
    **ints(heads="num_attention_heads", query_groups="num_key_value_heads"),
    "head_dim": HeadDim(),
    **ints(ffn_hidden="intermediate_size", topk="num_experts_per_tok"),
    "routing_groups": Int("n_group", absent=1, null=1),
    "topk_groups": Int("topk_group", absent=1, null=1),
    "position_embedding_type": Positions(),
}
TIED: dict[str, Rule] = {"tied_embeddings": Flag("tie_word_embeddings", absent=False)}
MTP = Int("num_nextn_predict_layers", least=0, absent=0, null=0, note="num_nextn_predict_layers 0: no MTP layer")

EXPERT_BIAS = "The router's expert bias is a buffer, not a parameter."
SILU = Only("hidden_act", ("silu",), "the expert and dense MLPs are SwiGLU")
UNTIED = Only("tie_word_embeddings", (False,), "Megatron Bridge always unties the embeddings of this family")
SIGMOID = Only("scoring_func", ("sigmoid",), "Megatron Bridge builds this family's router with that score")
NO_BIAS = Only("attention_bias", (False,), "Megatron Bridge builds this family without attention biases")
EVERY = (
    Only("decoder_sparse_step", (1,), "Megatron Bridge builds experts in every layer of this family"),
    Only("mlp_only_layers", ([], None), "Megatron Bridge builds experts in every layer of this family"),
)
NO_WINDOW = (Only("use_sliding_window", (False, None), "Megatron Bridge builds this family with full attention"),)
QWEN_ONLY = (SILU, NO_BIAS, *EVERY, *NO_WINDOW)


NO_Q_LORA = (
    "q_lora_rank null: queries are not compressed; Megatron-Core normalises the input of linear_q_proj once more"
)


def mla(bridge: str, qk_norm: int, mla: int) -> dict[str, Rule]:
    """Make the rules of the DeepSeek architecture: latent attention, leading dense layers, shared experts."""
    return {
        **CORE,
        "head_dim": Int("qk_rope_head_dim"),
        "attention": Const("mla", f"{bridge}:{mla}"),
        "position_embedding_type": Const("rope", "models/conversion/model_bridge.py:685"),
        "qk_norm": Const(True, f"{bridge}:{qk_norm}"),
        "q_lora_rank": Int("q_lora_rank", null=0, note=NO_Q_LORA),
        **ints(kv_lora_rank="kv_lora_rank", qk_nope_dim="qk_nope_head_dim", qk_rope_dim="qk_rope_head_dim"),
        **ints(v_head_dim="v_head_dim", experts="n_routed_experts", expert_hidden="moe_intermediate_size"),
        "shared_expert_hidden": Product("n_shared_experts", "moe_intermediate_size"),
        "dense_layers": Int("first_k_dense_replace", least=0),
        "mtp_layers": MTP,
    }


MLA_NOTES = (
    "head_dim is Megatron's kv_channels, which Bridge takes from qk_rope_head_dim; latent attention does not use it.",
    EXPERT_BIAS,
)


def mla_only(score: str) -> tuple[Only, ...]:
    return (
        SILU,
        NO_BIAS,
        UNTIED,
        Only("moe_layer_freq", (1,), "after the leading dense layers each layer has experts"),
        Only("scoring_func", (score,), "Megatron Bridge builds this family's router with that score"),
    )


QWEN3_MOE: dict[str, Rule] = CORE | {
    "qk_norm": Const(True, "models/qwen/qwen3_moe_bridge.py:60"),
    **ints(experts="num_experts", expert_hidden="moe_intermediate_size"),
}
VISION: dict[str, Rule] = {
    **ints(layers="depth", hidden="hidden_size", ffn_hidden="intermediate_size", heads="num_heads"),
    **ints(patch="patch_size", temporal_patch="temporal_patch_size", merge="spatial_merge_size"),
    **ints(in_channels="in_channels", positions="num_position_embeddings", out_hidden="out_hidden_size"),
    "deepstack": Indexes("deepstack_visual_indexes"),
}
TEXT_TYPE = Only("model_type", ("qwen3_vl_moe_text", "qwen3_vl_moe"), "another language model")
VISION_TYPE = Only("model_type", ("qwen3_vl_moe", "qwen3_vl_moe_vision"), "another vision tower")
VISION_GELU = Only("hidden_act", ("gelu_pytorch_tanh",), "the vision tower's MLP is a plain GELU")
TIED_ABOVE = Only("tie_word_embeddings", (False,), "it is read at the top of the configuration")


def _gated_delta(bridge: str, qk_norm: int, gate: int, shared: int) -> dict[str, Rule]:
    """Make the rules of layers with a gated delta net, gated full attention in between, and experts in each layer."""
    return {
        **CORE,
        "qk_norm": Const(True, f"{bridge}:{qk_norm}"),
        "attention_gate": Const(True, f"{bridge}:{gate}"),
        "linear_every": Every(),
        **ints(linear_key_heads="linear_num_key_heads", linear_value_heads="linear_num_value_heads"),
        **ints(linear_key_dim="linear_key_head_dim", linear_value_dim="linear_value_head_dim"),
        **ints(experts="num_experts", expert_hidden="moe_intermediate_size"),
        "shared_expert_hidden": Int("shared_expert_intermediate_size"),
        "shared_expert_gate": Const(True, f"{bridge}:{shared}"),
    }


DELTA_NET = ("One layer in linear_every has full attention, the others a gated delta net and its convolution of 4.",)
GATED_DELTA_ONLY = (
    SILU,
    *EVERY,
    *NO_WINDOW,
    Only("linear_conv_kernel_dim", (4,), "memory and time of a gated delta net are known for a convolution of 4"),
)
_NEXT = "models/qwen/qwen3_next_bridge.py"
QWEN3_NEXT: dict[str, Rule] = {
    **_gated_delta(_NEXT, 64, 81, 75),
    **TIED,
    "position_embedding_type": Const("rope", f"{_NEXT}:60"),
    "mtp_layers": Else(Int("mtp_num_hidden_layers", least=0), Const(1, "recipes/qwen/h100/qwen3_next.py:63")),
}
QWEN35 = "models/qwen/qwen35_bridge.py"
QWEN3_5_MOE: dict[str, Rule] = {
    **_gated_delta(QWEN35, 55, 60, 96),
    "ffn_hidden": Else(Int("intermediate_size"), Times(4, "hidden_size", "transformer/transformer_config.py:1330")),
    "mtp_layers": Int("mtp_num_hidden_layers", least=0, absent=0, null=0),
}
QWEN3_5_ONLY = (
    *GATED_DELTA_ONLY,
    Only("attention_bias", (False,), "Megatron Bridge leaves the output projection of this family without a bias"),
    Only("attn_output_gate", (True,), "Megatron Bridge builds this family with gated attention"),
    Only("mtp_use_dedicated_embeddings", (False,), "MTP with an embedding of its own is not supported"),
)
_NEMOTRON = "models/nemotronh/nemotron_h_bridge.py"
_BLOCKS = Pattern("hybrid_override_pattern", "layers_block_type")
_DEPTHS = "num_nextn_predict_layers"
NEMOTRON_H: dict[str, Rule] = {
    **CORE,
    **TIED,
    "layers": Length(_BLOCKS),
    "layer_pattern": _BLOCKS,
    "head_dim": Int("head_dim"),
    "position_embedding_type": Const("none", f"{_NEMOTRON}:272"),
    "gated": Const(False, f"{_NEMOTRON}:275"),
    **ints(mamba_heads="mamba_num_heads", mamba_head_dim="mamba_head_dim", mamba_state="ssm_state_size"),
    **ints(mamba_groups="n_groups", experts="n_routed_experts", expert_hidden="moe_intermediate_size"),
    "moe_latent": Int("moe_latent_size", absent=0, null=0),
    "shared_expert_hidden": Int("moe_shared_expert_intermediate_size"),
    "mtp_layers": Int(_DEPTHS, least=0, absent=0, null=0),
    "mtp_pattern": Pattern("mtp_hybrid_override_pattern", "mtp_layers_block_type", _DEPTHS),
    "mtp_repeated": Repeated("mtp_use_repeated_layer", _DEPTHS, f"{_NEMOTRON}:305"),
}
_MIXER = "core ssm/mamba_mixer.py builds its mixer so"
NEMOTRON_H_ONLY = (
    NO_BIAS,
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
GPT_OSS_BIAS = Const(True, "models/gpt_oss/gpt_oss_bridge.py:62")

M3 = "models/minimax_m3/minimax_m3_bridge.py"
K25 = "models/kimi_vl/kimi_k25_vl_bridge.py"
MOON = "models/kimi_vl/modeling_kimi_k25_vl.py:157"
"""The line where Bridge loads the vision tower from the model's repository."""

STEP = "models/stepfun/step35"

_GEMMA4 = "models/gemma/gemma4_provider.py"
_GEMMA4_LAYERS = "models/gemma/modeling_gemma4.py"
GEMMA4_TOWER = "models/gemma_vl/modeling_gemma4_vl.py:158"
GEMMA4_TEXT: dict[str, Rule] = CORE | {
    "position_embedding_type": Const("rope", f"{_GEMMA4}:277"),
    "qk_norm": Const(True, f"{_GEMMA4}:293"),
    "sandwich_norms": Const(True, f"{_GEMMA4_LAYERS}:1276"),
    "softcap": Given("final_logit_softcapping"),
    "window": Int("sliding_window"),
    "window_every": Windows(),
    **ints(full_query_groups="num_global_key_value_heads", full_head_dim="global_head_dim", experts="num_experts"),
    **ints(topk="top_k_experts", expert_hidden="moe_intermediate_size", shared_expert_hidden="intermediate_size"),
}
GEMMA4_ONLY = (
    Only("enable_moe_block", (True,), "a dense Gemma 4 has no experts"),
    Only("hidden_activation", ("gelu_pytorch_tanh",), "Megatron Bridge builds this family with that GELU"),
    NO_BIAS,
    Only("attention_k_eq_v", (True, False), "Megatron Bridge builds the projection of values in either case"),
    Only("hidden_size_per_layer_input", (0,), "Megatron Bridge builds no embeddings of layers with experts"),
    Only("num_kv_shared_layers", (0,), "Megatron Bridge shares no keys and values among layers with experts"),
    Only("use_double_wide_mlp", (False,), "Megatron Bridge builds layers with experts of one width"),
    Only("use_bidirectional_attention", ("vision", None), "text is causal"),
    Alike("vocab_size_per_layer_input", "vocab_size"),
)
GEMMA4_NOTES = (
    "The window counts the token itself. A layer has a dense MLP next to its experts: shared experts to Megatron.",
    "Megatron Bridge keeps a projection of values where they are the keys (models/gemma/gemma4_bridge.py:423).",
)
