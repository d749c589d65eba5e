"""Hybrids and models with gated delta nets through the real Megatron Bridge: what it builds, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from moedsl.bridge.verify import cases
from moedsl.bridge.verify.cases import Case, Report, render
from moedsl.bridge.verify.client import Server
from moedsl.cost import parameters
from moedsl.emit.recipe import recipe_text
from moedsl.emit.settings import decided_fields
from moedsl.facts.values import decoder, stages
from moedsl.planner.plan import Plan
from tests.helpers import bridge_process, rotation
from tests.helpers.cost_models import model
from tests.helpers.plans import PLANS, changed
from tests.helpers.programs import judged, plan_of
from tests.helpers.tables import table_of

pytestmark = pytest.mark.bridge
_HYBRIDS = table_of("verify", "hybrids")
_DELTA_NETS = table_of("verify", "hybrid: delta nets")
RUNS = {name: f"{text}; seq 8k; batch 512" for name, text in _HYBRIDS.items()} | _DELTA_NETS
WHOLE = ("nano", "super", "ultra, pp 4", "lightning", "next", "35b", "122b", "397b")
HYBRIDS = rotation.some("hybrids", [*_HYBRIDS], 1)
DELTA_NETS = rotation.some("delta nets", [*_DELTA_NETS], 1)
TAKEN = [*HYBRIDS, *DELTA_NETS]
"""Those of this run."""
HALVES = PLANS["nemotron_3_super_h100_halves"]
FULL = PLANS["nemotron_3_nano_h100_graphs"]


@pytest.fixture(scope="module")
def reports(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    return judged(server, {name: RUNS[name] for name in TAKEN}, tmp_path_factory.mktemp("hybrids"))


@pytest.mark.parametrize("name", TAKEN)
def test_bridge_builds_what_was_planned(name: str, reports: dict[str, Report]) -> None:
    """Accepted, and every stage has the parameters that the plan counts, dense and of experts; so has a whole model."""
    assert reports[name].ok, reports[name].to_json()
    assert all(stage["planned"] is not None for stage in reports[name].stages)
    if name in WHOLE:
        assert reports[name].parameters == parameters.unique(model(RUNS[name].partition(";")[0]))


@pytest.mark.parametrize("name", TAKEN)
def test_mtp_is_built_once_behind_the_last_layer(name: str, reports: dict[str, Report]) -> None:
    """Whatever its depths; of Qwen3-Next too, whose configuration says none, and of a vision-language model."""
    *before, last = [sum(chunk["mtp"] for chunk in stage["real"]["chunks"]) for stage in reports[name].stages]
    assert not any(before)
    assert last == int(not name.startswith("nano") and "no MTP" not in name)


@pytest.mark.parametrize("name", HYBRIDS)
def test_each_stage_has_the_layers_of_its_segment(name: str, reports: dict[str, Report]) -> None:
    plan = plan_of(RUNS[name])
    pattern = plan.layout.pipeline_layout or model(plan.model).layer_pattern
    built = [chunk["layers"] for stage in reports[name].stages for chunk in stage["real"]["chunks"]]
    assert built == [len(segment) for segment in pattern.split("|")]


@pytest.mark.parametrize("name", DELTA_NETS)
def test_each_chunk_has_the_layers_of_its_letters(name: str, reports: dict[str, Report]) -> None:
    plan = plan_of(RUNS[name])
    text, pp = plan.layout.pipeline_layout, plan.layout.pp
    built = [[chunk["layers"] for chunk in stage["real"]["chunks"]] for stage in reports[name].stages]
    assert sum(map(sum, built)) == model(plan.model).layers
    if text:
        counts = [chunk.count("t") for chunk in stages(text)]
        assert built == [counts[stage::pp] for stage in range(pp)]


@pytest.mark.parametrize("name", TAKEN)
def test_the_report_names_the_kernels_that_were_stood_in_for(name: str, reports: dict[str, Report]) -> None:
    """Those of Mamba; fla is one of Bridge's own requirements, and is imported without a GPU."""
    for package in ("mamba_ssm", "causal_conv1d"):
        line = f"\n  replaced by a stand-in: {package} (no kernel of it computes)"
        assert (line in render(reports[name])) == (name in HYBRIDS)
    assert not any("fla" in text.split() for text in reports[name].stood_in)


