"""The laws against the real Megatron Bridge: what it refuses they refuse, by name, and what it accepts they accept."""

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from moedsl.bridge.verify import cases
from moedsl.bridge.verify.cases import Report
from moedsl.bridge.verify.client import Server
from tests.helpers import rotation
from tests.helpers.law_recipes import asked
from tests.helpers.layouts import DEFAULTS, broken
from tests.helpers.rule_cases import ALSO, ASKED, CASES, EVERY, LATER, STRICTER, Case
from tests.stdlib.test_recipes import LATE, ROWS

pytestmark = pytest.mark.bridge


@pytest.mark.parametrize("name", EVERY)
def test_the_law_that_a_layout_breaks(name: str) -> None:
    case = EVERY[name]
    expected = ALSO.get(name) or ([case.law] if case.law else [])
    assert broken(case.layout, case.facts) == sorted(expected, key=expected.index)


@pytest.mark.parametrize("name", ASKED)
def test_bridge_refuses_what_the_laws_refuse(name: str, law_reports: dict[str, Report]) -> None:
    report = law_reports[name]
    assert report.verdict != "failed", report.message
    expected = "refused" if name in CASES and CASES[name].law else "accepted"
    assert report.verdict == expected, [(r.where, r.question, r.message) for r in report.refusals]


# NVIDIA's recipes that `runtime_config_update` accepts and our laws refuse: Megatron-Core refuses each of them too.

_WHERE = {
    "check.pipeline_layout": {"megatron/core/models/gpt/gpt_layer_specs.py:572"},
    "mesh.expert_mesh": {"megatron/core/parallel_state.py:882"},
    # 94 layers on 8 stages are refused before the virtual stage is asked for
    "vision.no_vpp": {
        "megatron/core/transformer/transformer_layer.py:190",
        "megatron/core/transformer/transformer_block.py:150",
    },
    # and so are 60 layers on 8 stages, or 20 of a stage on 12 chunks, before the plan of the layers
    "vision.no_ep_overlap": {
        "megatron/core/utils.py:666",
        "megatron/core/transformer/transformer_block.py:150",
        "megatron/core/transformer/transformer_block.py:169",
    },
}
BUILT = {"vision.no_ep_overlap", "check.pipeline_layout"}
"""What only building the model shows."""


def asked_late(name: str) -> cases.Case:
    row: dict[str, Any] = ROWS[name]
    read = cases.read(f"megatron.bridge.{row['module']}:{row['function']}", gpu=row["hardware"], world=row["gpus"])
    assert isinstance(read, cases.Case), read
    return evolve(read, stages={*LATE[name]} & BUILT != set())


def test_megatron_refuses_them_before_the_first_step(server: Server) -> None:
    laws = rotation.some("late laws", [*_WHERE], 2)
    names = [n for law in laws for n in rotation.some(law, [n for n in LATE if LATE[n][0] == law], 1)]
    reports = dict(zip(names, server.judge([asked_late(name) for name in names]), strict=True))
    assert {n: r.verdict for n, r in reports.items()} == dict.fromkeys(names, "refused")
    for name, report in reports.items():
        law, *_ = LATE[name]
        assert report.refusals[0].where in _WHERE[law], (name, report.refusals)


# Layouts drawn at random: what breaks no law the real Megatron Bridge accepts, and it refuses the others.

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
