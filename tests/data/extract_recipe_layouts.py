"""Extracts recipe_layouts.jsonl: NVIDIA's own recipes for the models of the stdlib, as layouts with Bridge's verdicts.

    python tests/data/extract_recipe_layouts.py bridge_recipes.jsonl > tests/data/recipe_layouts.jsonl

`bridge_recipes.jsonl` holds every MoE recipe that the megatron-bridge 0.6.2 wheel exports, as built, and what
`runtime_config_update` says of each. A row here keeps what a layout is made of, in the words of the language:
fields at their defaults are left out. `pipeline_layout` is in Megatron's letters, also where the recipe splits layers
by `account_for_embedding_in_pipeline_split` or `num_layers_in_first_pipeline_stage`; of a hybrid, which Megatron splits
evenly, there is none. `mtp` is the depth of MTP where it is more than 1. A recipe that cannot be built is left out. The
verdicts are those of a machine without the kernels of sparse attention, whose absence refuses no recipe.
"""

import json
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.helpers.paths import ROOT

MODELS = {p.stem for p in (ROOT / "stdlib" / "models").glob("*.moe")}
NAMES = {"gemma4_vl_26b": "gemma4_26b_a4b_it", "glm51": "glm51_744b", "glm52": "glm52_744b", "kimi_k25_vl": "kimi_k25"}
"""Models that the wheel's functions call by another name than the stdlib."""
PRECISION = {"bf16": "bf16", "fp8cs": "fp8_current", "fp8sc": "fp8_blockwise", "fp8mx": "mxfp8", "nvfp4": "nvfp4"}
LETTERS = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
DEFAULTS: dict[str, Any] = {
    "tp": 1, "pp": 1, "vpp": 1, "cp": 1, "etp": 1, "sequence_parallel": False, "pipeline_layout": None, "recompute": [],
    "dispatcher": "alltoall", "cuda_graph": [], "ep_overlap": False, "delay_wgrad": False, "moments": "fp32",
    "grad_reduce": "fp32", "sharding": "optimizer", "offload_modules": [], "verdict": "ok", "seq_of_data": None, "mtp": None,
}  # fmt: skip
"""What a row leaves out."""
ABSENT = "requires fused DSA kernels, but the following packages are not available"


def reduces_in_fp32(r: dict[str, Any]) -> bool:
    """A precision overwrites what the recipe gave to ddp; if it is a name, the update looks it up."""
    _, precision = r.get("resolved_changes", {}).get("mixed_precision", (None, r["mixed_precision"]))
    return bool((precision if isinstance(precision, dict) else r["ddp"])["grad_reduce_in_fp32"])


def row(r: dict[str, Any]) -> dict[str, Any]:
    """One recipe in the words of the language."""
    overlap = r["comm_overlap"] or {}
    full = {
        **{k: r[k] for k in ("kind", "function", "model", "hardware", "gpus", "task", "tp", "pp", "cp", "ep")},
        "model": NAMES.get(r["model"], r["model"]),
        "module": r["module"].removeprefix("megatron.bridge."),
        "precision": PRECISION[r["precision"] or _format(r["mixed_precision"])],
        "vpp": r["vpp"] or 1,
        "etp": r["etp"] or 1,  # megatron-core 0.19: unset is 1 where EP > 1, and every row has EP > 1
        "sequence_parallel": r["sequence_parallel"],
        "pipeline_layout": pipeline_layout(r),
        "recompute": recompute(r),
        "dispatcher": r["dispatcher_backend"] if r["dispatcher_type"] == "flex" else "alltoall",
        "cuda_graph": graphs(r),
        "ep_overlap": bool(overlap.get("overlap_moe_expert_parallel_comm")),
        "delay_wgrad": bool(overlap.get("delay_wgrad_compute")),
        "global_batch": r["gbs"],
        "micro_batch": r["mbs"],
        "seq": r["seq_length"],
        "seq_of_data": r["dataset_seq_length"] if r["dataset_seq_length"] != r["seq_length"] else None,
        "moments": "bf16" if r["optimizer"]["exp_avg_dtype"] == "torch.bfloat16" else "fp32",
        "grad_reduce": "fp32" if reduces_in_fp32(r) else "bf16",
        "sharding": "fsdp" if r["fsdp"]["use_megatron_fsdp"] else "optimizer",
        "mtp": r["mtp_num_layers"] if r["mtp_num_layers"] not in (None, 0, 1) else None,
        "offload_modules": r["offload_modules"] if r["fine_grained_activation_offloading"] else [],
        "verdict": "ok" if ABSENT in r["runtime_config_update"] else r["runtime_config_update"],
    }
    return {k: v for k, v in full.items() if k not in DEFAULTS or v != DEFAULTS[k]}


