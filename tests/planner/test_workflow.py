"""`workflow`: four compiles of one file, each from the plan before it, and the ladder that says what they may change."""

import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from moedsl.bridge.verify.client import Server
from moedsl.cli.main import main
from moedsl.emit.recipe import recipe_text
from moedsl.emit.settings import decided_fields
from moedsl.planner import ladder
from moedsl.planner.decisions import Decision
from moedsl.planner.plan import Plan
from tests.helpers.programs import compiled, plan_of, solved, written

RUN = "model qwen3_30b_a3b; h100 x 64"
DECIDED = ("layout", "batch", "policy", "gpus")


@pytest.fixture(scope="module")
def four() -> dict[str, Plan]:
    result = compiled(f"{RUN}; workflow")
    assert not result.failed, result.diagnostics
    return {p.name: p for p in result.plans}


def decided(p: Plan) -> dict[str, Any]:
    return {k: getattr(p, k) for k in DECIDED}


# ---------------------------------------------------------------- the four runs


def test_one_file_is_four_runs(four: dict[str, Plan]) -> None:
    assert {n: p.phase for n, p in four.items()} == {
        "main.fit": "fit",
        "main.scale": "scale",
        "main.profile": "profile",
        "main.retune": "throughput",
    }


@pytest.mark.parametrize("name", ["fit", "scale", "profile", "retune"])
def test_each_phase_is_the_compile_that_it_would_be_alone(name: str, four: dict[str, Plan]) -> None:
    phase = {"retune": "throughput"}.get(name, name)
    alone = plan_of(f"{RUN}; {phase} first")
    assert decided(four[f"main.{name}"]) == decided(alone)
    mine, its = four[f"main.{name}"].estimate, alone.estimate
    if name == "profile":  # that of the workflow has the layout of scale and no other to name
        mine, its = (evolve(e, memory=evolve(e.memory, certain=None)) for e in (mine, its))
    assert mine == its


def test_profile_takes_the_layout_of_scale(four: dict[str, Plan]) -> None:
    scale, profile = four["main.scale"], four["main.profile"]
    assert decided(scale) == decided(profile)
    a, b = decided_fields(scale), decided_fields(profile)
    changed = {path for path in a.keys() | b.keys() if a.get(path) != b.get(path)}
    assert changed == {p for p in b if p.startswith("profiling.")} | {"train.train_iters", "scheduler.lr_warmup_iters"}


def test_what_is_pinned_holds_in_every_phase() -> None:
    result = compiled(f"{RUN}; pin ep=32 micro_batch=2; precision fp8; seq 8k; workflow")
    assert [p.layout.ep for p in result.plans] == [32] * 4
    assert {p.policy.precision for p in result.plans} == {"fp8_blockwise"}
    assert {(p.batch.seq, p.batch.micro_batch) for p in result.plans} == {(8192, 2)}


def test_fit_settles_the_number_of_gpus() -> None:
    phases = solved("model qwen3_30b_a3b; h100; workflow").chosen
    (fit,) = solved("model qwen3_30b_a3b; h100; fit first").chosen
    assert {c.problem.gpus for c in phases} == {fit.problem.gpus}
    assert len({c.cost.global_batch for c in phases}) == 1 < len(phases)


def test_auto_opens_low_precision_when_it_retunes() -> None:
    result = compiled("model deepseek_v3; gb200 x 256; precision auto; workflow")
    assert [p.policy.precision for p in result.plans] == ["bf16", "bf16", "bf16", "mxfp8"]


def test_runs_of_a_file_have_workflows_of_their_own() -> None:
    result = compiled(
        "model olmoe_7b; h100 x 8\nrun short { workflow }\nrun long from short { seq 16k }\nrun one { fit first }"
    )
    names = [p.name for p in result.plans]
    assert names == [f"{r}.{p}" for r in ("short", "long") for p in ("fit", "scale", "profile", "retune")] + ["one"]
    assert {p.batch.seq for p in result.plans if p.name.startswith("long.")} == {16384}
    by = {p.name: p for p in result.plans}
    assert by["long.scale"].ladder.from_.step_time_s == by["long.scale"].estimate.step_time_s
    assert by["one"].ladder is None


