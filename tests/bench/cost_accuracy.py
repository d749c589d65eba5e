"""Prints how far the estimates are from NVIDIA's published measurements and recipes.

    python tests/bench/cost_accuracy.py DIR        DIR holds measured.jsonl and bridge_recipes.jsonl

A measurement that does not state its dispatcher, recompute, graphs or overlap takes them from the recipe that it names.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from moedsl.cost import Cost
from moedsl.facts.axes import BY_NAME, CUDA_GRAPH, RECOMPUTE
from tests.helpers.cost_models import hardware, model

MODELS = {
    "qwen3_30b_a3b", "qwen3_235b_a22b", "deepseek_v3", "gpt_oss_120b", "kimi_k2", "moonlight_16b", "qwen3_vl_30b_a3b",
    "qwen3_vl_235b_a22b",
}  # fmt: skip
GPUS = {"h100", "h200", "b200", "b300", "gb200", "gb300"}
FORMATS = {
    "bf16": "bf16", "fp8": "fp8_current", "fp8cs": "fp8_current", "fp8sc": "fp8_blockwise", "mxfp8": "mxfp8",
    "fp8mx": "mxfp8", "nvfp4": "nvfp4",
}  # fmt: skip
LETTERS = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}


def recipes(folder: Path) -> dict[str, dict[str, Any]]:
    """Recipes of our models by function; a performance recipe wins over a library one of the same name."""
    rows = [json.loads(line) for line in (folder / "bridge_recipes.jsonl").open()]
    known = [r for r in rows if r["model"] in MODELS and r["hardware"] in GPUS and r["load"] == "ok"]
    return {r["function"]: r for r in sorted(known, key=lambda r: r["kind"] == "perf")}


def policy(r: dict[str, Any]) -> dict[str, int]:
    """A recipe's policies as codes."""
    granularity, modules = r["recompute_granularity"], r["recompute_modules"]
    recompute = ["full"] if granularity == "full" else modules or [] if granularity == "selective" else []
    graphs = (
        [g for g in r["cuda_graph_scope"] or [] if g in CUDA_GRAPH] if isinstance(r["cuda_graph_scope"], list) else []
    )
    graphs += (
        [g for g in r["cuda_graph_modules"] or [] if g in CUDA_GRAPH]
        if isinstance(r["cuda_graph_modules"], list)
        else []
    )
    if r["cuda_graph_impl"] == "none":
        graphs = []
    if r["cuda_graph_impl"] == "full_iteration":
        graphs = ["full_iteration"]
    backend = r["dispatcher_backend"] if r["dispatcher_type"] == "flex" else "alltoall"
    comm, adam = r["comm_overlap"] or {}, r["optimizer"] or {}
    return {
        "recompute": BY_NAME["recompute"].encode([m for m in recompute if m in RECOMPUTE]),
        "cuda_graph": BY_NAME["cuda_graph"].encode(sorted(set(graphs))),
        "dispatcher": BY_NAME["dispatcher"].encode(backend if backend in ("deepep", "hybridep") else "alltoall"),
        "ep_overlap": int(bool(comm.get("overlap_moe_expert_parallel_comm"))),
        "delay_wgrad": int(bool(comm.get("delay_wgrad_compute"))),
        "moments": int(adam.get("exp_avg_dtype") == "torch.bfloat16"),
        "grad_reduce": int(not r["ddp"]["grad_reduce_in_fp32"]),
        "sharding": int(r["fsdp"]["use_megatron_fsdp"]),
        "precision": BY_NAME["precision"].encode(FORMATS[r["precision"]]),
    }


def mesh(r: dict[str, Any]) -> dict[str, int]:
    """A recipe's or a measurement's mesh."""
    etp = r.get("etp") or (1 if (r.get("ep") or 1) > 1 else r["tp"])
    vpp = r.get("vpp") or r.get("vp") or 1
    sizes = {"tp": r["tp"], "cp": r["cp"] or 1, "pp": r["pp"], "vpp": vpp, "ep": r["ep"] or 1, "etp": etp}
    return {**sizes, "micro_batch": r["mbs"]}


def layout(r: dict[str, Any]) -> str | None:
    """A recipe's pipeline layout as text."""
    text = r["pipeline_layout"]
    return "|".join("".join(LETTERS[x] for x in chunk) for chunk in text) if isinstance(text, list) else text


