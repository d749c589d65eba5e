"""A plan beside the recipe: what it decided, its groups and its stages are compared, and one wrong value is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from moedsl.bridge.verify import cases, resolve
from moedsl.bridge.verify.cases import Report, render
from moedsl.bridge.verify.client import Server
from moedsl.emit.recipe import recipe_text
from moedsl.emit.settings import decided_fields
from moedsl.planner.plan import Plan
from tests.helpers.plans import PLANS, changed
from tests.helpers.programs import plan_of

pytestmark = pytest.mark.bridge
Judge = Callable[..., Report]
BASE = PLANS["qwen3_30b_h100_bf16"]
STAGES = [{"stage": 0, "params": 1_541_093_376 + 1_811_939_328, "expert_params": 1_811_939_328}]


@pytest.fixture
def judge(server: Server, tmp_path: Path) -> Judge:
    """Judges the recipe of one plan against another, and builds its stages if they are compared too."""

    def answer(emitted: Plan, plan: Plan, stages: bool = False) -> Report:
        (tmp_path / "recipe.py").write_text(recipe_text(emitted))
        (tmp_path / "plan.json").write_text(json.dumps(plan.to_json()))
        case = cases.read(str(tmp_path))
        assert isinstance(case, cases.Case)
        return server.judge([evolve(case, stages=stages)])[0]

    return answer


def with_stages(stages: list[dict[str, Any]]) -> Plan:
    sizes = {f"{k}_gib": 0.0 for k in ("weights", "gradients", "optimizer", "activations", "buffers", "total")}
    memory = BASE.estimate.memory.to_json() | {"stages": [{**s, "layers": {}, **sizes} for s in stages]}
    return changed(BASE, estimate={"memory": memory})


def test_the_plan_comes_through_and_one_parameter_off_is_found(judge: Judge) -> None:
    report = judge(BASE, with_stages(STAGES), True)
    assert report.ok, render(report)
    assert "equal to the plan" in render(report)
    off = with_stages([{**STAGES[0], "expert_params": STAGES[0]["expert_params"] + 1}])
    _, found = resolve.compare_stages([dict(stage["real"]) for stage in report.stages], off)
    assert [m.field for m in found] == ["stages[0].expert_params"]


WRONG = (
    ("batch", "global_batch", 512, "train.global_batch_size"),
    ("batch", "num_microbatches", 17, "num_microbatches"),
    ("policy", "recompute", ["layernorm"], "model.recompute_modules"),
    ("policy", "dispatcher", "deepep", "model.moe_token_dispatcher_type"),
    ("policy", "moments", "bf16", "optimizer.exp_avg_dtype"),
    ("policy", "precision", "mxfp8", "mixed_precision.fp8_recipe"),
    ("policy", "precision", "mxfp8", "precision"),
    ("env", "TORCH_NCCL_HIGH_PRIORITY", 0, "env_vars.TORCH_NCCL_HIGH_PRIORITY"),
    ("layout", "pipeline_layout", "Et*24|t*24L", "model.pipeline_model_parallel_layout"),
)


def test_every_wrong_value_is_found(judge: Judge) -> None:
    sections = {section: {**BASE.to_json()[section]} for section, _, _, _ in WRONG}
    for section, key, value, _ in WRONG:
        sections[section][key] = value
    report = judge(BASE, changed(BASE, **sections))
    assert {field for _, _, _, field in WRONG} <= {m.field for m in report.mismatches}, render(report)


def test_wrong_groups_are_found_with_the_first_that_differs(judge: Judge) -> None:
    plan = changed(BASE, layout={"ep": 8, "edp": 2})
    found = {m.field: m for m in judge(BASE, plan).mismatches}
    assert {"groups.EP", "groups.EDP", "model.expert_model_parallel_size"} <= set(found)
    assert found["groups.EP"].planned == "2 groups"


def test_a_group_with_a_backend_of_its_own_is_made_without_gpus(judge: Judge) -> None:
    """Bridge names it for the groups of a pipeline; it was a crash of `verify`."""
    plan = plan_of('qwen3_30b_a3b; h100 x 16; pin pp=2; set model.pipeline_model_parallel_comm_backend = "nccl"')
    report = judge(plan, plan)
    assert report.ok and report.groups["PP"]["matches"], render(report)


def test_a_list_that_a_run_sets_is_compared(judge: Judge) -> None:
    """It was a crash of `verify`."""
    plan = plan_of("qwen3_30b_a3b; h100 x 16; set profiling.profile_ranks = [0, 1]")
    assert judge(plan, plan).ok


def test_decentralized_groups_are_the_same_and_have_one_order(judge: Judge) -> None:
    """Bridge makes them from grids, whose order of ranks is not that of `dist.use_tp_pp_dp_mapping`."""
    sets = "set dist.use_decentralized_pg = true; set dist.use_gloo_process_groups = false"
    plan = plan_of(f"qwen3_30b_a3b; h100 x 64; pin tp=2 cp=2 pp=2 ep=4 etp=2; {sets}")
    report = judge(plan, plan)
    assert report.ok and len(report.groups) == 11, render(report)
    other = plan_of(f"qwen3_30b_a3b; h100 x 64; pin tp=2 cp=2 pp=2; {sets}; set dist.use_tp_pp_dp_mapping = true")
    differing = {m.field for m in judge(other, other).mismatches}
    assert differing == {f"groups.{name}" for name in ("DP", "DP_CP", "EDP", "PP", "TP_PP")}


def test_a_dispatcher_that_the_gpu_lacks_falls_back_and_is_found(judge: Judge) -> None:
    plan = changed(BASE, hardware="gb200", device=PLANS["qwen3_235b_gb200_mxfp8_overlap"].device.to_json())
    plan = changed(plan, policy={"dispatcher": "deepep"})
    report = judge(plan, plan)
    assert any(m.field.startswith("model.moe_token_dispatcher_type") for m in report.mismatches) or report.refusals


def test_what_a_rule_turns_off_needs_no_field_in_an_older_release() -> None:
    why = 'because "a test" cite ours "here"'
    derived = f"rules ours {{ derive tokenizer.pad_vocab_size = false {why} }}"
    for release, compared in (("0.4", False), ("0.6", True)):
        plan = plan_of(f"qwen3_30b_a3b; h100 x 16; target bridge {release}; {derived}")
        assert ("tokenizer.pad_vocab_size" in decided_fields(plan)) == compared
