"""NVIDIA's own recipes as pinned layouts: what Bridge accepts is legal here, what it refuses for its layout is refused.

`recipe_layouts.jsonl` has every recipe of megatron-bridge 0.6.2 whose model the stdlib declares, with the verdict of
`runtime_config_update`. Some that it accepts Megatron-Core refuses a moment later, before the first step, when it makes
the process groups or the model. Those are named in `LATE`; `tests/stdlib/test_laws_bridge.py` asks the real Bridge about them.
"""

import json
from typing import Any

import pytest

from tests.helpers import rotation
from tests.helpers.layouts import DATA, broken, checked, run_text
from tests.helpers.tables import table_of

ROWS: dict[str, dict[str, Any]] = {
    f"{r['kind']}-{r['function']}": r
    for r in map(json.loads, (DATA / "recipe_layouts.jsonl").read_text(encoding="utf-8").splitlines())
}
FUSED_OFFLOAD = {
    f"perf-nemotron_3_ultra_pretrain_256gpu_{gpu}_{precision}_config"
    for gpu in ("gb200", "gb300")
    for precision in ("fp8mx", "nvfp4")
}
"""`fused_group_mlp` is no word of the language: the offload of whole fused experts outside a captured iteration."""
UNSAYABLE = FUSED_OFFLOAD

PARTIAL_CG = {
    "perf-deepseek_v3_pretrain_256gpu_gb200_fp8mx_partial_cg_dev_config",
    "perf-deepseek_v3_pretrain_256gpu_gb300_fp8mx_partial_cg_dev_config",
}
REFUSED = {name: ["mesh.layers"] for name in PARTIAL_CG} | {
    "library-qwen35_vl_122b_a10b_sft_48gpu_h100_bf16_config": ["batch.batch_over_dp"],
    "library-qwen35_vl_122b_a10b_sft_config": ["batch.batch_over_dp"],
    "library-qwen35_vl_397b_a17b_sft_128gpu_h100_bf16_config": ["batch.batch_over_dp"],
    "library-qwen35_vl_397b_a17b_sft_config": ["batch.batch_over_dp"],
}
"""Refused by `runtime_config_update` for the layout: VPP 2 against a layout of four chunks on a stage, or a batch that
the replicas do not divide."""
WORDS = {
    "mesh.layers": "conflicts with pipeline_model_parallel_layout",
    "batch.batch_over_dp": "eval_global_batch_size",
}

REFUSED_OTHERWISE = table_of("stdlib", "recipes: refused otherwise")
"""Refused by `runtime_config_update` for fields that a plan cannot get wrong: model and data differ in their sequence
length (a plan has one), FSDP without its format of checkpoints (a plan sets it), two deprecated knobs for the
dispatcher's SMs contradict (a plan sets the new one), and the user gives no folder for the index of the data."""

LATE = {name: [*late["laws"]] for late in table_of("stdlib", "recipes: late") for name in late["recipes"]}
"""Accepted by `runtime_config_update`, refused by Megatron-Core before the first step."""

IN_TRAINING = {
    # HybridEP's own check of its ranks, in three of its four releases; core transformer/moe/token_dispatcher.py:1779 has none.
    "perf-gpt_oss_20b_pretrain_8gpu_vr200_fp8mx_config": ["dispatch.hybridep_group"],
    # te/pytorch/ops/basic/swiglu.py:474 raises in the first forward pass.
    "perf-deepseek_v3_pretrain_128gpu_gb300_fp8mx_hsdp_config": ["cuda_graph.whole_graph_activation"],
    # te/pytorch/quantization.py:168 asks the GPU, and an H100 has no MXFP8.
    "library-gpt_oss_20b_pretrain_16gpu_h100_fp8mx_config": ["precision.mxfp8_gpu"],
    "library-gpt_oss_20b_pretrain_mxfp8_config": ["precision.mxfp8_gpu"],
    "library-gpt_oss_20b_sft_8gpu_h100_fp8mx_config": ["precision.mxfp8_gpu"],
    "library-gpt_oss_20b_sft_mxfp8_config": ["precision.mxfp8_gpu"],
}
"""Accepted until the first step."""

WITHOUT_SEQUENCE_PARALLEL = {
    "library-glm45_355b_sft_128gpu_h100_bf16_config",
    "library-glm45_355b_sft_config",
    "library-qwen3_vl_235b_a22b_sft_32gpu_h100_bf16_config",
    "library-qwen3_vl_235b_a22b_sft_config",
}
"""TP > 1 without sequence parallelism, which the MoE layer refuses in training: Bridge turns it on for Qwen3-VL, we derive
it."""


NEEDLESS = {
    "library-glm45_air_106b_pretrain_32gpu_h100_bf16_config",
    "library-glm45_air_106b_pretrain_config",
    "library-nemotron_3_super_sft_16gpu_h100_bf16_32k_config",
    "library-nemotron_3_ultra_pretrain_24gpu_h100_bf16_config",
    "library-nemotron_3_ultra_pretrain_config",
    "library-step35_196b_a11b_pretrain_512gpu_h100_bf16_config",
    "library-step35_196b_a11b_pretrain_config",
}
"""Sequence parallelism without TP, which Bridge turns off."""


def expected(name: str) -> list[str]:
    """The laws that a recipe breaks."""
    return (REFUSED | LATE | IN_TRAINING).get(name, [])


TAKEN = rotation.one_of_each(
    "legal recipes",
    sorted(ROWS.keys() - UNSAYABLE),
    lambda name: (ROWS[name]["model"], ROWS[name]["hardware"], *expected(name)),
)


@pytest.mark.parametrize("name", TAKEN)
def test_a_recipe_is_as_legal_here_as_in_megatron(name: str) -> None:
    assert broken(ROWS[name]) == expected(name)


def test_what_bridge_refuses_is_known() -> None:
    refused = {name: r["verdict"] for name, r in ROWS.items() if "verdict" in r}
    assert refused.keys() == REFUSED.keys() | REFUSED_OTHERWISE.keys()
    assert all(reason in refused[name] for name, reason in REFUSED_OTHERWISE.items())
    assert all(WORDS[law] in refused[name] for name, (law,) in REFUSED.items())


def test_the_recipes_that_fail_late_are_ones_that_bridge_accepts() -> None:
    assert all("verdict" not in ROWS[name] for name in LATE)


def test_what_the_language_cannot_say() -> None:
    assert {n for n, r in ROWS.items() if "fused_group_mlp" in r.get("offload_modules", [])} == FUSED_OFFLOAD
    for name in UNSAYABLE:
        assert [d.id for d in checked(run_text(ROWS[name])).diagnostics] == ["check.unknown_word"]


def test_sequence_parallel_is_derived() -> None:
    without = {n for n, r in ROWS.items() if r.get("tp", 1) > 1 and not r.get("sequence_parallel")}
    assert without == WITHOUT_SEQUENCE_PARALLEL
    needless = {n for n, r in ROWS.items() if r.get("tp", 1) == 1 and r.get("sequence_parallel")}
    assert needless == PARTIAL_CG | NEEDLESS


def test_every_recipe_is_there() -> None:
    """427 of the 476 MoE recipes are of the stdlib's models and can be built; of those, 404 pass Bridge's own update."""
    assert len(ROWS) == 427
    assert sum("verdict" not in r for r in ROWS.values()) == 404
