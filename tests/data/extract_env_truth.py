"""Extracts env_truth.json from a dump of Megatron Bridge's recipes, one JSON object a line.

What each performance recipe puts into cfg.env_vars, keyed by the facts that a plan knows. Left out, because no plan can
ask for them: recipes with NCCL user buffers, with the NCCL EP dispatcher, and the variables that single models tune by
hand (`HAND`). Usage: extract_env_truth.py bridge_recipes.jsonl > env_truth.json
"""

import json
import sys
from typing import Any

DOMAIN = {"h100": 8, "b200": 8, "b300": 8, "gb200": 72, "gb300": 72, "vr200": 72}
PRECISION = {"bf16": "bf16", "fp8cs": "fp8_current", "fp8sc": "fp8_blockwise", "fp8mx": "mxfp8", "nvfp4": "nvfp4"}
HAND = (
    "CUDNNFE_CLUSTER_OVERLAP_MARGIN", "NVTE_ALLOW_NONDETERMINISTIC_ALGO", "NVTE_DPA_FP8_FORMAT",
    "NVTE_DPA_FP8_RECIPE", "NVTE_NORM_BWD_USE_CUDNN", "NVTE_NORM_FWD_USE_CUDNN",
)  # fmt: skip


def facts(row: dict[str, Any]) -> dict[str, Any]:
    """A recipe's layout in a plan's words.

    The dispatcher is the backend that it names: an `alltoall` recipe may carry one that does nothing, and its
    environment is written for that backend.
    """
    overlap = (row["comm_overlap"] or {}).get("overlap_moe_expert_parallel_comm")
    return {
        "hardware": row["hardware"],
        "capability": 9.0 if row["hardware"] == "h100" else 10.0,
        "nvlink_domain": DOMAIN[row["hardware"]],
        "tp": row["tp"] or 1,
        "cp": row["cp"] or 1,
        "ep": row["ep"] or 1,
        "dispatcher": row["dispatcher_backend"] or row["dispatcher_type"],
        "cuda_graph": ["full_iteration"] if row["cuda_graph_impl"] == "full_iteration" else [],
        "ep_overlap": bool(overlap or row["overlap_moe_expert_parallel_comm"]),
        "precision": PRECISION[row["precision"]],
        "sharding": "fsdp" if row["fsdp"]["use_megatron_fsdp"] else "optimizer",
        "offload_modules": sorted(row["offload_modules"] or []) if row["fine_grained_activation_offloading"] else [],
    }


def wanted(row: dict[str, Any]) -> bool:
    built = row["kind"] == "perf" and row["load"] == "ok" and bool(row["env_vars"])
    return built and not row["ddp"]["nccl_ub"] and row["dispatcher_backend"] != "ncclep"


def main(path: str) -> None:
    groups: dict[str, dict[str, Any]] = {}
    with open(path, encoding="utf-8") as file:
        for row in filter(wanted, map(json.loads, file)):
            env = {k: v for k, v in sorted(row["env_vars"].items()) if k not in HAND}
            group = {"facts": facts(row), "env": env}
            groups.setdefault(json.dumps(group), {**group, "recipes": []})["recipes"].append(row["function"])
    json.dump(list(groups.values()), sys.stdout, indent=0)


if __name__ == "__main__":
    main(sys.argv[1])