@pytest.mark.parametrize("name", HYBRIDS)
def test_the_pattern_is_no_replacement_of_bridges(name: str, reports: dict[str, Report]) -> None:
    """Bridge writes MTP's blocks behind the pattern: nothing of what was planned is another."""
    assert {c.field for c in reports[name].changed if c.origin == "plan"} <= {"dataset.split"}


def one_judged(server: Server, folder: Path, plan: Plan, text: str = "", stages: bool = True) -> Report:
    """A plan's recipe, or another text in its place, through the real Bridge."""
    (folder / "recipe.py").write_text(text or recipe_text(plan))
    (folder / "plan.json").write_text(json.dumps(plan.to_json()))
    case = cases.read(str(folder))
    assert isinstance(case, Case), case
    (report,) = server.judge([evolve(case, stages=stages)])
    return report


def with_layout(plan: Plan, **layout: Any) -> Plan:
    return changed(plan, layout=layout)


def test_a_moved_cut_moves_the_layers(server: Server, tmp_path: Path) -> None:
    """The whole stays what it was."""
    whole = str(HALVES.layout.pipeline_layout).replace("|", "")
    moved = one_judged(server, tmp_path, with_layout(HALVES, pipeline_layout=f"{whole[:40]}|{whole[40:]}"))
    assert moved.ok, moved.to_json()
    assert [s["real"]["chunks"][0]["layers"] for s in moved.stages] == [40, 48]
    assert moved.parameters == parameters.unique(model(HALVES.model))


def test_a_recipe_that_lost_its_segments_differs_from_the_plan(server: Server, tmp_path: Path) -> None:
    text = recipe_text(HALVES).replace("hybrid_layer_pattern", "hybrid_layer_pattern_of_mine")
    report = one_judged(server, tmp_path, HALVES, text, stages=False)
    assert not report.ok
    assert "model.hybrid_layer_pattern" in {m.field for m in report.mismatches}


NVIDIAS = table_of("verify", "hybrid: nvidias")


@pytest.mark.parametrize("what", rotation.some("NVIDIA's own", [*NVIDIAS], 1))
def test_nvidias_own_recipe_is_accepted(what: str, server: Server) -> None:
    """With the parameters that moedsl counts for the model, whatever its layout."""
    case = cases.read(f"megatron.bridge.{NVIDIAS[what]}")
    assert isinstance(case, Case), case
    (report,) = server.judge([case])
    assert report.ok, report.to_json()
    assert report.parameters == parameters.unique(model(case.function.partition("_pretrain")[0]))


REFUSED_RECIPES = table_of("verify", "hybrid: refused recipes")


@pytest.mark.parametrize("recipe", rotation.some("refused recipes", [*REFUSED_RECIPES], 1))
def test_nvidias_own_recipe_is_refused_once_the_model_is_built(recipe: str, server: Server) -> None:
    """Bridge's update lets them pass; the layers do not fall on the stages, or the model plans no overlap."""
    case = cases.read(f"megatron.bridge.{recipe}")
    assert isinstance(case, Case), case
    (report,) = server.judge([case])
    assert any(REFUSED_RECIPES[recipe] in r.message for r in report.refusals), report.to_json()


EMPTY = ["Et*16|t*16|t*16|mL", "Et*16|t*16|t*16m|L", "E|t*16|t*16|t*16mL"]


@pytest.mark.parametrize("layout", rotation.some("chunks without a layer", EMPTY, 1))
def test_a_chunk_without_a_layer_is_refused_beside_mtp(layout: str, server: Server, tmp_path: Path) -> None:
    """Whichever chunk it is: Bridge asks for MTP's layer in each (bridge models/gpt_provider.py:343)."""
    plan = plan_of("qwen3_next_80b_a3b; h100 x 64; pin pp=4 vpp=1 ep=8")
    report = one_judged(server, tmp_path, with_layout(plan, pipeline_layout=layout))
    assert any("not supported with get_gpt_decoder_layer_specs" in r.message for r in report.refusals), report.to_json()