@pytest.mark.parametrize(
    "text",
    [
        f"{RUN}; workflow; fit first",
        f"{RUN}\nworkflow\nrun a {{ scale first }}",
        f"{RUN}; workflow; sweep micro_batch in 1, 2",
        f"{RUN}; workflow; isolate overlap in off, on",
    ],
)
def test_a_workflow_names_no_phase_and_varies_nothing(text: str) -> None:
    result = compiled(text)
    (found,) = (d for d in result.diagnostics if d.is_error)
    assert found.id == "check.workflow" and len(found.labels) == 2 and found.help


def test_a_phase_without_a_layout_is_explained_once() -> None:
    result = compiled("model deepseek_v3; h100 x 8; workflow")
    assert [d.id for d in result.diagnostics if d.is_error] == ["solve.does_not_fit"]
    assert result.plans == ()


def test_compile_writes_a_folder_for_each_phase(tmp_path: Path) -> None:
    assert main(["compile", "-e", f"{RUN}; workflow", "-o", str(tmp_path / "out")]) == 0
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        f"main.{p}" for p in ("fit", "profile", "retune", "scale")
    ]


# ---------------------------------------------------------------- the ladder


def test_the_ladder_predicts_what_the_next_phase_plans(four: dict[str, Plan]) -> None:
    for here, there in (("fit", "scale"), ("scale", "retune"), ("profile", "retune")):
        step = four[f"main.{here}"].ladder.next[-1]
        assert step.step_time_s == four[f"main.{there}"].estimate.step_time_s
        assert step.peak_gib == four[f"main.{there}"].estimate.memory.peak_gib
    assert four["main.retune"].ladder.next == ()


def test_the_ladder_says_what_was_gained(four: dict[str, Plan]) -> None:
    assert four["main.fit"].ladder.from_ is None
    gains = {n: four[f"main.{n}"].ladder.from_ for n in ("scale", "profile", "retune")}
    assert [g.phase for g in gains.values()] == ["fit", "scale", "profile"]
    assert gains["profile"].changes == {} and gains["profile"].speedup == 1
    before, after = (four[n].estimate.step_time_s for n in ("main.fit", "main.scale"))
    assert gains["scale"].speedup == pytest.approx(before / after)
    assert gains["scale"].changes["dispatcher"] == four["main.scale"].policy.dispatcher


def test_what_a_phase_holds_is_what_the_next_ones_open(four: dict[str, Plan]) -> None:
    fit, scale, profile = (four[f"main.{n}"].ladder.to_json() for n in ("fit", "scale", "profile"))
    held = {e["axis"]: e for e in fit["held"]}
    assert held.keys() >= {"dispatcher", "cuda_graph", "ep_overlap", "vpp", "micro_batch"}
    assert held["dispatcher"]["values"] == ["alltoall"] and held["dispatcher"]["rule"] == "std.fit.dispatcher"
    assert {e["axis"] for e in fit["open"]} >= {"pp", "tp", "cp", "ep", "etp", "recompute", "offload"}
    assert {o["axis"]: o["values"] for o in fit["next"][0]["opens"]}["dispatcher"] == ["deepep", "hybridep"]
    assert {o["axis"] for o in scale["next"][-1]["opens"]} >= {"cuda_graph", "ep_overlap", "delay_wgrad", "micro_batch"}
    assert [s["phase"] for s in scale["next"]] == ["profile", "throughput"]
    assert profile["open"] == []
    assert all(
        e["advice"] == (e["rule"] is not None) and e["because"] for r in (fit, scale) for e in r["open"] + r["held"]
    )