def speed(folder: Path) -> None:
    """Predicted over published step time."""
    known, ratios = recipes(folder), []
    for line in (folder / "measured.jsonl").open():
        r = json.loads(line)
        recipe = known.get((r["matched_recipe"] or {}).get("function"))
        published = r["tokens_per_sec_per_gpu"]
        if recipe is None or r["model_key"] not in MODELS or r["status"] != "ok" or not (published or r["step_time_s"]):
            continue
        if not all(r[k] for k in ("gpus", "seq", "gbs", "mbs", "tp", "pp")) or r["gpus"] < r["pp"]:
            continue
        cost = Cost(model(r["model_key"]), hardware(r["hardware"].lower()), r["gpus"], r["seq"], r["gbs"])
        row = {**policy(recipe), **mesh(r), **stated(r)}
        if not cost.has_layout(row["pp"], row["vpp"]):
            continue
        published = published or cost.tokens_per_second_per_gpu(r["step_time_s"]).item()
        parts = cost.time_report(row)
        said = cost.tokens_per_second_per_gpu(sum(parts.values())).item()
        ratios.append((r["release"], published / said))
        shares = " ".join(
            f"{k[:6]}={v / sum(parts.values()):.2f}" for k, v in parts.items() if v > 0.01 * sum(parts.values())
        )
        print(
            f"{r['id']} {r['release']:<10} {r['model_key']:<16} {r['hardware']:<5} {r['gpus']:>4} "
            f"{r['precision'] or '':<6} tok/s/gpu {published:>8.0f} "
            f"said {said:>8.0f}  time x{published / said:.2f}  {shares}"
        )
    summary("step time, all releases", [x for _, x in ratios])
    summary(
        "step time, releases since 26.06",
        [x for rel, x in ratios if rel.removeprefix("20").replace("-", ".") >= "26.06"],
    )


def stated(r: dict[str, Any]) -> dict[str, int]:
    """What a measurement says of its own policies."""
    out = {}
    if r["overlap_ep_a2a"] is not None:
        out["ep_overlap"] = int(r["overlap_ep_a2a"])
    if r["dispatcher"]:
        out["dispatcher"] = BY_NAME["dispatcher"].encode(r["dispatcher"].lower())
    if isinstance(r["recompute"], list):
        out["recompute"] = BY_NAME["recompute"].encode(r["recompute"])
    graph = json.dumps(r["cuda_graph"]) if r["cuda_graph"] else ""
    if graph:
        out["cuda_graph"] = BY_NAME["cuda_graph"].encode([g for g in CUDA_GRAPH if g in graph])
    return out


def summary(title: str, ratios: list[float]) -> None:
    """Median error, median ratio and the middle 80%."""
    x = np.array(ratios)
    low, mid, high = np.quantile(x, [0.1, 0.5, 0.9])
    print(
        f"{title}: {len(x)} rows, median |error| {np.median(np.abs(x - 1)):.0%}, "
        f"ratio {mid:.2f}, 80% in {low:.2f} to {high:.2f}"
    )


def room(folder: Path) -> None:
    """Predicted peak of every recipe against its GPU's memory."""
    over = 0
    table = recipes(folder).values()
    for r in table:
        m, gpu = model(r["model"]), hardware(r["hardware"])
        row = {**policy(r), **mesh(r)}
        cost = Cost(m, gpu, r["gpus"], r["dataset_seq_length"] or r["seq_length"], r["gbs"], layout=layout(r))
        if not cost.has_layout(row["pp"], row["vpp"]):
            cost = Cost(m, gpu, r["gpus"], r["dataset_seq_length"] or r["seq_length"], r["gbs"])
        if not cost.has_layout(row["pp"], row["vpp"]):
            print(f"{r['function']}: no layout for pp={row['pp']} vpp={row['vpp']}")
            continue
        stage = max(cost.memory_report(row), key=lambda s: s.total)
        parts = (stage.weights, stage.gradients, stage.optimizer, stage.activations, stage.buffers)
        over += stage.total > gpu.memory
        words = BY_NAME["recompute"].decode(row["recompute"])
        print(
            f"{r['function']:<62} {stage.total / 1e9:>6.1f} / {gpu.memory / 1e9:.0f} GB "
            f"{'OVER' if stage.total > gpu.memory else '':<5}"
            f"stage {stage.stage}: {' '.join(f'{p / 1e9:.1f}' for p in parts)} {words}"
        )
    print(f"{over} of {len(table)} recipes over their GPU's memory")


if __name__ == "__main__":
    speed(Path(sys.argv[1]))
    room(Path(sys.argv[1]))
