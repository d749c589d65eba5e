"""Write published measurements as runs that moedsl can read, to stdlib/calibration.

    python tools/measured_runs.py DIR        DIR has measured.jsonl and its two continuations, bridge_recipes.jsonl,
                                             and hf_configs

published.jsonl has the speeds that constants are fitted to, contradicted.jsonl those that another measurement of the
same configuration contradicts, tflops.jsonl those that are published as TFLOPS only, and records.jsonl those of
measured_3.jsonl, which came later and taught no constant.

A measurement that does not state its dispatcher, recompute, graphs or overlap takes them from the recipe of the wheel
that it names. Some of what recipes say is younger than some measurements: graphs of the whole iteration of dropless MoE
came with Megatron-Core 0.18 (transformer/moe/paged_stash.py; Bridge 26.06), so runs of earlier releases are taken to
have captured the router and its preprocessing; and a run that says BF16 ran in BF16, whatever the recipe's name.
In the wheel the function that captures the iteration sets expert overlap too, so runs of earlier releases are taken to
have had neither: 26.02 has Qwen3-235B without virtual stages, which overlap needs, and its gain to 26.04 with them,
3 to 6%, is what they alone are worth; Qwen3-30B gained -1 to 4%. DeepSeek-V3 gained 4 to 6%, as much as cards have
for overlap (1,048 to about 1,100 TFLOPS), so its runs of 26.04 may have had it.
A measurement that does not say its precision is left out: the tables of 25.09 have no such column, and their notes on
quantisation point to FP8 where the recipe of the same layout is in BF16.

The rows of measured_2.jsonl come as runs. Two things of them are read as above: the precision is the measurement's, and
what a recipe of the wheel says of overlap and of the captured iteration does not count before 26.06. Two that state
overlap and recompute norms had no graphs either: Megatron-Core refuses the three together.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OUT = ROOT / "stdlib/calibration"
WHOLE_GRAPHS = "26.06"
"""The first release with graphs of the whole iteration for dropless MoE."""
GRAPHS = ("attn", "moe_router", "moe_preprocess", "full_iteration", "mamba")
RECOMPUTE = ("layernorm", "moe_act", "mla_up_proj", "shared_experts", "core_attn", "mlp", "moe", "full")
OFFLOADED = ("attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act")
FORMATS = {
    "bf16": "bf16",
    "fp8": "fp8_current",
    "fp8cs": "fp8_current",
    "fp8sc": "fp8_blockwise",
    "fp8mx": "mxfp8",
    "nvfp4": "nvfp4",
}

MLPERF = {"gpt_oss_20b": "set model.vocab_size = 128256; "}
"""The vocabulary of the tokenizer in MLPerf, which Bridge's recipes of 72 and 512 GPUs state."""
STATED = {"BF16": "bf16", "MXFP8": "mxfp8"}
READ = {
    "n0027": "qwen3_235b_a22b; h100 x 256; throughput first; seq 4096; batch 2048; precision bf16; routing balanced; "
    "pin tp=2 cp=1 pp=1 vpp=1 ep=8 etp=1 micro_batch=4 dispatcher=deepep recompute=[full] cuda_graph=none "
    "ep_overlap=off delay_wgrad=off moments=fp32 grad_reduce=bf16 sharding=fsdp offload=none",
    "n0030": "qwen3_next_80b_a3b; h100 x 128; throughput first; seq 4096; batch 256; precision bf16; routing balanced; "
    "pin tp=1 cp=1 pp=4 vpp=3 ep=32 etp=1 micro_batch=1 dispatcher=deepep "
    "recompute=[layernorm, moe_act, shared_experts] cuda_graph=none ep_overlap=off delay_wgrad=off moments=fp32 "
    "grad_reduce=bf16 sharding=optimizer offload=none",
}
"""Rows of measured_2.jsonl without a run whose page states the layout: graphs, moments and gradients are those of the
other rows of their page (Megatron-MoE-ModelZoo)."""
SMALL_VOCABULARY = ("m0288", "m0292", "m0295", "m0299")
"""GPT-OSS with the tokenizer of its data, whose size the cards do not state. Their TFLOPS are those of a vocabulary of
32,000 to within 0.1%, and 9 to 13% below those of the model's own."""
ONE_DEPTH = ("m0317",)
"""Nemotron 3.5 Lightning: its card has the loss of one MTP depth, and its TFLOPS are those of one."""
UP_PROJECTED = ("m0056", "m0089", "m0120", "m0143")
"""DeepSeek-V3 on GB300 at twice the microbatch of its recipe, which recomputes nothing; the pages state no recompute.
Without any, what a rank keeps would be 297 GiB of the 277 that it has. GB200's recipes recompute the up-projection."""
CONTRADICTED = {
    "m0020": "the pages before and after (26.06, 26.08) give 33,166 and 33,024 for the same configuration",
    "m0021": "the pages before and after (26.06, 26.08) give 28,947 and 28,672 for the same configuration",
    "m0156": "the page of the next release gives 9,058 tokens/s for the same configuration",
    "m0176": "its page contradicts itself: an accumulation of 2 needs 64 replicas, and PP 4 leaves 16; as read, it "
    "would not fit its GPUs either",
    "m0177": "it is a year older than its recipe; the page of 26.02.01 gives 9,058 tokens/s for nearly the same",
    "m0323": "ten iterations after a restart from a checkpoint; the run that it resumes (m0315) gives 7,110",
    "m0335": "a few iterations after a restart from a checkpoint",
}