def recompute(r: dict[str, Any]) -> list[str]:
    """Modules recomputed; without a list Megatron's selective recompute is core_attn (transformer_config.py:1764)."""
    if r["recompute_granularity"] == "full":
        return ["full"]
    if r["recompute_granularity"] is None:
        return []
    return ["core_attn"] if r["recompute_modules"] is None else r["recompute_modules"]


def graphs(r: dict[str, Any]) -> list[str]:
    """What is captured; `cuda_graph_scope` is inert where there is no implementation."""
    impl, scope, modules = r["cuda_graph_impl"], r["cuda_graph_scope"], r["cuda_graph_modules"]
    if impl == "none":
        return []
    return ["full_iteration"] if "full_iteration" in (impl, scope, modules) else list(scope or modules)


def _format(mixed: dict[str, Any] | str) -> str:
    """The precision of a library recipe whose name does not say it: Bridge's word, or its fields."""
    assert mixed == "bf16_mixed" or (isinstance(mixed, dict) and mixed["fp8"] is mixed["fp4"] is None), mixed
    return "bf16"


def pipeline_layout(r: dict[str, Any]) -> str | None:
    """The recipe's layout, or the one that its other ways of splitting amount to; None for an even split."""
    given = r["pipeline_layout"]
    if r["is_hybrid_model"]:
        return None
    if given is None:
        counts = split(r)
        return counts and "|".join(words(counts, r["mtp_num_layers"] or 0))
    if isinstance(given, str):
        return given
    return "|".join(shorten("".join(LETTERS[w] for w in chunk)) for chunk in given)


def split(r: dict[str, Any]) -> list[int] | None:
    """Layers of each chunk where Megatron counts embedding and loss as layers, or the first stage apart."""
    pp, vpp, layers, first = r["pp"], r["vpp"] or 1, r["num_layers"], r["num_layers_in_first_pipeline_stage"]
    if first is not None:
        rest = (layers - first) // (pp - 1)
        last = layers - first - rest * (pp - 2)  # the file does not have num_layers_in_last_pipeline_stage
        return [{0: first, pp - 1: last}.get(i % pp, rest) // vpp for i in range(pp * vpp)]
    extra = (r["account_for_embedding_in_pipeline_split"], r["account_for_loss_in_pipeline_split"])
    if pp == 1 or not any(extra):
        return None
    counts = [(layers + sum(extra)) // (pp * vpp)] * (pp * vpp)
    return [counts[0] - extra[0], *counts[1:-1], counts[-1] - extra[1]]


def words(counts: list[int], mtp: int) -> list[str]:
    last = len(counts) - 1
    return [shorten("E" * (i == 0) + "t" * n + ("m" * mtp + "L") * (i == last)) for i, n in enumerate(counts)]


def shorten(chunk: str) -> str:
    return "".join(f"{c}*{n}" if (n := len(list(g))) > 1 else c for c, g in groupby(chunk))


def main(path: str) -> None:
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        recipe = json.loads(line)
        if NAMES.get(recipe["model"], recipe["model"]) in MODELS and recipe["load"] == "ok":
            print(json.dumps(row(recipe)))


if __name__ == "__main__":
    main(sys.argv[1])
