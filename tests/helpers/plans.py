"""Plans written by hand, in the shape of docs/internals.md: the emitter's inputs until a solver makes them."""

from typing import Any

from attrs import asdict

from moedsl.bridge.verify.cases import devices
from moedsl.facts import axes
from moedsl.planner.plan import Plan

_LAYOUT = {"tp": 1, "cp": 1, "pp": 1, "vpp": 1, "etp": 1, "sequence_parallel": False, "pipeline_layout": None}
_POLICY = {
    "precision": "bf16",
    "dispatcher": "alltoall",
    "recompute": [],
    "offload_modules": [],
    "offload": "none",
    "cuda_graph": [],
    "ep_overlap": False,
    "delay_wgrad": False,
    "sharding": "optimizer",
    "moments": "fp32",
    "grad_reduce": "fp32",
    "data": "mock",
    "routing": "natural",
    "freeze_vision": False,
    "freeze_projection": False,
    "freeze_language": False,
}
_DECISION: dict[str, Any] = {"cite": [], "alternatives": [], "effect": "execution"}
_MEMORY = dict.fromkeys(("peak_gib", "capacity_gib", "lower_gib", "upper_gib", "visible_gib", "unused_gib"), 0.0)
_TEXTS = {"covers": "", "verdict": "FITS", "because": ""}
_OUTSIDE = {"lower_gib": 0.0, "upper_gib": 0.0, "parts": []}
_RATES = ("step_time_s", "tokens_per_s_per_gpu", "model_tflops_per_gpu", "useful_share", "useful_tokens_per_s_per_gpu")
_ESTIMATE = {
    "memory": {**_MEMORY, **_TEXTS, "stages": [], "unknown": [], "outside": _OUTSIDE},
    **dict.fromkeys(_RATES, 1.0),
    "breakdown": {},
    "covers": {"step_time": ""},
}
_SHARES: dict[str, Any] = {"share": 0.0, "seconds": {}, "shares": {}}
_WALLS = {
    "memory": {**dict.fromkeys(("share", "allowed", "paid_s", "paid", "graphs_gib"), 0.0), "bought_back": []},
    "communication": {**_SHARES, "bubble_s": 0.0},
    "host": {"share": 0.0},
    "compute": _SHARES,
    "dominant": "compute",
    "usual": None,
    "fixes": {},
    "notes": [],
    "mfu": {"precision": "bf16", "share": 0.0, "of_bf16": 0.0},
}
_MODELS = {
    "qwen3_30b_a3b": ("Qwen/Qwen3-30B-A3B", "qwen3_moe"),
    "exaone_moe_236b_a23b": ("LGAI-EXAONE/K-EXAONE-236B-A23B", "exaone_moe"),
    "qwen3_235b_a22b": ("Qwen/Qwen3-235B-A22B", "qwen3_moe"),
    "deepseek_v3": ("deepseek-ai/DeepSeek-V3", "deepseek_v3"),
    "moonlight_16b": ("moonshotai/Moonlight-16B-A3B", "deepseek_v3"),
    "glm45_air_106b": ("zai-org/GLM-4.5-Air", "glm4_moe"),
    "kimi_k2": ("moonshotai/Kimi-K2-Instruct", "kimi_k2"),
    "step35_196b_a11b": ("stepfun-ai/Step-3.5-Flash", "step3p5"),
    "mimo_v2_flash": ("XiaomiMiMo/MiMo-V2-Flash", "mimo_v2_flash"),
    "gemma4_26b_a4b": ("google/gemma-4-26B-A4B", "gemma4"),
    "kimi_k25": ("moonshotai/Kimi-K2.5", "kimi_k25"),
    "gpt_oss_120b": ("openai/gpt-oss-120b", "gpt_oss"),
    "glm51_744b": ("zai-org/GLM-5.1", "glm_moe_dsa"),
    "glm52_744b": ("zai-org/GLM-5.2", "glm_moe_dsa"),
    "olmoe_7b": ("allenai/OLMoE-1B-7B-0125", "olmoe"),
    "nemotron_3_nano": ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron_h"),
    "nemotron_3_super": ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16", "nemotron_h"),
    "nemotron_3_ultra": ("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", "nemotron_h"),
    "nemotron_3_5_lightning": ("nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16", "nemotron_h"),
    "qwen3_vl_30b_a3b": ("Qwen/Qwen3-VL-30B-A3B-Instruct", "qwen3_vl_moe"),
    "qwen3_vl_235b_a22b": ("Qwen/Qwen3-VL-235B-A22B-Instruct", "qwen3_vl_moe"),
    "qwen3_next_80b_a3b": ("Qwen/Qwen3-Next-80B-A3B-Instruct", "qwen3_next"),
    "qwen35_vl_35b_a3b": ("Qwen/Qwen3.5-35B-A3B", "qwen3_5_moe"),
}