ASSUMED = {"n0059": "nothing; a page has 619 for the same configuration and container"}


def recipes(folder: Path) -> dict[str, dict[str, Any]]:
    """Map functions to recipes; a performance recipe wins over a library recipe of the same name."""
    rows = [json.loads(line) for line in (folder / "bridge_recipes.jsonl").open(encoding="utf-8")]
    return {r["function"]: r for r in sorted((r for r in rows if r["load"] == "ok"), key=lambda r: r["kind"] == "perf")}


def runs(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield one line for each complete measurement: a run, its tokens/s of a GPU, and its published peak if any."""
    known = recipes(folder)
    models = {p.stem for p in (ROOT / "stdlib/models").glob("*.moe")}
    for line in (folder / "measured.jsonl").open(encoding="utf-8"):
        r = json.loads(line)
        recipe = known.get((r["matched_recipe"] or {}).get("function", ""))
        trusted = None if "inconsistent" in (r["extra"] or {}) else r["tokens_per_sec_per_gpu"]
        rate = trusted or _rate(r)
        stated = all(r[k] for k in ("precision", "gpus", "seq", "gbs", "mbs", "tp", "pp"))
        if recipe and rate and stated and r["status"] == "ok" and r["model_key"] in models and r["gpus"] >= r["pp"]:
            yield {
                "id": r["id"],
                "source": f"{r['source']} {r['release']}",
                "release": r["release"],
                "run": text(r, recipe),
                "tokens_per_s_per_gpu": round(rate, 1),
                "peak_gb": r["peak_mem_gb"] or _allocated(r),
            }


def _rate(r: dict[str, Any]) -> float | None:
    if not (r["step_time_s"] and r["gbs"] and r["seq"] and r["gpus"]):
        return None
    return r["gbs"] * r["seq"] / r["step_time_s"] / r["gpus"]


def _allocated(r: dict[str, Any]) -> float | None:
    """Return the peak in GB if a card has it. It is rank 0's, which is the largest without a pipeline."""
    gib = ((r["extra"] or {}).get("other_metrics") or {}).get("peak_allocated_memory_gib")
    return round(gib * 2**30 / 1e9, 2) if gib and r["pp"] == 1 else None


def text(r: dict[str, Any], q: dict[str, Any]) -> str:
    """Write the measurement as a run file with everything pinned."""
    pins = {**mesh(r), **policy(r, q)}
    routing = "natural" if r["routing"] == "natural" else "balanced"
    precision = "bf16" if r["precision"].upper() == "BF16" else FORMATS[q["precision"]]
    depths, loss = q["mtp_num_layers"] or 0, q["cross_entropy_fusion_impl"]
    more = "set model.vocab_size = 32000; " if r["id"] in SMALL_VOCABULARY else ""
    more += f"set model.mtp_num_layers = {depths}; " if depths > 1 and r["id"] not in ONE_DEPTH else ""
    more += 'set model.cross_entropy_fusion_impl = "native"; ' if loss == "native" else ""
    return (
        f"{r['model_key']}; {r['hardware'].lower()} x {r['gpus']}; throughput first; seq {r['seq']}; batch {r['gbs']}; "
        f"precision {precision}; routing {routing}; {more}pin " + " ".join(f"{k}={v}" for k, v in pins.items())
    )


def mesh(r: dict[str, Any]) -> dict[str, int]:
    """The measurement's mesh."""
    etp = r.get("etp") or (1 if (r["ep"] or 1) > 1 else r["tp"])
    sizes = {"tp": r["tp"], "cp": r["cp"] or 1, "pp": r["pp"], "vpp": r["vp"] or 1, "ep": r["ep"] or 1, "etp": etp}
    return {**sizes, "micro_batch": r["mbs"]}


def policy(r: dict[str, Any], q: dict[str, Any]) -> dict[str, str]:
    """Return the policies of the measurement, completed from the recipe."""
    comm, adam = q["comm_overlap"] or {}, q["optimizer"] or {}
    backend = q["dispatcher_backend"] if q["dispatcher_type"] == "flex" else "alltoall"
    overlap = _overlap(r, q)
    moved = (q["offload_modules"] or []) if q["fine_grained_activation_offloading"] else []
    offloaded = {"offload_modules": _set(moved, OFFLOADED)} if moved else {}
    return {
        "dispatcher": (r["dispatcher"] or backend).lower(),
        "recompute": _set(_recompute(r, q), RECOMPUTE),
        "cuda_graph": _set(_graphs(r, q), GRAPHS),
        "ep_overlap": "on" if overlap else "off",
        "delay_wgrad": "on" if comm.get("delay_wgrad_compute") and overlap else "off",
        "moments": "bf16" if adam.get("exp_avg_dtype") == "torch.bfloat16" else "fp32",
        "grad_reduce": "fp32" if q["ddp"]["grad_reduce_in_fp32"] else "bf16",
        "sharding": "fsdp" if q["fsdp"]["use_megatron_fsdp"] else "optimizer",
        "offload": "none",
        **offloaded,
    }


def _recompute(r: dict[str, Any], q: dict[str, Any]) -> list[str]:
    if isinstance(r["recompute"], list):
        return r["recompute"]
    if said := re.search(r"model\.recompute_modules=\[(.*?)\]", " ".join((r["extra"] or {}).get("overrides") or [])):
        return said[1].split(",")
    if r["id"] in UP_PROJECTED:
        return ["mla_up_proj"]
    if q["recompute_granularity"] == "full":
        return ["full"]
    return q["recompute_modules"] or [] if q["recompute_granularity"] == "selective" else []


def _captures(r: dict[str, Any]) -> bool:
    """Tell whether recipes could capture the iteration when the run was made."""
    release = r["release"].removeprefix("20").replace("-", ".")
    return release >= WHOLE_GRAPHS


def _overlap(r: dict[str, Any], q: dict[str, Any]) -> bool:
    if r["overlap_ep_a2a"] is not None:
        return r["overlap_ep_a2a"]
    said = (q["comm_overlap"] or {}).get("overlap_moe_expert_parallel_comm", False)
    return bool(said) and (_captures(r) or q["cuda_graph_impl"] != "full_iteration")


def _graphs(r: dict[str, Any], q: dict[str, Any]) -> list[str]:
    said = json.dumps(r["cuda_graph"]) if r["cuda_graph"] else ""
    if said:
        return [g for g in GRAPHS if g in said]
    if q["cuda_graph_impl"] == "full_iteration":
        return ["full_iteration"] if _captures(r) else ["moe_router", "moe_preprocess"]
    scopes = [q["cuda_graph_scope"], q["cuda_graph_modules"]] if q["cuda_graph_impl"] != "none" else []
    return [g for g in GRAPHS if any(isinstance(s, list) and g in s for s in scopes)]


def _set(words: list[str], known: tuple[str, ...]) -> str:
    kept = [w for w in words if w in known]
    return f"[{', '.join(dict.fromkeys(kept))}]" if kept else "none"


def further(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield one line for each row of measured_2.jsonl that has a run and a speed."""
    known = recipes(folder)
    for line in (folder / "measured_2.jsonl").open(encoding="utf-8"):
        r = json.loads(line)
        run = _run(r, known)
        rate = r["tokens_per_sec_per_gpu"] or _rate(r)
        if run and (rate or r["tflops_per_gpu"]):
            speed = {"tokens_per_s_per_gpu": round(rate, 1)} if rate else {"tflops_per_gpu": r["tflops_per_gpu"]}
            release = r["release"].split(" ")[0]
            source = f"{_page(r['source'])} {release}" if rate else f"{_page(r['source'])}, {release}"
            peak = {"peak_gb": r["peak_mem_gb"]} if rate else {"assumes": ASSUMED.get(r["id"], "")}
            yield {"id": r["id"], "source": source, "release": release, "run": run, **speed, **peak}


def records(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield one line for each row of measured_3.jsonl with a speed, of a model and in a format of the stdlib."""
    known = recipes(folder)
    models = {p.stem for p in (ROOT / "stdlib/models").glob("*.moe")}
    for line in (folder / "measured_3.jsonl").open(encoding="utf-8"):
        r = json.loads(line)
        stated = r["model_key"] in models and r["gbs"] and r["precision"].upper() in LATER
        rate = r["tokens_per_sec_per_gpu"] or _rate(r)
        if stated and (rate or r["tflops_per_gpu"]):
            speed = {"tokens_per_s_per_gpu": round(rate, 1)} if rate else {"tflops_per_gpu": r["tflops_per_gpu"]}
            source = f"{_page(r['source'])} {r['release'].split(' ')[0]}"
            yield {"id": r["id"], "source": source, "release": r["release"], "run": _recorded(r, known), **speed}


LATER = {"BF16": "bf16", "MXFP8": "mxfp8", "FP8_MX": "mxfp8", "FP8 BLOCKWISE": "fp8_blockwise", "NVFP4": "nvfp4"}


def _recorded(r: dict[str, Any], known: dict[str, dict[str, Any]]) -> str:
    """Write a row of measured_3.jsonl as a run; what it does not say is its recipe's, if it names one."""
    said, recipe = r["extra"], known.get(r["recipe"] or "")
    sets = _stated(r)
    sets += "set model.mtp_num_layers = null; " * (said.get("mtp") == 0 and r["model_key"].startswith("deepseek"))
    if recipe:
        run = text({**r, "precision": "FP8", "routing": r["routing"] or "balanced"}, recipe)
        return run.replace("pin ", sets + "pin ", 1)
    graphs = [g for g in GRAPHS if g in (r["cuda_graph"] or "")]
    done = r["recompute"] if isinstance(r["recompute"], list) else re.findall(r"\w+", r["recompute"] or "")
    policies = {
        "dispatcher": r["dispatcher"], "recompute": _set(done, RECOMPUTE), "cuda_graph": _set(graphs, GRAPHS),
        "ep_overlap": "on" if r["overlap_ep_a2a"] else "off",
        "delay_wgrad": "on" if said.get("delay_wgrad") and r["overlap_ep_a2a"] else "off",
        "moments": said.get("moments") or ("bf16" if "precision-aware" in (r["optimizer"] or "") else "fp32"),
        "grad_reduce": "fp32" if said.get("main_grads") == "fp32" else "bf16", "sharding": "optimizer",
        "offload": "none",
    }  # fmt: skip
    layout = f' pipeline_layout="{said["pipeline_layout"]}"' if said.get("pipeline_layout") else ""
    pins = " ".join(f"{k}={v}" for k, v in {**mesh(r), **policies}.items()) + layout
    routing = "natural" if r["routing"] == "natural" else "balanced"
    return (
        f"{r['model_key']}; {r['hardware'].lower()} x {r['gpus']}; throughput first; seq {r['seq']}; batch {r['gbs']}; "
        f"precision {LATER[r['precision'].upper()]}; routing {routing}; {sets}pin {pins}"
    )


def _run(r: dict[str, Any], known: dict[str, dict[str, Any]]) -> str | None:
    recipe = known.get((r["recipe"] or "").replace("nemotron_3_5_nano", "nemotron_3_5_lightning"))
    if recipe and r["fsdp"] is None and "fsdp" in r["kind"]:
        return text({**r, **{size: recipe[size] for size in ("tp", "cp", "pp", "ep", "etp")}}, recipe)
    run = r.get("run") or READ.get(r["id"])
    if run is None:
        return None
    run = run.replace("pin ", MLPERF.get(r["model_key"], "") + _stated(r) + "pin ", 1)
    run = re.sub(r"precision \w+", f"precision {STATED[r['precision']]}", run)
    if not _captures(r) and not r["cuda_graph"]:
        graphs = "none" if r["overlap_ep_a2a"] else "[moe_router, moe_preprocess]"
        run = run.replace("cuda_graph=[full_iteration]", f"cuda_graph={graphs}")
    if not _captures(r) and r["overlap_ep_a2a"] is None:
        run = run.replace("ep_overlap=on delay_wgrad=on", "ep_overlap=off delay_wgrad=off")
    return run


def _stated(r: dict[str, Any]) -> str:
    """Write what a row states besides its layout, and the estimate prices."""
    said = r["extra"] or {}
    sets = {
        "model.moe_expert_rank_capacity_factor": said.get("capacity_factor"),
        "mixed_precision.fp8_dot_product_attention": said.get("fp8_dpa") and "true",
        "model.fp8_output_proj": said.get("fp8_output_proj") and "true",
    }
    return "".join(f"set {path} = {value}; " for path, value in sets.items() if value)


def _page(source: str) -> str:
    """Name the page of a row; a fork's is that of what it is a fork of."""
    return re.sub(r".*\(fork of (.*?)\): ", r"\1 ", source)


def write(name: str, rows: list[dict[str, Any]]) -> None:
    (OUT / name).write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    print(f"{len(rows)} measurements in {name}")


if __name__ == "__main__":
    source = Path(sys.argv[1])
    new = list(further(source))
    speeds = [*runs(source), *(r for r in new if "tokens_per_s_per_gpu" in r)]
    write("published.jsonl", [r for r in speeds if r["id"] not in CONTRADICTED])
    write("contradicted.jsonl", [{**r, "why": CONTRADICTED[r["id"]]} for r in speeds if r["id"] in CONTRADICTED])
    rates = [json.loads(line) for line in (OUT / "tflops.jsonl").open(encoding="utf-8")]
    fresh = [r for r in new if "tflops_per_gpu" in r]
    write("tflops.jsonl", [r for r in rates if r["id"] not in {f["id"] for f in fresh}] + fresh)
    write("records.jsonl", list(records(source)))
