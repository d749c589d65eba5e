"""Write stdlib/calibration/goldens.jsonl: Megatron's own functional tests as models and runs, with their peaks.

    python tools/import_goldens.py GOLDENS.jsonl

A line of GOLDENS.jsonl is a test with its arguments, and the peak memory and step time that Megatron's repository
expects of it. A line of the result has the facts of the model (`schema.facts.Model`), the axes of the layout, the
kernels, and the terms of memory for which the language has no word (`accuracy_goldens.TERMS`); or why it cannot be
carried. Peaks are those of the last rank, which writes Megatron's TensorBoard.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from moedsl.facts.axes import OFFLOAD_MODULES, RECOMPUTE

FILE = Path(__file__).parents[1] / "stdlib/calibration/goldens.jsonl"
MIB = 2**20
GPT2, LLAMA = 50257, 32000
"""Vocabularies of the tokenizers that the tests use, before padding."""
LARGE = {"mixtral_8x22b_tp2pp8ep8vpp1_release": 128, "mixtral_8x7b_tp1pp4ep8vpp8_release": 64}
"""GPUs of the tests on more than one node, by the optimizer state that remains after a step. They ran on H100 even
where the platform is called A100: the steps would take 339 TFLOPS of an A100's 312, and 277 with a bubble of 18%."""
GPUS = {"a100": "a100_80gb", "h100": "h100", "gb200": "gb200"}
"""The hardware of the stdlib by the word of a platform."""
Args = Mapping[str, Any]
CANNOT: Mapping[str, str] = {
    "flextron": "Flextron's router and masks",
    "perform-rl-step": "reinforcement learning: its peak is that of inference",
    "inference-max-seq-length": "inference",
    "use-transformer-engine-op-fuser": "Transformer Engine's operation fuser",
}
"""Arguments that the language has no word for, and that terms of memory do not make up for."""
MUON = "Muon, whose state and step differ from Adam's"
FP32 = "parameters in FP32"
UNSAID = "its arguments leave the kernels of attention to a Transformer Engine whose release is not known"
TWICE = {
    "gpt3_mcore_te_tp2_zp_z3_resume_torch_dist_te_8experts2parallel_top2router dev_dgx_h100_2nd": (
        "it contradicts the line of the same arguments on the same GPU: 2,660 MiB remain after a step, 751 there"
    )
}
"""Lines of which another with the same arguments says something else."""


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield one line for each test and platform."""
    for text in path.read_text(encoding="utf-8").splitlines():
        g = json.loads(text)
        a = {name.removeprefix("--"): value for name, value in g["args"].items()}
        id = f"{g['case']} {g['platform']}"
        sizes = {"peak_mib": g["peak_mem_bytes"], "after_step_mib": g["allocated_bytes"]}
        measured = {name: round((size or 0) / MIB, 1) for name, size in sizes.items()} | {
            "step_s": g["iteration_time_s"]
        }
        why = TWICE.get(id) or refused(a, g["platform"])
        yield {"id": id, "source": g["source"], **measured, **({"why": why} if why else carried(a, g))}


def refused(a: Args, platform: str) -> str:
    """Say why a test cannot be carried; empty if it can."""
    why = next((text for name, text in CANNOT.items() if name in a), "")
    why = why or (MUON if a.get("optimizer") == "muon" else "") or ("" if {"bf16", "fp16"} & {*a} else FP32)
    return why or (UNSAID if platform.startswith("lts") and not kernels_said(a) else "")


def kernels_said(a: Args) -> bool:
    """Tell whether the arguments say the kernels of attention."""
    return "attention-backend" in a or "use-flash-attn" in a or a["transformer-impl"] == "local"


def carried(a: Args, g: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model, the layout, the kernels and the further terms of a test."""
    word = "h100" if g["case"] in LARGE else next((word for word in GPUS if word in g["platform"]), "a100")
    gpu = GPUS[word]
    one_node = "1node" in g["case"] or "1N4G" in g["case"]
    gpus = LARGE.get(g["case"], 4 if gpu == "gb200" and one_node else 8)
    return {
        "gpu": gpu,
        "gpus": gpus,
        "model": model(a, g["case"]),
        "layout": layout(a),
        "run": run(a),
        "terms": dict(terms(a)),
    }