def test_a_single_run_has_a_ladder_on_request(four: dict[str, Plan], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-e", f"{RUN}; fit first", "--json", "--ladder"]) == 0
    alone = json.loads(capsys.readouterr().out)["ladder"]
    in_file = four["main.fit"].ladder.to_json()
    assert {k: alone[k] for k in ("open", "held", "next", "ranks_by")} == {
        k: in_file[k] for k in ("open", "held", "next", "ranks_by")
    }
    assert main(["plan", "-e", f"{RUN}; fit first", "--json"]) == 0
    assert "ladder" not in json.loads(capsys.readouterr().out)


def test_the_wrong_order_is_noted_where_nothing_came_before(
    four: dict[str, Plan], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "-e", f"{RUN}; throughput first", "--ladder"]) == 0
    assert "fit, scale and profile come before this phase" in " ".join(capsys.readouterr().out.split())
    assert not any("wrong_order" in n.rule for n in four["main.retune"].ladder.notes)


def test_fit_says_how_its_groups_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-e", RUN, "--ladder"]) == 0
    assert "--fake-init-process-group" in capsys.readouterr().out


def test_one_shared_mesh_costs_what_a_require_of_it_costs() -> None:
    """Parallel folding on Qwen3-235B: the price of one mesh is that of the best layout that obeys it."""
    run = "model qwen3_235b_a22b; gb200 x 64; throughput first"
    phases = solved(run.replace("throughput first", "workflow")).chosen
    folding = ladder.of_workflow(phases)["main.retune"].folding
    (shared,) = solved(f"{run}; require etp == tp and dp % ep == 0").chosen
    row = shared.solution.rows[0]
    mesh = row.layout
    assert folding.folded and 64 // (mesh["tp"] * mesh["cp"] * mesh["pp"]) % mesh["ep"] == 0
    assert folding.shared_mesh is not None and folding.shared_mesh.step_time_s == row.step_time
    assert folding.shared_mesh.speedup < 1


# ---------------------------------------------------------------- advice, and the platform's defaults


def decisions(p: Plan) -> dict[str, Decision]:
    return {d.name: d for d in p.decisions}


def test_advice_is_marked(four: dict[str, Plan]) -> None:
    fit, retune = decisions(four["main.fit"]), decisions(four["main.retune"])
    assert fit["dispatcher"].advice and fit["dispatcher"].among == "std.fit.dispatcher"
    assert retune["cuda_graph"].advice and retune["cuda_graph"].among == "std.throughput.cuda_graph"
    assert not fit["tp"].advice
    pinned = decisions(plan_of(f"{RUN}; pin dispatcher=hybridep"))["dispatcher"]
    assert not pinned.advice and pinned.among is None


@pytest.mark.parametrize(
    ("hardware", "first", "low"),
    [("h100", "deepep", "fp8_blockwise"), ("b200", "deepep", "mxfp8"), ("gb200", "hybridep", "mxfp8")],
)
def test_defaults_by_platform(hardware: str, first: str, low: str) -> None:
    result = solved(f"model qwen3_30b_a3b; {hardware} x 64; precision auto; throughput first")
    open_ = {e["axis"]: e for e in ladder.of_run(result.chosen[0]).to_json()["open"]}
    assert open_["dispatcher"]["values"][0] == first and open_["dispatcher"]["values"][-1] == "alltoall"
    assert open_["precision"]["values"] == ["bf16", low]
    assert open_["cuda_graph"]["values"][-1] == ["attn", "moe_router", "moe_preprocess"]
    assert all(open_[a]["advice"] and open_[a]["cite"] for a in ("dispatcher", "precision", "cuda_graph"))


