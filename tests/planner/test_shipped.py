"""NVIDIA's recipe beside a plan: the one that Bridge ships for the run, priced as a run that pins its layout."""

import json
from typing import Any

import pytest

from moedsl.compiler import compile_source
from moedsl.facts import axes, recipes
from moedsl.planner.plan import Plan
from moedsl.planner.text import plan_text
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.helpers.layouts import run_text
from tests.helpers.paths import DATA
from tests.helpers.programs import compiled, plan_of
from tests.helpers.tables import table_of

RUN = "qwen3_235b_a22b; gb200 x 64; throughput first; batch 2048"
NAME = "qwen3_235b_a22b_pretrain_64gpu_gb200_bf16_config"
ROWS: dict[str, dict[str, Any]] = {
    f"megatron.bridge.{r['module']}:{r['function']}": r
    for r in map(json.loads, (DATA / "recipe_layouts.jsonl").read_text(encoding="utf-8").splitlines())
}
PRICED = {
    "qwen3_30b_a3b; h100 x 16; throughput first": "qwen3_30b_a3b_pretrain_16gpu_h100_bf16_config",
    "deepseek_v3; gb200 x 256; throughput first; precision mxfp8": "deepseek_v3_pretrain_256gpu_gb200_fp8mx_config",
    "nemotron_3_nano; gb200 x 8; throughput first": "nemotron_3_nano_pretrain_8gpu_gb200_bf16_config",
    RUN: NAME,
}


def pinned(plan: Plan, target: str) -> Plan:
    """The plan of a run that pins the layout that was extracted, with the batch and the formats of a plan."""
    row = ROWS[target]
    own = {
        "seq": plan.batch.seq, "global_batch": plan.batch.global_batch, "verdict": None,
        **{a.name: getattr(plan.policy, a.name) for a in axes.AXES if a.is_format},
    }  # fmt: skip
    return plan_of(run_text({**row, **own}))


@pytest.mark.parametrize("run", rotation.some("shipped", [*PRICED], 1))
def test_its_prices_are_those_of_a_run_with_its_layout(run: str) -> None:
    plan = plan_of(run)
    found = plan.shipped
    assert found is not None and found.name == PRICED[run]
    other = pinned(plan, found.target)
    assert found.step_time_s == pytest.approx(other.estimate.step_time_s)
    assert found.peak_gib == pytest.approx(other.estimate.memory.peak_gib)
    assert found.verdict == other.estimate.memory.verdict
    axes_of = {**plan.layout.to_json(), **plan.batch.to_json(), **plan.policy.to_json()}
    theirs = {**other.layout.to_json(), **other.batch.to_json(), **other.policy.to_json()}
    changes = {a.name: theirs[a.name] for a in axes.AXES if theirs[a.name] != axes_of[a.name]}
    assert {n: v for n, v in found.changes.items() if n != "pipeline_layout"} == changes


def test_the_plan_prints_both_predictions_and_the_command() -> None:
    plan = plan_of(RUN)
    assert plan.shipped is not None and plan.shipped.step_time_s is not None
    text = plan_text(plan)
    part = text[text.index("\nNVIDIA's recipe  ") :].split("\n\n")[0]
    said = " ".join(part.split())
    assert f"NVIDIA's recipe {NAME}" in said and f"moedsl diff FILE --like {NAME}" in said
    assert f"{plan.shipped.step_time_s:.2f} s a step (" in said
    assert f"this plan {plan.estimate.step_time_s:.2f} s a step" in said
    assert "pp=8 ep=8 dispatcher=hybridep" in said and "written for grad_reduce=bf16" in said


@pytest.mark.parametrize(("run", "said"), table_of("planner", "shipped: a layout that this run cannot have"))
def test_a_layout_that_this_run_cannot_have_is_said(run: str, said: str) -> None:
    assert said in " ".join(plan_text(plan_of(run)).split())


@pytest.mark.parametrize(
    "run",
    ["qwen3_235b_a22b; gb200 x 72", "qwen3_30b_a3b; h200 x 16", "qwen3_30b_a3b; h100 x 16; task sft; throughput first"],
    ids=["another number of GPUs", "another GPU", "another task"],
)
def test_no_recipe_of_another_run_is_shown(run: str) -> None:
    plan = plan_of(run)
    assert plan.shipped is None or plan.task == "sft"
    assert plan.shipped is None or "_sft_" in plan.shipped.name


