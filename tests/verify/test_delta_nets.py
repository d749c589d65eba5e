"""Models with gated delta nets through the real Megatron Bridge: what a compiled recipe becomes, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moedsl.bridge.verify import cases
from moedsl.bridge.verify.cases import Case, Report
from moedsl.bridge.verify.client import Server
from moedsl.cost import parameters
from moedsl.emit.recipe import recipe_text
from moedsl.facts.values import stages
from tests.helpers import rotation
from tests.helpers.cost_models import model
from tests.helpers.plans import changed
from tests.helpers.programs import judged, plan_of

pytestmark = pytest.mark.bridge
RUNS = {
    "next": "qwen3_next_80b_a3b; h100 x 128; throughput first",
    "next, fit": "qwen3_next_80b_a3b; h100 x 64; fit first",
    "next, scale": "qwen3_next_80b_a3b; gb200 x 64; scale first",
    "next, gb200": "qwen3_next_80b_a3b; gb200 x 64; precision mxfp8; throughput first",
    "next, tp 2": "qwen3_next_80b_a3b; h100 x 32; pin tp=2 ep=16 pp=1",
    "next, tp over groups": "qwen3_next_80b_a3b; h100 x 64; pin tp=4 cp=2 ep=16 pp=2",
    "next, etp 2": "qwen3_next_80b_a3b; gb300 x 32; pin tp=2 etp=2 ep=16 pp=1",
    "next, chunks of 5": "qwen3_next_80b_a3b; h100 x 64; pin pp=2 vpp=5 ep=32 pipeline_layout=\"Et*4|(t*5|)*8t*4mL\"",
    "next, fsdp": "qwen3_next_80b_a3b; gb200 x 64; pin sharding=fsdp",
    "next, no MTP": "qwen3_next_80b_a3b; h100 x 64; pin pp=2 ep=32; set model.mtp_num_layers = 0",
    "next, sft": 'qwen3_next_80b_a3b; h100 x 32; task sft; data "/data/sft"',
    "next, adapters on 2 stages": 'qwen3_next_80b_a3b; b200 x 32; pin pp=2; task peft; data "/d"; weights "/c"',
    "35b": "qwen35_vl_35b_a3b; h100 x 16",
    "35b, gb200": "qwen35_vl_35b_a3b; gb200 x 8; throughput first",
    "35b, frozen language": "qwen35_vl_35b_a3b; h100 x 16; vlm freeze_language freeze_projection",
    "35b, frozen vision, fit": "qwen35_vl_35b_a3b; h100 x 16; vlm freeze_vision; fit first",
    "35b, fsdp": "qwen35_vl_35b_a3b; h100 x 16; vlm fsdp",
    "35b, sft": 'qwen35_vl_35b_a3b; h100 x 16; task sft; data "/data/sft"',
    "122b": "qwen35_vl_122b_a10b; h100 x 128; scale first",
    "122b, vpp 4": "qwen35_vl_122b_a10b; b200 x 32; pin pp=4 vpp=4 ep=8",
    "397b": "qwen35_vl_397b_a17b; gb300 x 64; throughput first",
    "397b, pp 4": "qwen35_vl_397b_a17b; h100 x 512; pin pp=4 tp=4 ep=32",
}  # fmt: skip
WHOLE = ["next", "35b", "122b", "397b"]
MODELS = rotation.some("models with delta nets", WHOLE, 1)
TAKEN = [*MODELS, *rotation.some("delta nets", [name for name in RUNS if name not in WHOLE], 1)]
"""Those of this run: one of the models, and one of the others."""


@pytest.fixture(scope="module")
def reports(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    return judged(server, {name: RUNS[name] for name in TAKEN}, tmp_path_factory.mktemp("linear"))


@pytest.mark.parametrize("name", TAKEN)
def test_bridge_builds_what_was_planned(name: str, reports: dict[str, Report]) -> None:
    """Accepted, and every stage has the parameters that the plan counts, dense and of experts."""
    assert reports[name].ok, reports[name].to_json()
    assert all(stage["planned"] is not None for stage in reports[name].stages)


@pytest.mark.parametrize("name", MODELS)
def test_the_whole_model_has_the_parameters_that_are_counted(name: str, reports: dict[str, Report]) -> None:
    assert reports[name].parameters == parameters.unique(model(RUNS[name].partition(";")[0]))


@pytest.mark.parametrize("name", TAKEN)
def test_mtp_is_built_behind_the_last_layer(name: str, reports: dict[str, Report]) -> None:
    """Of Qwen3-Next too, whose configuration says none, and of a vision-language model."""
    *before, last = [chunk["mtp"] for stage in reports[name].stages for chunk in stage["real"]["chunks"][-1:]]
    assert not any(before)
    assert last == int("no MTP" not in name)


@pytest.mark.parametrize("name", TAKEN)
def test_each_chunk_has_the_layers_of_its_letters(name: str, reports: dict[str, Report]) -> None:
    plan = plan_of(RUNS[name])
    text, pp = plan.layout.pipeline_layout, plan.layout.pp
    built = [[chunk["layers"] for chunk in stage["real"]["chunks"]] for stage in reports[name].stages]
    assert sum(map(sum, built)) == model(plan.model).layers
    if text:
        counts = [chunk.count("t") for chunk in stages(text)]
        assert built == [counts[stage::pp] for stage in range(pp)]


def test_the_kernels_are_there_and_nothing_stands_in_for_them(reports: dict[str, Report]) -> None:
    """fla is one of Bridge's own requirements, and is imported without a GPU."""
    assert not any("fla" in text.split() for report in reports.values() for text in report.stood_in)


