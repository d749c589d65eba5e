"""Plans written by hand, in the shape of docs/internals.md: the emitter's inputs until a solver makes them."""

import tomllib
from collections.abc import Sequence
from typing import Any

from attrs import asdict

from moedsl.bridge.verify.cases import devices
from moedsl.compiler import load_stdlib
from moedsl.facts import axes
from moedsl.planner.plan import Plan
from tests.helpers.paths import DATA

_LAYOUT = {"tp": 1, "cp": 1, "pp": 1, "vpp": 1, "etp": 1, "sequence_parallel": False, "pipeline_layout": None}
_POLICY = {
    "precision": "bf16", "dispatcher": "alltoall", "recompute": [], "offload_modules": [], "offload": "none",
    "cuda_graph": [], "ep_overlap": False, "delay_wgrad": False, "sharding": "optimizer", "moments": "fp32",
    "grad_reduce": "fp32", "data": "mock", "routing": "natural", "freeze_vision": False, "freeze_projection": False,
    "freeze_language": False,
}  # fmt: skip
_DECISION: dict[str, Any] = {"cite": [], "alternatives": [], "effect": "execution"}
_MEMORY = dict.fromkeys(
    ("peak_gib", "capacity_gib", "lower_gib", "upper_gib", "visible_gib", "unused_gib", "chance"), 0.0
)
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


def plan(
    model: str,
    hardware: str,
    gpus: int,
    layout: dict[str, Any],
    policy: dict[str, Any] | None = None,
    batch: Sequence[int] = (256, 1, 4096),
    **more: Any,
) -> Plan:
    """A whole plan from what makes it special. `batch` is global batch, microbatch, sequence length."""
    declared, _ = load_stdlib().model(model)
    assert declared is not None
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
            "hf": declared.hf,
            "family": declared.family,
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


PLANS = {
    name: plan(**given) for name, given in tomllib.loads((DATA / "plans.toml").read_text(encoding="utf-8")).items()
}
