"""Runs in few words, for the tables of rule_pairs*.py."""

from __future__ import annotations

from typing import Any

from tests.helpers.layouts import DEFAULTS
from tests.oracles.rule_judge import Run

WHY = 'because "a test" cite ours "here"'
_BASE = {"model": "qwen3_30b_a3b", "hardware": "h100", "gpus": 16, "ep": 8}
_BASES: dict[str, dict[str, Any]] = {
    "deepseek": {"model": "deepseek_v3", "hardware": "gb200", "gpus": 64, "ep": 64},
    "moonlight": {"model": "moonlight_16b", "hardware": "h100", "gpus": 8, "ep": 8},
    "oss": {"model": "gpt_oss_120b", "hardware": "h100", "gpus": 16, "ep": 16},
    "vl": {"model": "qwen3_vl_30b_a3b", "hardware": "h100", "gpus": 16, "ep": 8},
    "gb200": {"model": "qwen3_30b_a3b", "hardware": "gb200", "gpus": 16, "ep": 8},
    "nano": {"model": "nemotron_3_nano", "hardware": "h100", "gpus": 16, "ep": 8},
    "super": {"model": "nemotron_3_super", "hardware": "gb200", "gpus": 64, "ep": 64, "tp": 2},
    "minimax": {"model": "minimax_m2_5", "hardware": "gb200", "gpus": 64, "ep": 32},
    "step": {"model": "step35_196b_a11b", "hardware": "h100", "gpus": 64, "ep": 32},
    "mimo": {"model": "mimo_v2_flash", "hardware": "h100", "gpus": 64, "ep": 32},
    "glm5": {"model": "glm51_744b", "hardware": "gb200", "gpus": 64, "ep": 64},
    "next": {"model": "qwen3_next_80b_a3b", "hardware": "h100", "gpus": 32, "ep": 16},
    "vl35": {"model": "qwen35_vl_35b_a3b", "hardware": "h100", "gpus": 16, "ep": 8},
    "qwen235": {"model": "qwen3_235b_a22b", "hardware": "gb200", "gpus": 256, "ep": 32},
}


def run(base: str = "", phase: str = "throughput", also: str = "", capability: str | None = None, **layout: Any) -> Run:
    """A run of Qwen3-30B on 16 H100, or on another base, with some words replaced."""
    facts, must_fit = tuple(layout.pop("facts", {}).items()), layout.pop("must_fit", "high")
    return Run({**DEFAULTS, **_BASE, **_BASES.get(base, {}), **layout}, phase, facts, capability, also, must_fit)


def own(rule: str, **layout: Any) -> Run:
    """A run whose own rule stands before the stdlib's."""
    return run(also=f"rules mine {{ {rule} {WHY} }}\n", **layout)


FORCED: dict[str, Any] = {"base": "gb200", "precision": "mxfp8", "also": "routing balanced\n"}
PARTIAL = ["attn", "moe_router", "moe_preprocess"]
WHOLE = {"cuda_graph": ["full_iteration"], "dispatcher": "hybridep"}
_DSV3: dict[str, Any] = {"base": "deepseek", "hardware": "h100", "gpus": 256, "ep": 32}
_PACKED = "set dataset.enable_in_batch_packing = true\n"
_UNPADDED = "set dataset.pad_to_max_length = false\n"

Pair = tuple[Run | str, Run | str]
"""What a rule accepts and what it rejects: runs, for a symptom lines of a log."""
