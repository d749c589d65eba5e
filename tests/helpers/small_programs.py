"""Programs with few rows, for searches that try them all, and wider ones with their real prices."""

import hypothesis.strategies as st

from moedsl.compiler import compile_source
from moedsl.rules.check.program import Program
from moedsl.support.source import Source


def program(text: str) -> Program:
    result = compile_source(Source("run.moe", text), "check")
    assert result.programs and not result.failed, result.diagnostics
    return result.programs[0]


WHY = 'because "a test" cite ours "here"'
SMALL = f"""
rules small {{
  candidates vpp = [1, 2] {WHY}
  candidates micro_batch = [1, 2] when phase != fit {WHY}
  candidates recompute = [none, [moe_act], full] {WHY}
  candidates cuda_graph = [none, [moe_router, moe_preprocess]] when phase == throughput {WHY}
}}
"""
EXTRAS = [
    "pin tp=2", "pin pp=2 vpp=2", "pin ep=4", "pin etp=2", "pin cp=2", "pin micro_batch=2", "pin recompute=[moe_act]", "pin dispatcher=alltoall",
    "pin offload=optimizer", "pin ep_overlap=true", "pin dp=2", "require dp >= 2", "require tp * cp <= 2", "require full not in recompute",
    "require peak_memory < 70 GB", "require spare_memory > 5 GB", "prefer spare_memory > 20 GB", "require offload == none and ep > 1", "require step_time < 60", "prefer cp <= 1", "prefer tp > 1", "prefer moe_act in recompute",
    "prefer big: dispatcher != alltoall and tp == 2", "allow memory.fits", "risk oom", "require spare_at_best > 5 GB", "prefer spare_at_low > 20 GB", "allow dispatch_advice", "seq 16k", "batch 64", "precision auto", "vlm",
    "require full not in recompute or pp > 1", "require offload == none or tp > 1", "require moe_router not in cuda_graph or tp == 1", "require not ep_overlap or ep > 2",
    "require dispatcher == alltoall or full in recompute and tp > 1", "prefer offload == none and full in recompute and pp > 1",
    "require 60 > step_time", "require step_time < 60 and tp > 1", "require score * 2 < 90", "require peak_memory < 70 GB or full in recompute", "require step_time * dp < 200",
    "require step_time < 30 or peak_memory < 40 GB", "require step_time + peak_memory / 1 GB < 90", "require spare_memory > 20 GB or step_time < 25 and tp > 1", "require peak_memory > 60 GB", "require spare_memory < 10 GB", "require step_time > 40 and spare_at_best < 15 GB",
    "require full in recompute => step_time < 40 and spare_memory > 5 GB", "prefer step_time + peak_memory / 1 GB < 100", f"rules mine {{ let long = step_time > 50\n require m: not long or moe_act in recompute {WHY} }}",
    f"rules mine {{ candidates moments = [fp32, bf16] {WHY}\n require m: moments == fp32 or tp > 1 {WHY} }}",
    f"rules mine {{ candidates grad_reduce = [fp32, bf16] {WHY}\n candidates sharding = [optimizer, fsdp] {WHY}\n require m: grad_reduce == fp32 and sharding == fsdp or cp > 1 {WHY} }}",
    f"rules mine {{ let r = recompute\n require m: moe_act in r or count(r) == 0 {WHY} }}", f"rules mine {{ rank r: [cp, -step_time, peak_memory] {WHY} }}",
    f"rules mine {{ prefer p: count(recompute) == 0 worth 30% {WHY}\n prefer q: tp == 1 worth 0% {WHY} }}", f"rules mine {{ require x: score < 90 {WHY} }}",
]  # fmt: skip


@st.composite
def texts(draw: st.DrawFn) -> str:
    model = draw(st.sampled_from(["qwen3_30b_a3b", "gpt_oss_120b", "deepseek_v3", "moonlight_16b"]))
    machine = draw(st.sampled_from(["h100 x 8", "gb200 x 8", "b200 x 4", "gb200 x 12", "h200 x 6"]))
    phase = draw(st.sampled_from(["fit", "scale", "throughput"]))
    names = {"allow dispatch_advice", "vlm"}
    extras = [e for e in draw(st.lists(st.sampled_from(EXTRAS), max_size=3, unique=True)) if e not in names]
    rules = [e for e in extras if e.startswith("rules mine")]
    extras = [e for e in extras if not e.startswith("rules mine")] + rules[:1]
    return "\n".join([model, machine, f"{phase} first", *_compatible(extras)]) + SMALL


def _compatible(extras: list[str]) -> list[str]:
    """Without a second pin of the same axis."""
    said: set[str] = set()
    out = []
    for e in extras:
        keys = {w.split("=")[0] for w in e.split() if "=" in w} if e.startswith("pin") else set()
        if not keys & said:
            out.append(e)
        said |= keys
    return out


WIDE = [
    "qwen3_235b_a22b; gb200 x 64; throughput first; precision auto",
    "qwen3_30b_a3b; h100 x 48; scale first; seq 16k; precision fp8",
    "deepseek_v3; b200 x 64; throughput first; pin moments=bf16 grad_reduce=bf16",
    "gpt_oss_120b; h200 x 24; fit first; seq 32k",
    "qwen3_vl_30b_a3b; gb300 x 16; throughput first; vlm freeze_vision fsdp",
    f"moonlight_16b; h100 x 32; throughput first; rules r {{ candidates sharding = [optimizer, fsdp] {WHY}\n candidates moments = [fp32, bf16] {WHY}\n candidates grad_reduce = [fp32, bf16] {WHY} }}",
    "kimi_k2; gb200 x 128; scale first; seq 64k; sweep micro_batch in 1",
    f"qwen3_30b_a3b; gb200 x 64; throughput first; seq 64k; rules r {{ candidates cuda_graph = [[attn], [moe_router, moe_preprocess]] {WHY} }}",
    *(
        f"{model}; throughput first; rules r {{ candidates sharding = [optimizer, fsdp] {WHY}\n candidates recompute = [none, [moe_act, layernorm], full] {WHY}\n candidates offload_modules = [none, [moe_act], [moe_act, expert_fc1, mlp_norm], [core_attn, qkv_linear, attn_norm], [core_attn, attn_proj, qkv_linear, moe_act, attn_norm, expert_fc1, mlp_norm]] {WHY} }}"
        for model in ("qwen3_30b_a3b; h100 x 16; seq 16k", "moonlight_16b; gb200 x 16; precision auto", "nemotron_3_nano; h100 x 16", "qwen3_next_80b_a3b; gb200 x 64")
    ),
]  # fmt: skip