REFUSED = {
    "another number of layers": ({"pipeline_layout": "MEM|*EM"}, "does not match the number of layers"),
    "no letter of a layer": ({"pipeline_layout": HALVES.layout.pipeline_layout.replace("*", "t")}, "valid layer"),
    "segments for another pipeline": (
        {"pipeline_layout": HALVES.layout.pipeline_layout.replace("*", "*|", 1)},
        "evenly divisible",
    ),
    "virtual stages": ({"vpp": 2}, "Virtual pipeline"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_bridge_refuses(why: str, server: Server, tmp_path: Path) -> None:
    layout, words = REFUSED[why]
    report = one_judged(server, tmp_path, with_layout(HALVES, **layout))
    assert report.verdict == "refused", report.to_json()
    assert any(words in r.message for r in report.refusals), report.refusals


def test_an_overlapped_schedule_is_refused(server: Server, tmp_path: Path) -> None:
    """Bridge's own checks let it pass: the model has no plan of its layers to overlap."""
    plan = changed(FULL, policy={"ep_overlap": True, "recompute": [], "cuda_graph": []})
    report = one_judged(server, tmp_path, plan)
    assert [r.question for r in report.refusals] == ["overlap"], report.to_json()
    assert "build_schedule_plan" in report.refusals[0].message


def test_more_tensor_parallel_ranks_than_groups_are_refused(server: Server, tmp_path: Path) -> None:
    plan = with_layout(FULL, tp=16, sequence_parallel=True, dp=1)
    plan = changed(plan, batch={"num_microbatches": plan.batch.global_batch})
    report = one_judged(server, tmp_path, plan)
    assert any("ngroups must be evenly divisible by tp_size" in r.message for r in report.refusals), report.to_json()


def test_only_a_split_pipeline_says_the_pattern() -> None:
    assert "model.hybrid_layer_pattern" not in decided_fields(FULL)
    decided = decided_fields(HALVES)
    assert decided["model.hybrid_layer_pattern"] == HALVES.layout.pipeline_layout
    assert decided["model.pipeline_model_parallel_layout"] is None
    assert decided_fields(FULL)["model.cuda_graph_modules"] == ["attn", "mamba"]


STAND_INS = """
import sys
from moedsl.bridge.verify import stand_ins
stand_ins.install_engine()
stand_ins.install_mamba()
assert not [name for name in sys.modules if name.split(".")[0] in ("mamba_ssm", "causal_conv1d")]
import torch
from megatron.core.ssm import mamba_mixer
norm = mamba_mixer.ExtendedRMSNorm(24, eps=1e-5, group_size=8, norm_before_gate=False, device="meta", dtype=torch.bfloat16)
print({name: (list(p.shape), str(p.dtype)) for name, p in norm.named_parameters()})
print(norm.sharded_state_dict.__module__)
for call in (norm, mamba_mixer.mamba_split_conv1d_scan_combined, mamba_mixer.causal_conv1d_fn):
    try:
        call(torch.zeros(2, 24))
    except RuntimeError as error:
        print(error)
"""


def test_what_stands_in_has_parameters_and_never_computes() -> None:
    """NVIDIA's own class over it, and nothing of it left for others to find."""
    ran = bridge_process.run("-c", STAND_INS)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-5:] == [
        "{'weight': ([24], 'torch.bfloat16')}",
        "megatron.core.ssm.mamba_mixer",
        *(
            f"{name} needs a package of kernels that is absent"
            for name in (
                "mamba_ssm.RMSNorm",
                "mamba_ssm.mamba_split_conv1d_scan_combined",
                "causal_conv1d.causal_conv1d_fn",
            )
        ),
    ]


SEGMENTS = """
import json, sys
from moedsl.bridge.verify import stand_ins
stand_ins.install_engine()
from megatron.core.models.hybrid.hybrid_layer_allocation import parse_hybrid_pattern
parsed = parse_hybrid_pattern(sys.argv[1])
print(json.dumps([parsed.main_pattern, parsed.mtp_pattern, parsed.mtp_num_depths]))
"""


@pytest.mark.parametrize("behind", ["", "/*E", "/*E/*E"])
def test_megatron_parts_the_pattern_where_moedsl_does(behind: str) -> None:
    pattern = HALVES.layout.pipeline_layout + behind
    ran = bridge_process.run("-c", SEGMENTS, pattern)
    assert ran.returncode == 0, ran.stderr
    main, mtp, depths = json.loads(ran.stdout.splitlines()[-1])
    assert (main, mtp, depths) == (decoder(pattern), "*E" if behind else None, behind.count("/"))
