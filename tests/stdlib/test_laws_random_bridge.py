"""Layouts drawn at random: what breaks no law the real Megatron Bridge accepts, and it refuses the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moedsl.bridge.verify.client import Server
from tests.helpers import rotation
from tests.helpers.law_recipes import asked
from tests.helpers.layouts import DEFAULTS, broken
from tests.helpers.rule_cases import LATER, STRICTER, Case

pytestmark = pytest.mark.bridge
LEGAL, ILLEGAL = rotation.examples(40), rotation.examples(20)
CHOICES: dict[str, list[Any]] = {
    "model": ["qwen3_30b_a3b", "qwen3_235b_a22b", "deepseek_v3", "moonlight_16b", "gpt_oss_120b", "qwen3_vl_30b_a3b"],
    "hardware": ["h100", "h200", "b200", "b300", "gb200", "a100_80gb", "h20", "h100_nvl", "vr200"],
    "gpus": [32, 64, 128],
    "tp": [1, 1, 2, 4],
    "cp": [1, 1, 2],
    "pp": [1, 1, 2, 4],
    "vpp": [1, 1, 2, 4],
    "ep": [1, 4, 8, 16],
    "etp": [1, 1, 2],
    "precision": ["bf16", "bf16", "fp8_current", "fp8_blockwise", "mxfp8", "nvfp4"],
    "recompute": [[], ["moe_act", "layernorm"], ["mla_up_proj"], ["full"], ["moe"], ["core_attn"], ["shared_experts"]],
    "cuda_graph": [[], [], ["attn"], ["moe_router", "moe_preprocess"], ["moe_preprocess"], ["full_iteration"]],
    "dispatcher": ["alltoall", "alltoall", "deepep", "hybridep"],
    "ep_overlap": [False, True],
    "delay_wgrad": [False, True],
    "sharding": ["optimizer", "optimizer", "fsdp"],
    "moments": ["fp32", "bf16"],
    "grad_reduce": ["fp32", "bf16"],
    "offload": ["none", "none", "optimizer"],
    "micro_batch": [1, 2],
    "global_batch": [256, 384, 512],
    "seq": [4096, 8192],
}
UNASKED = {c.law for c in (LATER | STRICTER).values()} | {
    "vision.no_vpp", "vision.no_ep_overlap", "mesh.experts", "dispatch.deepep_group",
    "dispatch.deepep_peers", "dispatch.deepep_network", "dispatch.hybridep_copies",
}  # fmt: skip
"""Laws that Bridge does not speak of before the model is built, or before it runs."""


def draw() -> list[tuple[dict[str, Any], list[str]]]:
    """LEGAL layouts that break no law, and ILLEGAL ones that break one of which Bridge speaks."""
    dice, legal, illegal = rotation.dice("laws"), [], []
    while len(legal) < LEGAL or len(illegal) < ILLEGAL:
        layout = {**DEFAULTS, **{k: dice.choice(v) for k, v in CHOICES.items()}}
        laws = broken(layout)
        if not laws:
            legal.append((layout, laws))
        elif not UNASKED & set(laws):
            illegal.append((layout, laws))
    return legal[:LEGAL] + illegal[:ILLEGAL]


def test_bridge_and_the_laws_agree(server: Server, tmp_path: Path) -> None:
    drawn = draw()
    cases = [asked(tmp_path / str(i), Case(layout, None, {}, build=False)) for i, (layout, _) in enumerate(drawn)]
    for (layout, laws), report in zip(drawn, server.judge(cases), strict=True):
        told = (layout, laws, report.refusals, report.message)
        assert report.verdict == ("refused" if laws else "accepted"), told
