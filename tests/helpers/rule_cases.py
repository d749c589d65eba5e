"""Layouts around the edges of every law: what breaks exactly one of them, and neighbours that break none."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from tests.helpers import rotation
from tests.helpers.layouts import DEFAULTS

_BASE = {"model": "qwen3_30b_a3b", "hardware": "h100", "gpus": 16, "ep": 8}
_DEEPSEEK = {"model": "deepseek_v3", "hardware": "gb200", "gpus": 64, "ep": 64, "precision": "bf16"}
_MOONLIGHT = {"model": "moonlight_16b", "hardware": "h100", "gpus": 8, "ep": 8}
_OSS = {"model": "gpt_oss_120b", "hardware": "h100", "gpus": 16, "ep": 16}
_OLMOE = {"model": "olmoe_7b", "hardware": "h100", "gpus": 8, "ep": 8}
_VL = {"model": "qwen3_vl_30b_a3b", "hardware": "h100", "gpus": 16, "ep": 8}
_NANO = {"model": "nemotron_3_nano", "hardware": "h100", "gpus": 16, "ep": 8}
_SUPER = {"model": "nemotron_3_super", "hardware": "gb200", "gpus": 64, "ep": 64, "tp": 2}
_GLM5 = {"model": "glm51_744b", "hardware": "gb200", "gpus": 64, "ep": 64}
_GLM52 = {**_GLM5, "model": "glm52_744b", "pp": 2, "ep": 32}
_EXAONE = {"model": "exaone_moe_236b_a23b", "hardware": "gb300", "gpus": 64, "pp": 2, "ep": 32}
_AIR = {"model": "glm45_air_106b", "hardware": "h100", "gpus": 16, "ep": 8}
_STEP = {"model": "step35_196b_a11b", "hardware": "gb300", "gpus": 64, "ep": 32}
_MIMO = {"model": "mimo_v2_flash", "hardware": "gb300", "gpus": 64, "ep": 32}
_K25 = {"model": "kimi_k25", "hardware": "gb300", "gpus": 128, "pp": 2, "ep": 64}
_GEMMA = {"model": "gemma4_26b_a4b", "hardware": "h100", "gpus": 16, "ep": 8}
_NEXT = {"model": "qwen3_next_80b_a3b", "hardware": "h100", "gpus": 32, "ep": 16}
_VL35 = {"model": "qwen35_vl_35b_a3b", "hardware": "h100", "gpus": 16, "ep": 8}
_FEW = (_BASE, _VL, _NEXT, _VL35, _GLM5)
"""Models whose first four layers have all kinds: Megatron builds no more of them on one stage."""
_OVERLAP = {"ep_overlap": True}
_WHOLE = {"hardware": "gb200", "precision": "mxfp8", "dispatcher": "hybridep", "cuda_graph": ["full_iteration"]}
_WGRAD = {"ep_overlap": True, "delay_wgrad": True}


@frozen
class Case:
    """A layout, the law that it breaks, facts of the model that it changes, and whether only building it shows."""

    layout: dict[str, Any]
    law: str | None
    facts: dict[str, int]
    build: bool


def _case(
    law: str | None,
    base: dict[str, Any] = _BASE,
    build: bool = False,
    facts: dict[str, int] | None = None,
    **layout: Any,
) -> Case:
    few = {"layers": 4} if build and base in _FEW and "pp" not in layout else {}
    return Case({**DEFAULTS, **base, **layout}, law, few | (facts or {}), build)


def _adapted(
    law: str | None, adapter: str, base: dict[str, Any] = _BASE, rules: str = "adapters", **layout: Any
) -> Case:
    """A run that trains an adapter, which only building the model shows."""
    return _case(law and f"{rules}.{law}", base, build=True, task="peft", adapter=adapter, **layout)


CASES: dict[str, Case] = {
    # both meshes
    "attention mesh: cp 3 on 16": _case("mesh.attention_mesh", cp=3, seq=4098, global_batch=60),
    "attention mesh: cp 2 on 16": _case(None, cp=2),
    "expert mesh: ep 32 on 16": _case("mesh.expert_mesh", ep=32),
    "expert mesh: ep 16 on 16": _case(None, ep=16),
    "expert mesh: etp 4 x ep 8 on 16": _case("mesh.expert_mesh", etp=4),
    "expert mesh: etp 2 x ep 8 on 16": _case(None, etp=2),
    "experts: 128 over 48": _case("mesh.experts", gpus=48, ep=48, global_batch=96, build=True),
    "experts: 128 over 16": _case(None, gpus=48, ep=16, global_batch=96, build=True),
    # widths
    "heads: 36 over 8": _case("mesh.heads", tp=8, facts={"heads": 36}),
    "heads: 40 over 8": _case(None, tp=8, facts={"heads": 40}),
    "query groups: 3 over 2": _case("mesh.query_groups", tp=2, facts={"heads": 36, "query_groups": 3}),
    "query groups: 3 over 6": _case(
        None, tp=6, gpus=48, global_batch=96, seq=4098, facts={"heads": 36, "query_groups": 3, "vocab": 151938}
    ),
    "dense width: 11265 over 2": _case("mesh.dense_width", _MOONLIGHT, tp=2, facts={"ffn_hidden": 11265}, build=True),
    "dense width: 11266 over 2": _case(None, _MOONLIGHT, tp=2, facts={"ffn_hidden": 11266}, build=True),
    "dense width without a dense layer": _case(None, tp=2, facts={"ffn_hidden": 6145}, build=True),
    "shared width: 2817 over 2": _case(
        "mesh.shared_width", _MOONLIGHT, tp=2, facts={"shared_expert_hidden": 2817}, build=True
    ),
    "expert width: 768 over 5": _case("mesh.expert_width", gpus=40, ep=8, etp=5, global_batch=80, build=True),
    "expert width: 768 over 3": _case(None, gpus=24, ep=8, etp=3, global_batch=48, build=True),
    "vocabulary: 151937 over 2": _case("mesh.vocabulary", tp=2, facts={"vocab": 151937}, build=True),
    "vocabulary: 151938 over 2": _case(None, tp=2, facts={"vocab": 151938}, build=True),
    "biased experts over etp 2": _case("mesh.expert_bias", _OSS, gpus=32, etp=2),
    "biased experts over etp 1": _case(None, _OSS, gpus=32),
    # layers
    "layers: 48 on 16 x 4": _case("mesh.layers", ep=1, pp=16, vpp=4, build=True),
    "layers: 48 on 16 x 3": _case(None, ep=1, pp=16, vpp=3),
    "vpp without pp": _case("mesh.vpp_needs_pp", vpp=2),
    "layout one short": _case("check.pipeline_layout", pp=2, pipeline_layout="Et*24|t*23L"),
    "layout uneven": _case(None, pp=2, pipeline_layout="Et*25|t*23L"),
    "layout of 4 chunks with vpp 3": _case("mesh.layers", pp=2, vpp=3, pipeline_layout="Et*12|t*12|t*12|t*12L"),
    "layout of 4 chunks with vpp 2": _case(None, pp=2, vpp=2, pipeline_layout="Et*12|t*12|t*12|t*12L"),
    "layout without the MTP layer": _case(
        "check.pipeline_layout", _DEEPSEEK, pp=4, ep=16, pipeline_layout="Et*15|t*16|t*16|t*14L"
    ),
    "layout with the MTP layer": _case(None, _DEEPSEEK, pp=4, ep=16, pipeline_layout="Et*15|t*16|t*16|t*14mL"),
    "layout with the loss first": _case("check.pipeline_layout", pp=2, pipeline_layout="Lt*24|t*24E"),
    "61 layers on 4 stages": _case(None, _DEEPSEEK, pp=4, ep=16),
    # batch and sequence
    "batch: 250 over 16": _case("batch.batch_over_dp", global_batch=250),
    "batch: 240 over 16": _case(None, global_batch=240),
    "interleaved: 6 microbatches on 4": _case("batch.interleaved_microbatches", pp=4, vpp=2, ep=4, global_batch=24),
    "interleaved: 2 microbatches on 4": _case("batch.interleaved_microbatches", pp=4, vpp=2, ep=4, global_batch=8),
    "interleaved: 8 microbatches on 4": _case(None, pp=4, vpp=2, ep=4, global_batch=32),
    "not interleaved: 6 microbatches on 4": _case(None, pp=4, ep=4, global_batch=24),
    "context shards: 4098 over 2 x 2": _case("batch.context_shards", cp=2, seq=4098),
    "context shards: 4100 over 2 x 2": _case(None, cp=2, seq=4100),
    "sinks: 8 query groups over tp 2 x cp 4": _case(None, _OSS, tp=2, cp=4, gpus=64),
    # recompute
    "mla_up_proj without MLA": _case("recompute.mla_up_proj_needs_mla", recompute=["mla_up_proj"]),
    "mla_up_proj with MLA": _case(None, _MOONLIGHT, recompute=["mla_up_proj"]),
    "shared_experts without any": _case(None, recompute=["shared_experts"]),
    # CUDA graphs
    "full recompute under attn graphs": _case("cuda_graph.no_full_recompute", recompute=["full"], cuda_graph=["attn"]),
    "full recompute under a whole graph": _case(
        None, hardware="gb200", recompute=["full"], cuda_graph=["full_iteration"], dispatcher="hybridep"
    ),
    "whole-iteration graph of 999 microbatches": _case(
        None, hardware="gb200", dispatcher="hybridep", cuda_graph=["full_iteration"], global_batch=15984
    ),
    "moe_act recompute under attn graphs": _case(None, recompute=["moe_act"], cuda_graph=["attn"]),
    "moe recompute under router graphs": _case(
        "cuda_graph.no_moe_recompute", recompute=["moe"], cuda_graph=["moe_router"]
    ),
    "moe recompute under attn graphs": _case(None, recompute=["moe"], cuda_graph=["attn"]),
    "moe_preprocess without moe_router": _case("cuda_graph.preprocess_with_router", cuda_graph=["moe_preprocess"]),
    "moe_preprocess with moe_router": _case(None, cuda_graph=["moe_router", "moe_preprocess"]),
    # offload
    "attn_proj offloaded without core_attn": _case("offload_modules.proj_needs_core", offload_modules=["attn_proj"]),
    "attn_proj offloaded with core_attn": _case(None, offload_modules=["core_attn", "attn_proj"]),
    "expert_fc1 offloaded, moe recomputed": _case(
        "offload_modules.not_in_recomputed_moe", recompute=["moe"], offload_modules=["expert_fc1"]
    ),
    "expert_fc1 offloaded, moe_act recomputed": _case(None, recompute=["moe_act"], offload_modules=["expert_fc1"]),
    "moe_act offloaded under a captured iteration": _case(
        "offload_modules.not_stashed",
        hardware="gb200",
        precision="mxfp8",
        dispatcher="hybridep",
        cuda_graph=["full_iteration"],
        offload_modules=["moe_act"],
    ),
    "core_attn offloaded under a captured iteration": _case(
        None,
        hardware="gb200",
        precision="mxfp8",
        dispatcher="hybridep",
        cuda_graph=["full_iteration"],
        offload_modules=["core_attn"],
    ),
    "optimizer in host memory": _case(None, offload="optimizer"),
    "core_attn offloaded in a captured attention": _case(None, cuda_graph=["attn"], offload_modules=["core_attn"]),
    "qkv_linear to attn_proj offloaded, up-projection recomputed": _case(
        None, _MOONLIGHT, recompute=["mla_up_proj"], offload_modules=["qkv_linear", "core_attn", "attn_proj"]
    ),
    # overlap
    "overlap without EP": _case("ep_overlap.needs_ep", ep=1, **_OVERLAP),
    "overlap with EP": _case(None, **_WGRAD),
    "overlap, pp 2 without vpp": _case("ep_overlap.needs_vpp", pp=2, **_OVERLAP),
    "overlap, pp 2 with vpp": _case(None, pp=2, vpp=2, **_WGRAD),
    "overlap with full recompute": _case("ep_overlap.no_full_recompute", recompute=["full"], **_OVERLAP),
    "overlap with moe recompute": _case("ep_overlap.no_moe_recompute", recompute=["moe"], **_OVERLAP),
    "overlap with moe_act recompute": _case(None, recompute=["moe_act", "layernorm"], **_OVERLAP),
    "overlap with two MTP layers": _case("ep_overlap.one_mtp_layer", _DEEPSEEK, facts={"mtp_layers": 2}, **_OVERLAP),
    "overlap with one MTP layer": _case(None, _DEEPSEEK, **_OVERLAP),
    "delayed weight gradients alone": _case("delay_wgrad.needs_overlap", delay_wgrad=True),
    "delayed weight gradients, biased attention in a graph": _case(
        "delay_wgrad.no_bias_in_graph", _OSS, cuda_graph=["attn"], **_WGRAD
    ),
    "delayed weight gradients, no bias, attention in a graph": _case(None, cuda_graph=["attn"], **_WGRAD),
    "delayed weight gradients, biased model, router in a graph": _case(None, _OSS, cuda_graph=["moe_router"], **_WGRAD),
    # dispatcher and precision against the GPU
    "deepep on gb200": _case("dispatch.deepep_gpu", hardware="gb200", dispatcher="deepep"),
    "deepep on b200": _case(None, hardware="b200", dispatcher="deepep"),
    "hybridep on gb200": _case(None, hardware="gb200", dispatcher="hybridep"),
    "hybridep on h100": _case(None, dispatcher="hybridep"),
    "deepep alone in its group": _case("dispatch.deepep_group", ep=1, dispatcher="deepep", build=True),
    "deepep in a group": _case(None, ep=16, dispatcher="deepep", build=True),
    "hybridep alone in its group": _case(None, _MOONLIGHT, ep=1, dispatcher="hybridep", build=True),
    "mxfp8 on h100": _case("precision.mxfp8_gpu", precision="mxfp8"),
    "mxfp8 on b200": _case(None, hardware="b200", precision="mxfp8"),
    "nvfp4 on h100": _case("precision.nvfp4_gpu", precision="nvfp4"),
    "nvfp4 on gb300": _case(None, hardware="gb300", precision="nvfp4"),
    "fp8_blockwise on h100": _case(None, precision="fp8_blockwise"),
    "fp8_blockwise on b200": _case(None, hardware="b200", precision="fp8_blockwise"),
    "fp8_current on gb200": _case(None, hardware="gb200", precision="fp8_current"),
    # vision, FSDP
    "vision heads: 16 over 32": _case("vision.heads", _VL, gpus=32, tp=32, build=True),
    "vision heads: 16 over 16": _case(None, _VL, tp=16, build=True),
    "vision with vpp": _case("vision.no_vpp", _VL, pp=2, vpp=2, build=True),
    "vision with pp": _case(None, _VL, pp=2, build=True),
    "vision with a layout": _case(None, _VL, pp=2, pipeline_layout="Et*20|t*28L", build=True),
    "vision with cp": _case(None, _VL, cp=2, build=True),
    "vision with expert overlap": _case("vision.no_ep_overlap", _VL, build=True, **_OVERLAP),
    "vision without expert overlap": _case(None, _VL, build=True),
    "vision with a captured router": _case(None, _VL, build=True, cuda_graph=["moe_router", "moe_preprocess"]),
    "deepstack: 2 layers on the first of 24 stages": _case(
        "vision.deepstack_on_first_stage", _VL, gpus=24, ep=1, pp=24, build=True
    ),
    "deepstack: 3 layers on the first of 16 stages": _case(None, _VL, gpus=128, pp=16, build=True),
    "FSDP with pp": _case("fsdp.no_pipeline", sharding="fsdp", pp=2),
    "FSDP without pp": _case(None, sharding="fsdp"),
    "FSDP with vpp and overlap": _case("fsdp.no_pipeline", sharding="fsdp", pp=2, vpp=2, **_OVERLAP),
    "FSDP with overlap": _case(None, sharding="fsdp", **_OVERLAP),
    "FSDP with tp 2 x cp 2, etp 2 x ep 4": _case(None, sharding="fsdp", tp=2, cp=2, etp=2, ep=4),
    # hybrids
    "hybrid with vpp": _case("hybrid.no_vpp", _NANO, pp=2, vpp=2, build=True),
    "hybrid with pp": _case(None, _NANO, pp=2, build=True),
    "hybrid: 52 layers on 3 stages": _case(None, _NANO, gpus=24, pp=3, build=True),
    "hybrid, a layout with an uneven end": _case(
        None, _NANO, pp=2, pipeline_layout="MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEM|EM*EMEMEMEM*EMEMEMEME", build=True
    ),
    "Mamba heads: 40 over tp 2 x cp 8": _case(
        "hybrid.mamba_heads", _NANO, tp=2, cp=8, facts={"mamba_heads": 40}, build=True
    ),
    "Mamba heads: 48 over tp 2 x cp 8": _case(None, _NANO, tp=2, cp=8, facts={"mamba_heads": 48}, build=True),
    "Mamba groups: 8 over tp 16": _case("hybrid.mamba_groups", _NANO, tp=16, build=True),
    "Mamba groups: 8 over tp 8": _case(None, _NANO, tp=8, build=True),
    "Mamba groups: 8 over cp 3": _case(
        "hybrid.mamba_groups_over_cp", _NANO, gpus=24, cp=3, seq=4098, facts={"mamba_heads": 96}, build=True
    ),
    "Mamba groups: 4 of a rank over cp 6": _case(
        "hybrid.mamba_groups_over_cp", _NANO, gpus=48, tp=2, cp=6, seq=4104, facts={"mamba_heads": 96}, build=True
    ),
    "Mamba groups: 8 over cp 4": _case(None, _NANO, cp=4, build=True),
    "Mamba groups: 8 over cp 16": _case(None, _NANO, cp=16, build=True),
    "hybrid without expert overlap": _case(None, _NANO),
    "Mamba projection of 2576 in FP8": _case(None, _NANO, tp=4, precision="fp8_current"),
    "Mamba projection of 5152 in MXFP8": _case(None, _NANO, hardware="gb200", tp=2, precision="mxfp8"),
    "hybrid, moe recomputed under Mamba graphs": _case(
        None, _NANO, recompute=["moe", "layernorm"], cuda_graph=["attn", "mamba"]
    ),
    "hybrid, Mamba to preprocessing in graphs": _case(
        None, _SUPER, dispatcher="hybridep", cuda_graph=["attn", "moe_router", "moe_preprocess", "mamba"]
    ),
    "hybrid, full recompute under Mamba graphs": _case(
        "cuda_graph.no_full_recompute", _NANO, recompute=["full"], cuda_graph=["mamba"]
    ),
    "hybrid, whole-iteration graph and recomputed squared ReLU": _case(None, _NANO, recompute=["moe_act"], **_WHOLE),
    "hybrid with latent experts over etp": _case(None, _SUPER, ep=32, etp=2, build=True),
    "hybrid under FSDP": _case(None, _NANO, sharding="fsdp"),
    "hybrid, experts offloaded": _case(None, _NANO, recompute=["moe_act"], offload_modules=["expert_fc1"]),
    # packed samples
    "packed samples: microbatch of 2": _case(
        "packed_samples.packed_micro_batch", task="sft", data='"/data/chats"', micro_batch=2
    ),
    "packed samples: microbatch of 1, cp 2": _case(None, task="sft", data='"/data/chats"', cp=2),
    "padded samples: microbatch of 2": _case(None, task="sft", data='"/data/chats" pack=off', micro_batch=2),
    # adapters
    "adapters: rank 9 over tp 2": _adapted("rank_over_tp", "lora rank=9", tp=2),
    "adapters: rank 9 of row-parallel linears over tp 2": _adapted(None, "lora rank=9 targets=[linear_proj]", tp=2),
    "adapters: rank 9 of the router over tp 2": _adapted("rank_over_tp", "lora rank=9 targets=[router]", tp=2),
    "adapters: rank 9 of latents over tp 2": _adapted(
        "rank_over_tp", "lora rank=9 targets=[linear_kv_up_proj]", _MOONLIGHT, tp=2
    ),
    "adapters: rank 9 of experts over etp 2": _adapted(
        "rank_over_etp", "lora rank=9 experts=each targets=[linear_fc1]", etp=2
    ),
    "adapters: rank 9 of experts' second product over etp 2": _adapted(None, "lora rank=9 targets=[linear_fc2]", etp=2),
    "adapters: rank 12 over 8 experts of a token": _adapted("rank_over_topk", "lora rank=12 normalized=on"),
    "adapters: rank 24 over 8 experts of a token, etp 2": _adapted(None, "lora rank=24 normalized=on", etp=2),
    "adapters: sides that experts share": _adapted("outer_is_saved", "lora experts=outer", tp=2),
    "adapters: DoRA of experts": _adapted("dora_has_a_weight", "dora"),
    "adapters: DoRA without experts": _adapted(None, "dora experts=none", tp=2),
    "adapters: DoRA of latents": _adapted(None, "dora targets=[linear_kv_down_proj]", _MOONLIGHT),
    "adapters: canonical LoRA": _adapted(None, "canonical_lora experts=each", tp=2),
    "adapters: canonical LoRA of queries alone": _adapted(
        "canonical_whole", "canonical_lora targets=[linear_q, linear_proj]"
    ),
    "adapters: canonical LoRA of one half of a shared expert": _adapted(
        "canonical_whole", "canonical_lora targets=[linear_fc1_up]", _MOONLIGHT
    ),
    "adapters: canonical LoRA of one half of experts": _adapted(None, "canonical_lora targets=[linear_fc1_gate]"),
    "adapters of MTP, Mamba and latent experts": _adapted(
        None, "lora targets=[in_proj, out_proj, eh_proj, fc1_latent_proj, fc2_latent_proj, linear_fc1]", _SUPER
    ),
    "adapters of a vision tower": _adapted(None, "lora", _VL, tp=2),
    "adapters of a vision tower, experts without": _adapted(None, "lora experts=none", _VL, tp=2),
    "adapters: canonical LoRA of one half of a vision tower": _adapted(
        None, "canonical_lora experts=none targets=[linear_fc1_up]", _VL, tp=2
    ),
    # delta nets
    "delta heads: 16 over tp 4 x cp 8": _case("delta_net.heads", _NEXT, tp=4, cp=8),
    "delta heads: 16 over tp 2 x cp 8": _case(None, _NEXT, tp=2, cp=8),
    "delta heads: 24 of values over tp 8": _case(
        "delta_net.heads", _NEXT, tp=8, facts={"linear_key_heads": 12, "linear_value_heads": 24}
    ),
    "delta nets, 2 query groups over tp 8": _case(None, _NEXT, tp=8, build=True),
    "delta nets with vpp": _case(None, _NEXT, pp=2, vpp=4, build=True),
    "delta nets, a layout with an uneven end": _case(
        None, _NEXT, pp=2, vpp=4, pipeline_layout="Et*4|(t*7|)*5t*8|tmL", facts={"mtp_layers": 1}, build=True
    ),
    "delta nets, MTP in a chunk without a layer": _case(
        "check.pipeline_layout",
        _NEXT,
        pp=2,
        vpp=2,
        pipeline_layout="Et*16|t*16|t*16|mL",
        facts={"mtp_layers": 1},
        build=True,
    ),
    "delta nets, the loss in a chunk without a layer, no MTP": _case(
        None, _NEXT, pp=2, vpp=2, pipeline_layout="Et*16|t*16|t*16|L", facts={"mtp_layers": 0}, build=True
    ),
    "delta nets with expert overlap": _case(None, _NEXT, build=True, **_WGRAD),
    "delta nets under FSDP": _case(None, _NEXT, sharding="fsdp", build=True),
    "delta projection of 3088 in FP8": _case(None, _NEXT, tp=4, precision="fp8_current"),
    "delta projection of 6176 in MXFP8": _case(None, _NEXT, hardware="gb200", tp=2, precision="mxfp8"),
    "delta nets, attention to preprocessing in graphs": _case(
        None, _NEXT, dispatcher="hybridep", cuda_graph=["attn", "moe_router", "moe_preprocess"]
    ),
    "delta nets, moe recomputed with what lies in it": _case(None, _NEXT, recompute=["layernorm", "moe", "moe_act"]),
    "delta nets, whole layers recomputed": _case(None, _NEXT, recompute=["full"]),
    "delta nets, attention offloaded": _case(None, _NEXT, offload_modules=["qkv_linear", "core_attn", "attn_proj"]),
    "shared keys, a stage that starts with a layer without an indexer": _case(
        "check.pipeline_layout", _GLM52, pipeline_layout="Et*39|t*39mL", facts={"mtp_layers": 1}, build=True
    ),
    "shared keys, stages that start with an indexer": _case(
        None, _GLM52, pipeline_layout="Et*38|t*40mL", facts={"mtp_layers": 1}, build=True
    ),
    "sparse attention, a chunk between others without a layer": _case(
        "check.pipeline_layout",
        _GLM5,
        pp=2,
        vpp=2,
        ep=32,
        pipeline_layout="Et*39||t*20|t*19mL",
        facts={"mtp_layers": 1},
        build=True,
    ),
    "sparse attention, a chunk without a layer, no MTP": _case(
        None, _GLM5, pp=2, vpp=2, ep=32, pipeline_layout="Et*39||t*20|t*19L", facts={"mtp_layers": 0}, build=True
    ),
    "K-EXAONE: a stage between others without a layer": _case(
        None, _EXAONE, pp=4, ep=16, pipeline_layout="Et*24||t*12|t*12mL", build=True
    ),
    "vision with delta nets and vpp": _case(None, _VL35, pp=2, vpp=4, build=True),
    "vision with delta nets and expert overlap": _case("vision.no_ep_overlap", _VL35, build=True, **_OVERLAP),
    "vision with delta nets and a captured router": _case(
        None, _VL35, build=True, cuda_graph=["moe_router", "moe_preprocess"]
    ),
    "vision with delta nets, images over tp 2 x cp 2": _case(None, _VL35, tp=2, cp=2, seq=4104),
    "K-EXAONE: vpp 2": _case("dense_mtp.no_vpp", _EXAONE, vpp=2, build=True),
    "K-EXAONE with expert overlap": _case("dense_mtp.no_ep_overlap", _EXAONE, build=True, pp=1, **_OVERLAP),
    "windows of another shape: cp 2": _case("windows.no_cp", _MIMO, cp=2, build=True),
    "windows of another shape: 4 query groups over tp 8": _case(
        "windows.groups_over_tp", _MIMO, tp=8, gpus=256, build=True
    ),
    "windows of another shape: 4 query groups over tp 4": _case(None, _MIMO, tp=4, build=True),
    "windows of another shape: vpp 2": _case("windows.no_vpp", _MIMO, pp=2, vpp=2, build=True),
    "windows of another shape: pp 2": _case(None, _MIMO, pp=2, build=True),
    "windows with more heads: vpp 2": _case("window_heads.no_vpp", _STEP, pp=2, vpp=2, build=True),
    "windows with more heads: pp 2": _case(None, _STEP, pp=2, build=True),
    "windows with more heads: 96 heads over tp 64": _case("window_heads.heads_over_tp", _STEP, tp=64, build=True),
    "windows with more heads: 96 heads over tp 32": _case(None, _STEP, tp=32, build=True),
    "Gemma 4: vpp 5": _case("gemma4.no_vpp", _GEMMA, pp=2, vpp=5, ep=4, build=True),
    "Gemma 4: pp 2": _case(None, _GEMMA, pp=2, ep=4, build=True),
    "Gemma 4: 2 query groups over tp 4": _case(None, _GEMMA, tp=4, build=True),
    "Gemma 4 with a captured router": _case("gemma4.no_graphs", _GEMMA, cuda_graph=["moe_router"], build=True),
    "Gemma 4, norms recomputed": _case("gemma4.no_recomputed_norm", _GEMMA, recompute=["layernorm"], build=True),
    "Gemma 4, experts recomputed": _case(None, _GEMMA, recompute=["moe"], build=True),
    "Gemma 4, norm offloaded": _case("gemma4.no_offloaded_norm", _GEMMA, offload_modules=["mlp_norm"], build=True),
    "Gemma 4, attention offloaded": _case(None, _GEMMA, offload_modules=["core_attn", "attn_proj"], build=True),
    "Kimi-K2.5 with expert overlap": _case("vision.no_schedule_of_layers", _K25, build=True, vpp=2, **_OVERLAP),
    "Kimi-K2.5 with vpp": _case(None, _K25, build=True, vpp=2),
    "Kimi-K2.5: a tower of 16 heads over tp 32": _case(None, _K25, build=True, tp=32),
    "Kimi-K2.5 with attention in a graph": _case(
        None, _K25, build=True, cuda_graph=["attn", "moe_router", "moe_preprocess"]
    ),
    "K-EXAONE: vpp 1": _case(None, _EXAONE, build=True),
}
ALSO: dict[str, list[str]] = {
    "vision heads: 16 over 32": ["vision.heads", "vision.width"],
    "hybrid with vpp": ["hybrid.no_vpp", "mesh.layers"],
}
"""The tower's width, 4304, and its 16 heads are divisible by the same powers of two: one breaks with the other. A hybrid
has no layout of virtual stages, whatever its layers."""

LATER: dict[str, tuple[Case, str]] = {
    "sparse attention on Ampere": (
        _case("sparse.hopper", {**_GLM5, "hardware": "a100_80gb"}),
        "core/transformer/experimental_attention_variant/dsa_cudnn_kernels.py:345 raises in the first forward",
    ),
    "sparse attention on Hopper": (_case(None, {**_GLM5, "hardware": "h100"}), "it has the kernels"),
    "sparse attention with delayed weight gradients": (
        _case("sparse.whole_wgrad", _GLM5, **_WGRAD),
        "the queue of linear_kv_up_proj is empty in the first backward (te pytorch/module/_common.py:312)",
    ),
    "sparse attention with expert overlap": (_case(None, _GLM5, **_OVERLAP), "nothing is delayed"),
    "sparse attention, projections recomputed in MXFP8": (
        _case("sparse.up_proj_in_bf16", _GLM5, recompute=["mla_up_proj"], precision="mxfp8"),
        "core/transformer/experimental_attention_variant/absorbed_mla.py:663 asserts in the first forward",
    ),
    "sparse attention, projections recomputed": (_case(None, _GLM5, recompute=["mla_up_proj"]), "it computes"),
    "sparse attention, an adapter of the projection that it reads": (
        _adapted("kv_up_is_read", "dora targets=[linear_kv_up_proj]", _GLM5, "sparse_adapters"),
        "DoRALinear has no weight (core/transformer/experimental_attention_variant/absorbed_mla.py:686), in the first forward",
    ),
    "sparse attention, LoRA of the projection that it reads": (
        _adapted(None, "lora targets=[linear_kv_up_proj]", _GLM5),
        "LoRALinear has the weight with the product of its adapter (bridge/peft/lora_layers.py:36)",
    ),
    "sparse attention, an adapter of the projection that it calls": (
        _adapted(None, "lora targets=[linear_q_up_proj]", _GLM5),
        "it computes",
    ),
    "norm over all heads: tp 2": (
        _case("qk_norm.no_tp", _OLMOE, tp=2),
        "the norm is twice as wide as a rank's queries (bridge models/olmoe/olmoe_provider.py:179), in the first forward",
    ),
    "norm over all heads: tp 1": (_case(None, _OLMOE), "it computes"),
    "sequence shards: 4098 over 4": (
        _case("batch.sequence_shards", tp=4, seq=4098),
        "core/tensor_parallel/mappings.py:72 asserts in the first forward pass",
    ),
    "sinks: 8 query groups over tp 4 x cp 4": (
        _case("sinks.heads_over_cp", _OSS, tp=4, cp=4, gpus=64),
        "Transformer Engine asserts in the first forward pass (context_parallel.py:4644)",
    ),
    "Gemma 4: cp 2": (
        _case("gemma4.no_cp", _GEMMA, cp=2),
        "Transformer Engine finds no kernel for heads of 512 in the first forward (te pytorch/attention/dot_product_attention/utils.py:1269)",
    ),
    "Gemma 4 with expert overlap": (
        _case("gemma4.no_ep_overlap", _GEMMA, **_OVERLAP),
        "its class has no build_schedule_plan (core pipeline_parallel/combined_1f1b.py:382), in the first step",
    ),
    "whole-iteration graph of Kimi-K2.5": (
        _case("vision.no_counting_in_graphs", {**_K25, **_WHOLE}),
        "a copy to the host while the graph is captured",
    ),
    "whole-iteration graph over alltoall": (
        _case("cuda_graph.whole_graph_dispatcher", cuda_graph=["full_iteration"]),
        "a copy to the host while the graph is captured",
    ),
    "whole-iteration graph of 1000 microbatches": (
        _case(
            "cuda_graph.stash_microbatches",
            hardware="gb200",
            dispatcher="hybridep",
            cuda_graph=["full_iteration"],
            global_batch=16000,
        ),
        "core/transformer/moe/paged_stash.py:456 asserts while the first steps number them",
    ),
    "hybridep on part of a domain": (
        _case("dispatch.hybridep_domain", hardware="gb200", gpus=128, ep=128, dispatcher="hybridep"),
        "HybridEP's buffer is made by the first dispatch",
    ),
    "mxfp8 with 4100 tokens": (
        _case("precision.quantised_tokens", hardware="b200", precision="mxfp8", seq=4100),
        "Transformer Engine asks when it quantises",
    ),
    "blockwise FP8, shards of 1500 tokens": (
        _case("precision.quantised_tokens", tp=2, precision="fp8_blockwise", seq=3000),
        "te/pytorch/module/linear.py:472 raises in the first forward pass",
    ),
    "blockwise FP8, shards of 1504 tokens": (
        _case(None, tp=2, precision="fp8_blockwise", seq=3008),
        "nothing is broken: the neighbour of the one before",
    ),
    "mxfp8 down-projections of 4112 tokens": (
        _case("precision.quantised_tokens", {**_DEEPSEEK, "precision": "mxfp8"}, tp=2, seq=8224),
        "Transformer Engine asks when it quantises",
    ),
    "mxfp8 experts of 48": (
        _case("precision.quantised_widths", hardware="b200", precision="mxfp8", etp=16, ep=1),
        "Transformer Engine asks when it quantises",
    ),
    "blockwise FP8 of a hidden state of 2,056": (
        _case("precision.quantised_attention", precision="fp8_blockwise", facts={"hidden": 2056}),
        "te/pytorch/module/layernorm_linear.py:184 raises in the first forward pass",
    ),
    "blockwise FP8 of a hidden state of 2,064": (
        _case(None, precision="fp8_blockwise", facts={"hidden": 2064}),
        "nothing is broken: the neighbour of the one before",
    ),
    "blockwise FP8 of 32 heads of 66 over tp 8": (
        _case("precision.quantised_attention", tp=8, precision="fp8_blockwise", facts={"head_dim": 66}),
        "te/pytorch/module/linear.py:472 raises in the first forward pass",
    ),
    "mxfp8 latents of 1,520": (
        _case("precision.quantised_latents", {**_DEEPSEEK, "precision": "mxfp8"}, facts={"q_lora_rank": 1520}),
        "Transformer Engine asks when it quantises",
    ),
    "mxfp8 latents of 1,504": (
        _case(None, {**_DEEPSEEK, "precision": "mxfp8"}, facts={"q_lora_rank": 1504}),
        "nothing is broken: the neighbour of the one before",
    ),
    "blockwise FP8 of a dense layer of 10,944 over tp 8": (
        _case("precision.quantised_dense", _AIR, tp=8, precision="fp8_blockwise"),
        "te/pytorch/module/linear.py:472 raises in the first forward pass",
    ),
    "blockwise FP8 of a dense layer of 10,944 over tp 4": (
        _case(None, _AIR, tp=4, precision="fp8_blockwise"),
        "nothing is broken: the neighbour of the one before",
    ),
    "mxfp8 of a dense layer of 10,944 over tp 4": (
        _case("precision.quantised_dense", _AIR, hardware="gb200", tp=4, precision="mxfp8"),
        "Transformer Engine asks when it quantises",
    ),
    "a dense layer of 10,944 over tp 8, the first in BF16": (
        _case(None, _AIR, tp=8, precision="fp8_current"),
        "nothing is broken: current scaling keeps the first layer in BF16",
    ),
    "vision with captured attention": (
        _case("vision.no_captured_attention", _VL, cuda_graph=["attn"]),
        "the graph has no rotary embedding, and nothing says so",
    ),
    "vision with a captured iteration": (
        _case("vision.no_whole_graph", _VL, hardware="gb200", dispatcher="hybridep", cuda_graph=["full_iteration"]),
        "positions are counted on the host while the graph is captured",
    ),
    "core_attn offloaded, whole layers recomputed": (
        _case("offload_modules.not_with_full_recompute", recompute=["full"], offload_modules=["core_attn"]),
        "core/pipeline_parallel/fine_grained_activation_offload.py:1161 asserts in the first backward",
    ),
    "qkv_linear offloaded, up-projection recomputed": (
        _case(
            "offload_modules.up_proj_has_chunk", _MOONLIGHT, recompute=["mla_up_proj"], offload_modules=["qkv_linear"]
        ),
        "core/pipeline_parallel/fine_grained_activation_offload.py:822 has no chunk in the first backward",
    ),
    "FSDP and graphs of modules": (
        _case("cuda_graph.modules_under_fsdp", sharding="fsdp", cuda_graph=["moe_router"]),
        "te/pytorch/graph.py:388 raises at the capture, whose layers have FSDP's hooks",
    ),
    "FSDP and an optimizer in host memory": (
        _case("fsdp.no_optimizer_offload", sharding="fsdp", offload="optimizer"),
        "core/optimizer/cpu_offloading/hybrid_optimizer.py:274 pins a DTensor when the optimizer is built",
    ),
    "MXFP8 weights and an optimizer in host memory": (
        _case("offload_optimizer.unquantised_weights", hardware="b200", precision="mxfp8", offload="optimizer"),
        "core/optimizer/distrib_optimizer.py:781 has no tensor to step when the optimizer is built",
    ),
    "whole-iteration graph over ETP": (
        _case("cuda_graph.whole_graph_experts", etp=2, **_WHOLE),
        "core/transformer/moe/experts.py:287 asserts when the experts are built",
    ),
    "whole-iteration graph and recomputed activation": (
        _case("cuda_graph.whole_graph_activation", recompute=["moe_act"], **_WHOLE),
        "te/pytorch/ops/basic/swiglu.py:474 raises in the first forward pass",
    ),
    "whole-iteration graph in blockwise FP8 on Hopper": (
        _case(None, **{**_WHOLE, "hardware": "h100", "precision": "fp8_blockwise"}),
        "nothing is broken: the neighbour of the next",
    ),
    "whole-iteration graph in blockwise FP8 on Blackwell": (
        _case("cuda_graph.whole_graph_blockwise", **{**_WHOLE, "precision": "fp8_blockwise"}),
        "te/pytorch/ops/basic/grouped_linear.py:1222 reads on the host while the graph is captured",
    ),
    "hybrid with expert overlap": (
        _case("hybrid.no_ep_overlap", _NANO, **_OVERLAP),
        "core/pipeline_parallel/combined_1f1b.py:381 finds no schedule of the model in the first step",
    ),
    "hybrid under FSDP and Mamba graphs": (
        _case("cuda_graph.modules_under_fsdp", _NANO, sharding="fsdp", cuda_graph=["mamba"]),
        "te/pytorch/graph.py:388 raises at the capture, whose layers have FSDP's hooks",
    ),
    "Mamba projection of 1288 in FP8": (
        _case("hybrid.quantised_mamba", _NANO, tp=8, precision="fp8_current"),
        "the products of the first backward have 1288 rows, no multiple of 16",
    ),
    "Mamba projection of 2576 in MXFP8": (
        _case("hybrid.quantised_mamba", _NANO, hardware="gb200", tp=4, precision="mxfp8"),
        "Transformer Engine asks when it quantises",
    ),
    "overlap, captured attention and a recomputed norm": (
        _case("ep_overlap.norm_recompute_in_graph", cuda_graph=["attn"], recompute=["layernorm"], **_OVERLAP),
        "core/models/gpt/fine_grained_callables.py:205 discards a checkpoint that has ended, in the first replay",
    ),
    "DeepEP over 12 ranks": (
        _case(
            "dispatch.deepep_sizes",
            {**_BASE, "model": "kimi_k2"},
            gpus=96,
            ep=12,
            dispatcher="deepep",
            global_batch=192,
        ),
        "DeepEP has no settings for the group; core/transformer/moe/fused_a2a.py:48 asks in the first forward pass",
    ),
    "DeepEP over 6 ranks": (
        _case("dispatch.deepep_sizes", gpus=6, ep=6, dispatcher="deepep", global_batch=192, facts={"experts": 126}),
        "DeepEP has no settings for the group",
    ),
    "DeepEP, 8 experts of a token over ETP 8": (
        _case("dispatch.deepep_topk", ep=2, etp=8, dispatcher="deepep"),
        "DeepEP's kernels assert num_topk <= 32",
    ),
    "DeepEP, 8 experts of a token over ETP 4": (
        _case(None, ep=2, etp=4, dispatcher="deepep"),
        "nothing is broken: the neighbour of the one before",
    ),
    "HybridEP over groups of 6 on nodes of 8": (
        _case(
            "dispatch.hybridep_nodes", gpus=48, ep=6, dispatcher="hybridep", global_batch=192, facts={"experts": 126}
        ),
        "HybridEP cannot open the memory of a rank on another node",
    ),
    "HybridEP over two nodes, 24,576 tokens of a rank": (
        _case("dispatch.hybridep_depth", ep=16, dispatcher="hybridep", seq=24576),
        "HybridEP asserts tx_depth < 65536 when its buffer is made",
    ),
    "HybridEP over one node, 24,576 tokens of a rank": (
        _case(None, dispatcher="hybridep", seq=24576),
        "nothing is broken: the neighbour of the one before",
    ),
    "vision in NVFP4": (
        _case("vision.no_fp4", _VL, hardware="gb200", precision="nvfp4"),
        "nothing is computed in FP4, and nothing says so",
    ),
    "vision with offloaded activations": (
        _case("vision.no_activation_offload", _VL, offload_modules=["moe_act"]),
        "nothing is offloaded, and nothing says so",
    ),
    "vision features over tp 2 x cp 2": (
        _case("vision.image_shards", _VL, tp=2, cp=2, seq=4100),
        "bridge/models/qwen_vl/modelling_qwen3_vl/utils.py:237 asserts in the first forward pass",
    ),
    "vision with delta nets, images over tp 2 x cp 2 and a rest": (
        _case("vision.image_shards", _VL35, tp=2, cp=2, seq=4100),
        "bridge/models/qwen_vl/modelling_qwen3_vl/utils.py:237 asserts in the first forward pass, also without deepstack",
    ),
    "adapters: canonical LoRA beside an output gate": (
        _adapted("canonical_without_gate", "canonical_lora", _NEXT),
        "the widths differ in the first forward",
    ),
    "adapters: canonical LoRA beside values narrower than keys": (
        _adapted("canonical_wide_values", "canonical_lora", _MIMO),
        "the widths differ in the first forward",
    ),
    "adapters under FSDP": (
        _adapted("weights_before_fsdp", "lora", sharding="fsdp"),
        "no CPU reads weights in the shards of FSDP",
    ),
    "delta projection of 1544 in FP8": (
        _case("delta_net.quantised_products", _NEXT, tp=8, precision="fp8_current"),
        "the products of the first backward have 1544 rows, no multiple of 16",
    ),
    "delta projection of 3088 in MXFP8": (
        _case("delta_net.quantised_products", _NEXT, hardware="gb200", tp=4, precision="mxfp8"),
        "Transformer Engine asks when it quantises",
    ),
}
"""What Bridge accepts and breaks later, where no CPU can ask: in kernels, collectives and captured graphs."""

STRICTER: dict[str, tuple[Case, str]] = {
    "full and another": (
        _case("recompute.full_alone", recompute=["full", "moe_act"]),
        "Megatron-Core would recompute whole layers, whatever the modules",
    ),
    "whole iteration and attn": (
        _case(
            "cuda_graph.full_iteration_alone",
            hardware="gb200",
            dispatcher="hybridep",
            cuda_graph=["full_iteration", "attn"],
        ),
        "the emitter names no modules beside it; with them transformer_config.py:2461 refuses",
    ),
}
"""Contradictions in the words of a run that reach Bridge as something else than was said."""

EVERY = CASES | {n: c for n, (c, _) in (LATER | STRICTER).items()}

_NEIGHBOURS = rotation.some("neighbours", [n for n, c in EVERY.items() if c.law is None], 4)
_BROKEN = rotation.one_of_each("broken", [n for n, c in EVERY.items() if c.law], lambda n: EVERY[n].law)
ASKED = [n for n in EVERY if n in _BROKEN or n in _NEIGHBOURS]
"""What a run asks of Bridge: a case that breaks each law, and some of those that break none."""