def test_the_newer_text_decides_and_the_older_advice_is_told() -> None:
    """The narrowest graph and plain overlap come first; what the older text advises is told with its reason."""
    plan = plan_of("qwen3_30b_a3b; h100 x 32; throughput first")
    assert plan.policy.cuda_graph == ["moe_router", "moe_preprocess"]
    assert plan.policy.ep_overlap and not plan.policy.delay_wgrad
    (older,) = (a for a in plan.advice if a.rule == "std.cuda_graph_advice.partial_first")
    assert not older.followed and older.worth == 0
    assert older.because is not None and "2026-08-03" in older.because


@pytest.mark.parametrize("phase", ["fit", "profile", "retune"])
def test_the_ladder_says_how_to_measure(phase: str, four: dict[str, Plan]) -> None:
    rules = {
        "fit": {"contract"},
        "profile": {"hidden_communication"},
        "retune": {"one_variable", "windows", "evidence"},
    }
    rungs = four[f"main.{phase}"].ladder
    assert rungs is not None
    assert {f"std.ladder.{name}" for name in rules[phase]} <= {n.rule for n in rungs.notes}


# ---------------------------------------------------------------- what is emitted


def test_the_profile_is_of_the_first_and_the_last_stage() -> None:
    deep = plan_of("model deepseek_v3; gb200 x 256; pin pp=8; profile first")
    assert deep.derived["profiling.profile_ranks"] == [0, 224]
    flat = plan_of("model qwen3_30b_a3b; gb200 x 64; pin pp=1; profile first")
    assert flat.derived["profiling.profile_ranks"] == [0]


def test_memory_is_recorded_near_its_wall_only() -> None:
    near = plan_of("model deepseek_v3; gb200 x 256; profile first")
    far = plan_of("model qwen3_30b_a3b; gb200 x 64; pin micro_batch=1 ep=64; profile first")
    assert near.estimate.memory.peak_gib > 0.8 * near.estimate.memory.capacity_gib
    assert near.derived["profiling.record_memory_history"] is True
    assert far.derived["profiling.record_memory_history"] is False


def test_only_a_profile_starts_under_nsight(four: dict[str, Plan]) -> None:
    assert "nsys profile" in recipe_text(four["main.profile"])
    assert not any("nsys" in recipe_text(four[f"main.{n}"]) for n in ("fit", "scale", "retune"))


def test_the_other_profiler_starts_without_nsight() -> None:
    other = "set profiling.use_nsys_profiler = false; set profiling.use_pytorch_profiler = true"
    assert "nsys" not in recipe_text(plan_of(f"{RUN}; profile first; {other}")).split('"""')[1]


@pytest.mark.parametrize(
    "text", ["profile first { gb200 x 16 }\nfirst; fit first", "profile x { gb200 x 16 }\nx\nprofile first"]
)
def test_profile_is_a_phase_and_a_declaration(text: str) -> None:
    (p,) = compiled(f"model qwen3_30b_a3b\n{text}").plans
    assert p.gpus == 16 and p.phase == ("profile" if text.endswith("profile first") else "fit")


def test_a_set_of_a_profiling_field_makes_the_section(four: dict[str, Plan]) -> None:
    text = recipe_text(plan_of(f"{RUN}; set profiling.use_pytorch_profiler = true"))
    assert text.index("cfg.profiling = ProfilingConfig()") < text.index("cfg.profiling.use_pytorch_profiler = True")
    assert "cfg.profiling" not in recipe_text(four["main.fit"])


@pytest.mark.bridge
def test_bridge_takes_the_profile_and_refuses_two_profilers(server: Server, tmp_path: Path) -> None:
    """Every `profiling` field comes through Bridge as decided; both profilers at once it refuses (config.py:757)."""
    one = compiled(f"{RUN}; profile first")
    both = compiled(f"{RUN}; profile first; set profiling.use_pytorch_profiler = true")
    accepted, refused = server.judge([*written(one, tmp_path / "one"), *written(both, tmp_path / "both")])
    assert accepted.ok, accepted.to_json()
    assert refused.verdict == "refused" and "pytorch or nsys profiler" in refused.refusals[0].message