def test_a_recipe_that_trains_more_predictions_says_so() -> None:
    """NVIDIA's sets `mtp_num_layers = 2` (recipes/nemotronh/h100/nemotron_3_super.py:98); the published model has one."""
    run = "nemotron_3_super; h100 x 64; throughput first"
    own, two = plan_of(run).shipped, plan_of(f"{run}; set model.mtp_num_layers = 2").shipped
    assert own is not None and own.written_for["mtp_layers"] == 2
    assert two is not None and "mtp_layers" not in two.written_for


def test_a_run_of_the_same_layout_says_so() -> None:
    plan = compiled_like(RUN, NAME)
    assert plan.shipped is not None and plan.shipped.changes == {}
    text = plan_text(plan)
    assert "this plan has its layout" in text and "--like" not in text.partition("NVIDIA's recipe")[2]


# ---------------------------------------------------------------- --like


def compiled_like(run: str, name: str) -> Plan:
    result = compiled(run, like=name)
    assert not result.failed, result.diagnostics
    return result.plans[0]


@pytest.mark.parametrize("run", PRICED)
def test_like_pins_its_layout(run: str) -> None:
    name = PRICED[run]
    free, plan = plan_of(run), compiled_like(run, name)
    recipe = recipes.named(name)
    assert recipe is not None and free.shipped is not None
    values = {**plan.layout.to_json(), **plan.batch.to_json(), **plan.policy.to_json()}
    on = {a.name: values[a.name] for a in axes.AXES if not a.is_format and a.is_on(values[a.name])}
    assert on == {n: v for n, v in recipe.layout.items() if n != "pipeline_layout"}
    assert plan.estimate.step_time_s == pytest.approx(free.shipped.step_time_s)
    assert plan.experiment.fingerprint == free.experiment.fingerprint
    origins = {d.name: (d.origin, d.because) for d in plan.decisions}
    assert origins["tp"] == ("pinned", f"pinned by `--like {name}`")


def test_the_file_s_own_pins_stay() -> None:
    plan = compiled_like(f"{RUN}; pin ep=4 cuda_graph=none", NAME)
    assert (plan.layout.ep, plan.layout.pp, plan.policy.cuda_graph) == (4, 8, [])
    origins = {d.name: d.because for d in plan.decisions}
    assert origins["ep"] == "pinned by the run file" and origins["pp"] == f"pinned by `--like {NAME}`"


def test_other_stages_have_their_own_pipeline_layout() -> None:
    (as_it_is,) = compile_source(Source("run.moe", RUN), "check", like=NAME).programs
    (program,) = compile_source(Source("run.moe", f"{RUN}; pin pp=4"), "check", like=NAME).programs
    assert as_it_is.pipeline_layout is not None and program.pipeline_layout is None
    assert (program.pins["pp"].code, program.pins["ep"].code) == (4, 8)


def test_every_run_of_a_file_has_it() -> None:
    result = compiled(f"{RUN}; run a {{ }}\nrun b {{ pin ep=4 }}\n", like=NAME)
    assert [p.layout.ep for p in result.plans] == [8, 4] and all(p.layout.pp == 8 for p in result.plans)


@pytest.mark.parametrize(("name", "help"), table_of("planner", "an unknown recipe is an error"))
def test_an_unknown_recipe_is_an_error(name: str, help: str) -> None:
    result = compiled(RUN, like=name)
    assert [d.id for d in result.diagnostics] == ["check.unknown_recipe"]
    assert help in result.diagnostics[0].help


def test_a_recipe_for_another_model_is_a_warning() -> None:
    other = "qwen3_30b_a3b_pretrain_8gpu_gb200_bf16_config"
    result = compile_source(Source("run.moe", RUN), "check", like=other)
    assert "check.like_other_model" in [d.id for d in result.diagnostics]
    same = compile_source(Source("run.moe", RUN), "check", like=NAME)
    assert "check.like_other_model" not in [d.id for d in same.diagnostics]