NVIDIAS = {
    "next": "recipes.qwen.h100.qwen3_next:qwen3_next_80b_a3b_pretrain_32gpu_h100_bf16_config",
    "next, virtual stages of its own layout": "perf_recipes.qwen.gb200.qwen3_moe:qwen3_next_80b_a3b_pretrain_64gpu_gb200_bf16_config",
    "35b": "recipes.qwen_vl.h100.qwen35_vl:qwen35_vl_35b_a3b_pretrain_8gpu_h100_bf16_mock_config",
    "122b": "recipes.qwen_vl.h100.qwen35_vl:qwen35_vl_122b_a10b_pretrain_128gpu_h100_bf16_mock_config",
}  # fmt: skip


@pytest.mark.parametrize("what", rotation.some("accepted delta nets", [*NVIDIAS], 1))
def test_nvidias_own_recipe_is_accepted(what: str, server: Server) -> None:
    """With the parameters that moedsl counts for the model, whatever its layout."""
    case = cases.read(f"megatron.bridge.{NVIDIAS[what]}")
    assert isinstance(case, Case), case
    (report,) = server.judge([case])
    assert report.ok, report.to_json()
    assert report.parameters == parameters.unique(model(RUNS[what.partition(",")[0]].partition(";")[0]))


REFUSED = {
    "recipes.qwen_vl.h100.qwen35_vl:qwen35_vl_397b_a17b_pretrain_512gpu_h100_bf16_mock_config": "num_layers=60 should",
    "perf_recipes.qwen_vl.gb200.qwen35_vl:qwen35_vl_397b_a17b_pretrain_64gpu_gb200_bf16_config": "num_layers=60 should",
    "perf_recipes.qwen_vl.h100.qwen35_vl:qwen35_vl_35b_a3b_pretrain_16gpu_h100_bf16_config": "divisible by vp_size 12",
    "perf_recipes.qwen_vl.b200.qwen35_vl:qwen35_vl_122b_a10b_pretrain_32gpu_b200_bf16_config": "build_schedule_plan",
}


@pytest.mark.parametrize("recipe", rotation.some("refused delta nets", [*REFUSED], 1))
def test_nvidias_own_recipe_is_refused_once_the_model_is_built(recipe: str, server: Server) -> None:
    """Bridge's update lets them pass; the layers do not fall on the stages, or the model plans no overlap."""
    case = cases.read(f"megatron.bridge.{recipe}")
    assert isinstance(case, Case), case
    (report,) = server.judge([case])
    assert any(REFUSED[recipe] in r.message for r in report.refusals), report.to_json()


EMPTY = ["Et*16|t*16|t*16|mL", "Et*16|t*16|t*16m|L", "E|t*16|t*16|t*16mL"]


@pytest.mark.parametrize("layout", rotation.some("chunks without a layer", EMPTY, 1))
def test_a_chunk_without_a_layer_is_refused_beside_mtp(layout: str, server: Server, tmp_path: Path) -> None:
    """Whichever chunk it is: Bridge asks for MTP's layer in each (bridge models/gpt_provider.py:343)."""
    plan = changed(plan_of("qwen3_next_80b_a3b; h100 x 64; pin pp=4 vpp=1 ep=8"), layout={"pipeline_layout": layout})
    (tmp_path / "recipe.py").write_text(recipe_text(plan))
    (tmp_path / "plan.json").write_text(json.dumps(plan.to_json()))
    case = cases.read(str(tmp_path))
    assert isinstance(case, Case), case
    (report,) = server.judge([case])
    assert any("not supported with get_gpt_decoder_layer_specs" in r.message for r in report.refusals), report.to_json()
