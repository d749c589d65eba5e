"""A plan beside the recipe: what it decided, its groups and its stages are compared, and one wrong value is found."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from moedsl.bridge.verify import cases, resolve
from moedsl.bridge.verify.cases import Report, devices, render
from moedsl.bridge.verify.client import Server
from moedsl.compiler import load_stdlib
from moedsl.emit.recipe import recipe_text
from moedsl.emit.settings import decided_fields
from moedsl.planner.plan import Plan
from tests.helpers import bridge_process, rotation
from tests.helpers.paths import ROOT
from tests.helpers.plans import PLANS, changed
from tests.helpers.programs import compiled, judged, plan_of, written
from tests.helpers.tables import table_of

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


WRONG = table_of("verify", "wrong")


def test_every_wrong_value_is_found(judge: Judge) -> None:
    sections = {section: {**BASE.to_json()[section]} for section, _, _, _ in WRONG}
    for section, key, value, _ in WRONG:
        sections[section][key] = [*value] if isinstance(value, tuple) else value
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


# `verify` of a run whose checkpoint lies on the cluster: that one question is answered, the others are Bridge's own.

SFT = 'qwen3_30b_a3b; h100 x 16; task sft; data "/data/sft"; batch 64\nset checkpoint.pretrained_checkpoint = "{}"\n'
MOONLIGHT = SFT.replace("qwen3_30b_a3b", "moonlight_16b") + "pin tp=4\nset model.vocab_size = 163844\n"
DEEPSEEK = SFT.replace("qwen3_30b_a3b; h100 x 16", "deepseek_v3; h100 x 512").replace("batch 64", "batch 512")
RUNS = {
    "elsewhere": SFT,
    "here": SFT,
    "half a batch of validation": SFT + "pin dp=8\nset validation.eval_global_batch_size = 4\n",
    "a larger vocabulary": MOONLIGHT,
    "virtual stages and MTP": DEEPSEEK + "scale first\npin pp=8 vpp=4\n",
}
BUILT = rotation.some("runs with weights", [n for n in RUNS if n not in ("here", "half a batch of validation")], 1)
"""Whose stages this run builds; those of "here" are the same as elsewhere."""


@pytest.fixture(scope="module")
def reports(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    folder = tmp_path_factory.mktemp("weights")
    places = {"here": str(folder)}
    texts = {name: run.format(places.get(name, "/on/the/cluster")) for name, run in RUNS.items()}
    cases = [(n, case) for n, text in texts.items() for case in written(compiled(text, n), folder / n)]
    return {r.file: r for r in server.judge([evolve(c, file=n, stages=n in BUILT) for n, c in cases])}


def stood_in(report: Report) -> list[str]:
    return [text for text in report.stood_in if "checkpoint" in text]


@pytest.mark.parametrize("name", [n for n in RUNS if n != "half a batch of validation"])
def test_bridge_accepts(name: str, reports: dict[str, Report]) -> None:
    assert reports[name].ok, reports[name].to_json()


def test_a_checkpoint_of_the_cluster_is_said(reports: dict[str, Report]) -> None:
    (text,) = stood_in(reports["elsewhere"])
    assert text.startswith("the checkpoint /on/the/cluster (not on this machine")
    assert f"  replaced by a stand-in: {text}" in render(reports["elsewhere"]).splitlines()
    assert stood_in(reports["here"]) == []


def test_bridge_wants_a_microbatch_for_each_replica(reports: dict[str, Report]) -> None:
    """What the plan writes is the smallest: half of it is refused."""
    (refusal,) = reports["half a batch of validation"].refusals
    assert (
        refusal.where.startswith("megatron/bridge/training/config.py:") and "eval_global_batch_size" in refusal.message
    )


# The laws on shapes that vary, asked of the real Bridge: what they refuse it refuses, where they say.

PACKED = """\
model qwen3_vl_30b_a3b; gb200 x 16; seq 32k; batch 64; throughput first
set dataset.enable_in_batch_packing = true
"""
REFUSED = table_of("verify", "plan: refused")


@pytest.mark.parametrize("law", REFUSED)
def test_bridge_refuses_what_the_law_does(law: str, server: Server, tmp_path: Path) -> None:
    pins, said = REFUSED[law]
    allowed = f'{PACKED}{pins}\nallow std.variable_shapes.{law} because "to ask Bridge"'
    (report,) = server.judge(written(compiled(allowed), tmp_path))
    assert not report.ok and said in str(report.to_json())


def test_bridge_takes_packed_images_without_graphs(server: Server, tmp_path: Path) -> None:
    (report,) = server.judge(written(compiled(PACKED), tmp_path))
    assert report.ok, report.to_json()


# A plan for each GPU of the stdlib, which the real Megatron Bridge accepts on that GPU; a run takes one of them.

LIBRARY = load_stdlib()
DICE = rotation.dice("gpus")
GPUS = rotation.some("gpus", [*devices()], 1)
RUNS_OF_GPUS = {
    gpu: f"{DICE.choice(('moonlight_16b', 'qwen3_30b_a3b', 'gpt_oss_120b'))}; {gpu} x {DICE.choice((32, 64))}; "
    f"{DICE.choice(('fit', 'scale', 'throughput'))} first; seq {DICE.choice(('4k', '16k'))}"
    for gpu in GPUS
}


@pytest.mark.timeout(1200)
def test_bridge_accepts_a_plan_on_each(server: Server, tmp_path: Path) -> None:
    cases = {gpu: case for gpu, text in RUNS_OF_GPUS.items() for case in written(compiled(text), tmp_path / gpu)}
    assert {*cases} == {*RUNS_OF_GPUS}, "a run has no plan"
    assert {gpu: c.device for gpu, c in cases.items()} == {gpu: devices()[gpu] for gpu in GPUS}
    reports = dict(zip(cases, server.judge([*cases.values()]), strict=True))
    assert {gpu: r.to_json() for gpu, r in reports.items() if not r.ok} == {}


@pytest.mark.parametrize(
    ("gpu", "word", "law"),
    rotation.some(
        "lacks",
        [
            ("a100_80gb", "precision fp8_blockwise", "precision.fp8_gpu"),
            ("a100_80gb", "precision fp8", "precision.fp8_gpu"),
            ("a800", "precision mxfp8", "precision.mxfp8_gpu"),
            ("h20", "precision nvfp4", "precision.nvfp4_gpu"),
            ("a100_40gb", "pin dispatcher=hybridep", "dispatch.hybridep_copies"),
            ("a100_80gb", "pin dispatcher=deepep ep=16", "dispatch.deepep_network"),
            ("h100_pcie", "pin dispatcher=deepep ep=8", "dispatch.deepep_peers"),
            ("gh200_nvl2", "pin dispatcher=deepep ep=8", "dispatch.deepep_peers"),
            ("vr200", "pin dispatcher=deepep", "dispatch.deepep_gpu"),
        ],
        3,
    ),
)
def test_what_a_gpu_does_not_have_is_refused(gpu: str, word: str, law: str) -> None:
    (found,) = [d for d in compiled(f"qwen3_30b_a3b; {gpu} x 64; {word}").diagnostics if d.is_error]
    assert found.id == f"std.{law}" and any("drop" in h for h in found.help), found


@pytest.mark.parametrize("gpu", rotation.some("planned gpus", sorted(LIBRARY.hardware), 1))
def test_a_plan_keeps_to_its_gpu(gpu: str) -> None:
    """The queue of a GPU before Blackwell, no format that it does not have, and its NVLink domain."""
    (plan,) = compiled(f"moonlight_16b; {gpu} x 32; throughput first; precision auto").plans
    h, _ = LIBRARY.gpu(gpu)
    assert h is not None
    one_queue = int(plan.env["CUDA_DEVICE_MAX_CONNECTIONS"]) < 32
    assert not (one_queue and h.capability >= 10)
    assert plan.policy.precision in ("bf16", "fp8_blockwise" if h.arch == "hopper" else "mxfp8")
    assert plan.policy.precision == "bf16" or h.arch != "ampere"
    if plan.policy.dispatcher == "hybridep":
        assert h.capability >= 9 and int(plan.env["NVLINK_DOMAIN_SIZE"]) == h.nvlink_domain


def test_code_that_asks_for_the_current_device_is_no_refusal(server: Server, tmp_path: Path) -> None:
    """Megatron-Core asks for its number where it makes groups, and Transformer Engine makes a device of it."""
    runs = {
        "groups of SHARP": "qwen3_30b_a3b; h100 x 16; set dist.use_sharp = true\n"
        "set dist.sharp_enabled_group = dp_replica; set ddp.num_distributed_optimizer_instances = 2",
        "weights made on the CPU": "olmoe_7b; h100 x 16; set model.use_cpu_initialization = true",
    }
    asked = [(name, case) for name, text in runs.items() for case in written(compiled(text), tmp_path / name)]
    found = server.judge([evolve(case, stages=name == "weights made on the CPU") for name, case in asked])
    reports = dict(zip(runs, found, strict=True))
    assert {name: r.to_json() for name, r in reports.items() if not r.ok} == {}


# What verify asks of the built model: whether it plans its layers for an overlapped schedule, and what its graphs
# get.

RULES = ROOT / "stdlib/rules/vision.moe"
GRAPHS = "pin cuda_graph=[attn, moe_router, moe_preprocess]"
BUILT_RUNS = {
    "rope": f"qwen3_30b_a3b; h100 x 16; throughput first\n{GRAPHS}",
    "yarn": f"gpt_oss_120b; gb200 x 64; throughput first\n{GRAPHS}",
    "latent": f"moonlight_16b; h100 x 8; throughput first\n{GRAPHS}",
    "yarn, router alone": "gpt_oss_120b; gb200 x 64; throughput first\npin cuda_graph=[moe_router, moe_preprocess]",
    "Mamba layers": "nemotron_3_nano; h100 x 16; throughput first\npin cuda_graph=[attn, mamba] recompute=[moe]",
    "Mamba layers, MTP": f"nemotron_3_super; gb200 x 64; throughput first\n{GRAPHS.replace(']', ', mamba]')} pp=2",
    "delta nets, MTP": f"qwen3_next_80b_a3b; gb200 x 64; throughput first\n{GRAPHS} pp=2 vpp=4",
    "overlap with delta nets": "qwen3_next_80b_a3b; h100 x 64; throughput first\npin ep_overlap=on pp=2 vpp=4",
    "overlap of chunks": "qwen3_30b_a3b; h100 x 16; throughput first\npin ep_overlap=on pp=2 vpp=2",
    "overlap with MTP": "deepseek_v3; gb200 x 256; throughput first\npin ep_overlap=on pp=4 vpp=4",
}


CAUTION = "yarn"
TAKEN = [CAUTION, *rotation.some("built", [name for name in BUILT_RUNS if name != CAUTION], 1)]


@pytest.fixture(scope="module")
def built_reports(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    return judged(server, {name: BUILT_RUNS[name] for name in TAKEN}, tmp_path_factory.mktemp("built"))


@pytest.mark.parametrize("name", TAKEN)
def test_the_built_model_is_asked_and_accepts(name: str, built_reports: dict[str, Report]) -> None:
    assert built_reports[name].ok, built_reports[name].to_json()


def test_captured_attention_without_positions_is_a_caution(built_reports: dict[str, Report]) -> None:
    assert {name for name, r in built_reports.items() if r.cautions} == {CAUTION}
    (caution,) = built_reports[CAUTION].cautions
    assert "rotary_pos_emb (yarn)" in caution
    assert f"\n  caution  {caution}\n" in render(built_reports[CAUTION])


POSITIONS = """
import sys, traceback
from moedsl.bridge.verify import stand_ins
stand_ins.install_engine()
import torch
from megatron.bridge.models.qwen_vl.modelling_qwen3_vl.rope import get_rope_index
tokens = torch.full((1, 64), 7)
tokens[0, 3], tokens[0, 4:8] = 1, 2
grid = torch.tensor([[1, 4, 4]])
get_rope_index(2, 2, 3, 1, tokens, grid)
try:
    get_rope_index(2, 2, 3, 1, tokens.to("meta"), grid.to("meta"))
except Exception as error:
    print(next(f.lineno for f in reversed(traceback.extract_tb(error.__traceback__)) if f.filename.endswith("rope.py")))
"""


def test_positions_of_qwen3_vl_are_counted_on_the_host() -> None:
    """A tensor whose values the host cannot read, as while a graph is captured, ends it where std.vision cites it."""
    done = bridge_process.run("-c", POSITIONS)
    assert done.returncode == 0, done.stderr
    line = done.stdout.split()[-1]
    assert f'modelling_qwen3_vl/rope.py:{line}"' in RULES.read_text(encoding="utf-8")