def model(a: Args, case: str) -> dict[str, Any]:
    """Return the facts of the model, as Megatron derives what is not stated."""
    hidden, heads, tp = a["hidden-size"], a["num-attention-heads"], a.get("tensor-model-parallel-size", 1)
    width = a.get("ffn-hidden-size", 4 * hidden)
    step = a.get("make-vocab-size-divisible-by", 128) * tp
    words = LLAMA if case.startswith("mixtral") else GPT2
    dense = re.match(r"\(\[0\]\*(\d+)", a.get("moe-layer-freq", ""))
    return {
        "layers": a["num-layers"],
        "hidden": hidden,
        "vocab": -(-words // step) * step,
        "heads": heads,
        "query_groups": a.get("num-query-groups", heads) if "group-query-attention" in a else heads,
        "head_dim": a.get("kv-channels", hidden // heads),
        "ffn_hidden": width,
        "experts": a["num-experts"],
        "topk": a["moe-router-topk"],
        "expert_hidden": a.get("moe-ffn-hidden-size", width),
        "shared_expert_hidden": a.get("moe-shared-expert-intermediate-size", 0),
        "dense_layers": int(dense[1]) if dense else 0,
        "gated": "swiglu" in a,
        "tied_embeddings": "untie-embeddings-and-output-weights" not in a,
        "mtp_layers": a.get("mtp-num-layers", 0),
        "qk_norm": "qk-layernorm" in a,
        **(latent(a) if "multi-latent-attention" in a else {}),
        **(hybrid(a) if "hybrid-layer-pattern" in a else {}),
    }


def latent(a: Args) -> dict[str, Any]:
    """Return the facts of latent attention."""
    names = {"q_lora_rank": "q-lora-rank", "kv_lora_rank": "kv-lora-rank", "qk_nope_dim": "qk-head-dim"}
    names |= {"qk_rope_dim": "qk-pos-emb-head-dim", "v_head_dim": "v-head-dim"}
    return {"attention": "mla", **{fact: a[name] for fact, name in names.items()}}


def hybrid(a: Args) -> dict[str, Any]:
    """Return the facts of a hybrid: its layers, then those of each depth of MTP."""
    main, ahead, *_ = a["hybrid-layer-pattern"].split("/")
    names = {"mamba_heads": "mamba-num-heads", "mamba_head_dim": "mamba-head-dim"}
    names |= {"mamba_state": "mamba-state-dim", "mamba_groups": "mamba-num-groups"}
    pattern = {"layer_pattern": main, "mtp_pattern": ahead, "mtp_repeated": "mtp-use-repeated-layer" in a}
    return {"layers": len(main), **pattern, **{fact: a[name] for fact, name in names.items()}}


def layout(a: Args) -> dict[str, Any]:
    """Return the axes by name."""
    tp, pp = a.get("tensor-model-parallel-size", 1), a["pipeline-model-parallel-size"]
    axes = {
        "tp": tp,
        "cp": a.get("context-parallel-size", 1),
        "pp": pp,
        "vpp": virtual(a, pp),
        "ep": a.get("expert-model-parallel-size", 1),
        "etp": a.get("expert-tensor-parallel-size", tp),
        "micro_batch": a["micro-batch-size"],
        "precision": "fp8_blockwise" if a.get("fp8-recipe") == "blockwise" else "bf16",
        "recompute": words(a, "recompute-modules", RECOMPUTE),
        "offload_modules": words(a, "offload-modules", OFFLOAD_MODULES),
        "cuda_graph": words(a, "cuda-graph-modules", ("attn", "moe_router", "moe_preprocess")),
        "ep_overlap": "overlap-moe-expert-parallel-comm" in a,
        "grad_reduce": "bf16" if "grad-reduce-in-bf16" in a else "fp32",
        "sharding": "fsdp" if "use-megatron-fsdp" in a else "optimizer",
    }
    return {name: value for name, value in axes.items() if value not in ([], False)}


def virtual(a: Args, pp: int) -> int:
    """Return the virtual stages of a rank."""
    if each := a.get("num-layers-per-virtual-pipeline-stage"):
        return a["num-layers"] // pp // each
    if text := a.get("pipeline-model-parallel-layout"):
        return (whole(text).count("|") + 1) // pp
    return a.get("num-virtual-stages-per-pipeline-rank", 1)


def whole(text: str) -> str:
    """Write a pipeline layout without repetitions of groups."""
    return re.sub(r"\(([^)]*)\)\*(\d+)", lambda group: group[1] * int(group[2]), text)


def words(a: Args, name: str, known: tuple[str, ...]) -> list[str]:
    """Return the words of an argument that an axis has."""
    return [word for word in re.findall(r"\w+", a.get(name, "")) if word in known]


def run(a: Args) -> dict[str, Any]:
    """Return what else the estimate needs to know (`cost.Cost`)."""
    fused = a.get("cross-entropy-fusion-impl", "native") if "cross-entropy-loss-fusion" in a else "unfused"
    separate = a.get("attention-backend") == "unfused" or a["transformer-impl"] == "local"
    kept = 5.0 if a.get("attention-dropout", 0.1) else 2.0
    return {
        "seq": a["seq-length"],
        "global_batch": a["global-batch-size"],
        "layout": a.get("pipeline-model-parallel-layout"),
        "loss": fused,
        "scores": kept if separate else 0.0,
        "accumulates": "no-gradient-accumulation-fusion" not in a,
    }


def terms(a: Args) -> Iterator[tuple[str, float]]:
    """Yield the terms of memory that the language has no word for, with the number that each needs."""
    if "use-distributed-optimizer" not in a:
        yield "whole optimizer", 1
    if (instances := a.get("num-distributed-optimizer-instances", 1)) > 1:
        yield "optimizer instances", instances
    if "position-embedding-type" not in a and a["pipeline-model-parallel-size"] == 1:
        yield "learned positions", a["max-position-embeddings"]
    if a.get("hidden-dropout", 0.1):
        yield "dropout masks", 2
    if not {"swiglu", "use-fused-weighted-squared-relu"} & {*a}:
        yield "separate activation", 1
    if "moe-grouped-gemm" not in a:
        yield "single products", 1


if __name__ == "__main__":
    found = [json.dumps(line) + "\n" for line in lines(Path(sys.argv[1]))]
    FILE.write_text("".join(found), encoding="utf-8")
    print(f"{len(found)} tests")