def plan(
    model: str,
    hardware: str,
    gpus: int,
    layout: dict[str, Any],
    policy: dict[str, Any] | None = None,
    batch: tuple[int, int, int] = (256, 1, 4096),
    **more: Any,
) -> Plan:
    """A whole plan from what makes it special. `batch` is global batch, microbatch, sequence length."""
    hf, kin = _MODELS[model]
    full: dict[str, Any] = {**_off("layout"), **_LAYOUT, **layout}
    full["dp"] = gpus // (full["tp"] * full["cp"] * full["pp"])
    full["edp"] = gpus // (full["etp"] * full["ep"] * full["pp"])
    full["sequence_parallel"] = full["tp"] > 1
    settled: dict[str, Any] = {**_off("policy"), **_POLICY, **(policy or {})}
    size, micro, seq = batch
    device = devices()[hardware]
    decided = [
        ("tp", full["tp"], "chosen", "std.mesh", "the smallest that fits"),
        ("dispatcher", settled["dispatcher"], "chosen", None, "fit first"),
        ("recompute", settled["recompute"], "pinned", None, None),
    ]
    return Plan.from_json(
        {
            "version": 1,
            "name": "main",
            "model": model,
            "hf": hf,
            "family": kin,
            "hardware": hardware,
            "gpus": gpus,
            "phase": "fit",
            "task": "pretrain",
            "target": {"bridge": "0.6.2"},
            "needs": [],
            "device": {**asdict(device), "capability": [*device.capability], "gpus_per_node": 8, "nvlink_domain": 8},
            "layout": full,
            "batch": {
                "global_batch": size,
                "micro_batch": micro,
                "num_microbatches": size // (micro * full["dp"]),
                "seq": seq,
            },
            "policy": settled,
            "derived": {"moe_router_dtype": "fp32"},
            "env": {"TORCH_NCCL_HIGH_PRIORITY": 1, "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
            "set": {},
            "estimate": _ESTIMATE,
            "walls": _WALLS,
            "decisions": [
                {"name": n, "value": v, "origin": o, "rule": r, "because": b, **_DECISION} for n, v, o, r, b in decided
            ],
            **{key: [] for key in ("advice", "allowed", "measured", "diagnostics", "alternatives", "steps")},
            "search": {"legal_layouts": 0, "rows_priced": 0},
            "experiment": {"values": {}, "fingerprint": "", "origins": {}, "benchmark": []},
            **more,
        }
    )


def _off(section: str) -> dict[str, Any]:
    return {a.name: a.decode(a.off) for a in axes.AXES if a.section == section}


def changed(p: Plan, **values: Any) -> Plan:
    """The plan with other values: those of a section are merged into it, any other key is replaced."""
    data = p.to_json()
    merged = {k: {**data[k], **v} if k in ("layout", "batch", "policy", "estimate") else v for k, v in values.items()}
    return Plan.from_json(data | merged)


_TE_GRAPH = ["attn", "moe_router", "moe_preprocess"]
_OVERLAP = {"ep_overlap": True, "delay_wgrad": True}
_SUPER_HALVES = "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EM|EMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME"

PLANS: dict[str, Plan] = {
    "qwen3_30b_h100_bf16": plan("qwen3_30b_a3b", "h100", 16, {"ep": 16}, {"recompute": ["moe_act", "layernorm"]}),
    "qwen3_30b_h100_fp8_full_recompute": plan(
        "qwen3_30b_a3b",
        "h100",
        16,
        {"ep": 8, "tp": 2, "etp": 2, "cp": 2},
        {"precision": "fp8_blockwise", "recompute": ["full"], "dispatcher": "deepep", "offload": "optimizer"},
        (64, 1, 32768),
    ),
    "qwen3_30b_h100_fsdp": plan(
        "qwen3_30b_a3b", "h100", 32, {"ep": 8}, {"sharding": "fsdp", "grad_reduce": "bf16", "recompute": ["moe_act"]}
    ),
    "qwen3_30b_h100_sft": plan(
        "qwen3_30b_a3b", "h100", 16, {"ep": 8, "cp": 2}, {"data": "/data/sft", "recompute": ["layernorm"]}, task="sft"
    ),
    "qwen3_235b_gb200_mxfp8_overlap": plan(
        "qwen3_235b_a22b",
        "gb200",
        256,
        {"pp": 8, "vpp": 3, "ep": 32, "pipeline_layout": "Et*3|(t*4|)*22t*3L"},
        {
            "precision": "mxfp8",
            "dispatcher": "hybridep",
            "moments": "bf16",
            "grad_reduce": "bf16",
            "cuda_graph": _TE_GRAPH,
            "recompute": ["moe_act"],
            "routing": "balanced",
            **_OVERLAP,
        },
        (1024, 1, 4096),
    ),
    "qwen3_235b_gb200_whole_graph_nvfp4": plan(
        "qwen3_235b_a22b",
        "gb200",
        256,
        {"pp": 8, "vpp": 4, "ep": 32, "pipeline_layout": "Et*2|(t*3|)*30t*2L"},
        {
            "precision": "nvfp4",
            "dispatcher": "hybridep",
            "moments": "bf16",
            "cuda_graph": ["full_iteration"],
            **_OVERLAP,
        },
        (1024, 1, 4096),
    ),
    "deepseek_v3_gb200_uneven": plan(
        "deepseek_v3",
        "gb200",
        256,
        {"pp": 4, "vpp": 4, "ep": 64, "pipeline_layout": "Et*4|(t*4|)*14tmL"},
        {
            "precision": "mxfp8",
            "dispatcher": "hybridep",
            "moments": "bf16",
            "recompute": ["mla_up_proj"],
            "cuda_graph": _TE_GRAPH,
        },
        (2048, 1, 4096),
    ),
    "gpt_oss_b200_long": plan(
        "gpt_oss_120b",
        "b200",
        64,
        {"tp": 2, "cp": 4, "ep": 16},
        {"precision": "bf16", "dispatcher": "hybridep", "recompute": ["layernorm"]},
        (64, 1, 131072),
        derived={"moe_router_dtype": "fp32", "cp_comm_type": "a2a"},
    ),
    "qwen3_vl_30b_h100_frozen": plan(
        "qwen3_vl_30b_a3b",
        "h100",
        16,
        {"ep": 8, "tp": 2, "cp": 2},
        {"freeze_vision": True, "recompute": ["layernorm", "moe_act"]},
    ),
    "qwen3_vl_235b_gb200_energon": plan(
        "qwen3_vl_235b_a22b",
        "gb200",
        64,
        {"ep": 8, "pp": 8, "pipeline_layout": "Et*10|(t*12|)*6t*12L"},
        {"dispatcher": "hybridep", "data": "/data/energon", "precision": "fp8_current", "recompute": ["moe_act"]},
    ),
    "qwen3_30b_h100_real_data": plan(
        "qwen3_30b_a3b",
        "h100",
        16,
        {"ep": 8, "pp": 2, "vpp": 4},
        {"data": "/data/corpus one_text_document", "dispatcher": "deepep", **_OVERLAP},
        set={
            "model.moe_router_dtype": "fp64",
            "optimizer.main_params_dtype": "torch.float32",
            "env_vars.NCCL_DEBUG": "WARN",
            "train.train_iters": 7,
        },
    ),
    "kimi_k2_h200_uneven": plan(
        "kimi_k2",
        "h200",
        512,
        {"tp": 2, "pp": 16, "ep": 32, "pipeline_layout": "Et*4|(t*4|)*14tL"},
        {"dispatcher": "deepep", "moments": "bf16", "recompute": ["moe_act", "mla_up_proj"]},
        (1024, 1, 4096),
    ),
    "moonlight_h100_scoped_graphs": plan(
        "moonlight_16b",
        "h100",
        8,
        {"ep": 8},
        {"precision": "fp8_current", "cuda_graph": ["moe_router", "moe_preprocess"], "recompute": ["mla_up_proj"]},
        derived={"moe_router_dtype": "fp32", "moe_router_fusion": True},
    ),
    "qwen3_vl_30b_h100_fsdp": plan(
        "qwen3_vl_30b_a3b",
        "h100",
        32,
        {"ep": 8, "cp": 2},
        {"sharding": "fsdp", "freeze_vision": True, "freeze_projection": True, "recompute": ["moe_act"]},
    ),
    "nemotron_3_nano_h100_graphs": plan(
        "nemotron_3_nano",
        "h100",
        16,
        {"ep": 8},
        {"dispatcher": "hybridep", "cuda_graph": ["attn", "mamba"], "recompute": ["layernorm", "moe"]},
        (1024, 1, 8192),
        derived={"moe_router_dtype": "fp32", "model.use_fused_weighted_squared_relu": True},
    ),
    "nemotron_3_super_h100_halves": plan(
        "nemotron_3_super",
        "h100",
        64,
        {"tp": 2, "cp": 2, "pp": 2, "ep": 16, "pipeline_layout": _SUPER_HALVES},
        {"moments": "bf16", "recompute": ["moe_act", "layernorm"]},
        (512, 1, 8192),
    ),
    "nemotron_3_super_gb200_mxfp8": plan(
        "nemotron_3_super",
        "gb200",
        64,
        {"tp": 2, "ep": 64},
        {"precision": "mxfp8", "dispatcher": "hybridep", "cuda_graph": [*_TE_GRAPH, "mamba"], "routing": "balanced"},
        (512, 1, 8192),
    ),
    "nemotron_3_ultra_gb300_fsdp": plan(
        "nemotron_3_ultra",
        "gb300",
        256,
        {"tp": 2, "ep": 64},
        {"precision": "mxfp8", "dispatcher": "hybridep", "sharding": "fsdp", "recompute": ["moe_act"]},
        (256, 1, 8192),
    ),
    "nemotron_3_5_lightning_h100_sft": plan(
        "nemotron_3_5_lightning",
        "h100",
        16,
        {"tp": 2, "ep": 8},
        {"data": "/data/sft", "recompute": ["moe"]},
        task="sft",
    ),
    "qwen3_30b_b300_mxfp8_fsdp": plan(
        "qwen3_30b_a3b", "b300", 16, {"ep": 8}, {"sharding": "fsdp", "precision": "mxfp8", "moments": "bf16"}
    ),
}
