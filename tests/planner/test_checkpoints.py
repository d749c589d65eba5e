"""What a plan says of its checkpoints: from the run, from its cluster, and for more GPUs."""

import json

import pytest
from attrs import evolve

from moedsl.cost.estimate import bounds
from moedsl.facts.units import GIB
from moedsl.planner import checkpoints
from moedsl.planner.checkpoints import Checkpoints
from moedsl.planner.notes import LEAST
from moedsl.planner.text import plan_text
from moedsl.queries.explain_layouts import based
from moedsl.queries.explain_value import explain
from moedsl.queries.what_if import what_if
from moedsl.solver.problem import pinned_row
from moedsl.solver.solve import solve
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.resources import stdlib_dir
from moedsl.support.text import CLOSE
from tests.helpers import rotation
from tests.helpers.programs import compiled, plan_of, solved
from tests.helpers.small_programs import program
from tests.helpers.tables import table_of

RUN = (
    "deepseek_v3; gb200 x 1024; seq 4k; batch 4096; throughput first; pin tp=1 cp=1 pp=8 vpp=2 ep=64; "
    'data "/data/text_document"\n'
)


def saves(more: str = "", run: str = RUN) -> Checkpoints:
    """The checkpoints of a plan, without the other parts of it."""
    (chosen,) = solved(run + more).chosen
    row = chosen.solution.rows[0]
    return checkpoints.build(chosen, row, chosen.environment(row.codes, row.prices), {})


def test_they_are_those_of_the_plan() -> None:
    whole = plan_of(RUN).checkpoints
    assert evolve(whole, kept=None, kept_gb=None) == saves()


def cluster(facts: str) -> str:
    return f"cluster here {{ executor slurm; hardware gb200; {facts} }}"


def test_the_shares_of_a_month_are_one() -> None:
    g = saves().goodput
    assert g.trains + g.validates + g.saves + g.repeats + g.returns == pytest.approx(1)
    assert min(g.trains, g.validates, g.saves, g.repeats, g.returns) > 0


def test_validation_is_forward_passes_of_the_recipe_s_own_number() -> None:
    """Bridge gives pretraining 32 batches of the global batch in each 500 steps (bridge recipes/common.py:73)."""
    none = saves("set validation.eval_iters = 0").goodput
    assert none.validates == 0
    usual = saves().goodput
    assert usual.validates / usual.trains == pytest.approx(32 / 500 / 3)
    assert usual.trains == pytest.approx(none.trains / (1 + 32 / 1500), rel=1e-3)
    often = saves("set validation.eval_interval = 100").goodput
    assert often.validates / often.trains == pytest.approx(32 / 100 / 3)
    small = saves("set validation.eval_global_batch_size = 2048").goodput
    assert 0.5 <= small.validates / usual.validates < 0.7  # more than half where a pipeline fills for each batch
    assert saves(run=RUN.partition("; data")[0] + "\n").goodput.validates == 0


def test_fine_tuning_validates_one_microbatch_for_each_replica() -> None:
    run = 'qwen3_30b_a3b; h100 x 16; batch 64; data "/data/chats"; pin pp=1 tp=1 cp=1\n'
    sft, peft = (saves(run=f"{run}task {task}\n").goodput for task in ("sft", "peft"))
    assert sft.validates / sft.trains == pytest.approx(32 / 100 / 3 / 4)  # of four microbatches of a step
    assert peft.validates / peft.trains == pytest.approx(32 / 100 / 2 / 4)


def test_a_cluster_states_its_own_numbers() -> None:
    plain = saves()
    assert saves(cluster("storage_write 10 GB/s")).write_s == pytest.approx(plain.size_gb / 10, rel=0.02)
    assert saves(cluster("gpu_mtbf_days 500")).failure_every_s == pytest.approx(plain.failure_every_s / 4)
    assert saves(cluster("gpu_mtbf_days 500")).interval_steps == pytest.approx(plain.interval_steps / 2, rel=0.05)
    short = saves(cluster("most_lost_minutes 10"))
    assert short.interval_s + short.write_s == pytest.approx(600, rel=0.03) and "may lose" in short.because


def test_one_of_two_clusters_counts_only_as_the_default() -> None:
    two = cluster("storage_write 10 GB/s") + "\ncluster other { executor local }"
    assert saves(two) == saves()
    assert saves(two.replace("executor slurm;", "executor slurm; default on;")).write_s > 900


def test_a_slow_file_system_sets_the_interval() -> None:
    slow = saves(cluster("storage_write 4 GB/s"))
    assert slow.interval_s >= slow.write_s - slow.blocked_s and "faster file system" in slow.because


def test_what_a_run_sets_counts() -> None:
    fixed = saves("set checkpoint.save_interval = 1000; set checkpoint.most_recent_k = 2")
    assert (fixed.interval_steps, fixed.kept) == (1000, 2) and fixed.kept_gb == pytest.approx(3 * fixed.size_gb)
    assert fixed.goodput.trains < saves().goodput.trains
    once = saves("set checkpoint.save_interval = 0")
    assert once.interval_s == pytest.approx(30 * 86400, rel=0.01) and "at its end" in once.because
    assert once.goodput.trains < 0.01
    stops = saves("set checkpoint.async_save = false")
    assert stops.blocked_s == stops.write_s > saves().blocked_s
    assert stops.goodput.trains < saves().goodput.trains
    assert saves("set checkpoint.save_optim = false").bytes_per_parameter == 2


def test_saves_on_the_nodes_come_only_where_they_pay() -> None:
    disk, restarts = 'storage_write 5 GB/s; local_disk "/raid"', "set ft.enable_ft_package = true\n"
    run = RUN.replace("1024", "8192").replace("4096", "32768")
    local = saves(restarts + cluster(disk), run).local
    assert local is not None and local.folder == "/raid"
    without = saves(restarts + cluster(disk.partition(";")[0]), run)
    assert saves(restarts + cluster(disk), run).goodput.trains > without.goodput.trains + 0.005
    assert saves(cluster(disk), run).local is None  # a new job may have other nodes
    few = RUN.replace("1024", "64").replace("4096", "256").replace("pp=8 vpp=2 ep=64", "pp=4 vpp=4 ep=16")
    assert saves(restarts + cluster(disk), few).local is None
    assert without.return_s < saves(cluster(disk), run).return_s


def test_a_load_is_part_of_each_return_only_without_saves_on_the_nodes() -> None:
    """With them a return is a mean, which may be shorter than a load from the shared file system."""
    run = RUN.replace("1024", "8192").replace("4096", "32768") + "set ft.enable_ft_package = true\n"
    shared, near = (
        plan_of(run + cluster(facts)) for facts in ("storage_write 5 GB/s", 'storage_write 5 GB/s; local_disk "/raid"')
    )
    assert shared.checkpoints is not None and near.checkpoints is not None
    assert near.checkpoints.return_s < near.checkpoints.load_s < shared.checkpoints.return_s
    assert " of that to load" in " ".join(plan_text(shared).split())
    said = " ".join(plan_text(near).split())
    assert "to return on average; a load from the shared file system takes " in said
    assert "of that to load" not in said


def test_mock_data_is_not_saved() -> None:
    mock = saves(run=RUN.partition("; data")[0] + "\n")
    assert not mock.saved and saves().saved and mock.goodput == saves("set validation.eval_iters = 0").goodput


def test_more_gpus_train_a_smaller_share() -> None:
    now = solved(
        "olmoe_7b; h100 x 64; seq 4k; batch 1024; throughput first; pin recompute=none offload=none cuda_graph=none"
    )
    found = what_if(now.chosen[0], now.library).to_json()
    by_gpus = {f["gpus"]: f["goodput"] for f in [found["base"], *found["lines"]] if f.get("kind", "gpus") == "gpus"}
    assert [by_gpus[n] for n in sorted(by_gpus)] == sorted(by_gpus.values(), reverse=True)


def test_goodput_is_explained_by_published_numbers() -> None:
    result = compiled(RUN)
    context = based(result.chosen[0], {})
    assert context is not None
    told = explain(context, "goodput")
    assert told is not None and "returns from failures" in told["origin"]["because"]
    assert any("gpu_mtbf 2000 days" in c and "2407.21783" in c for c in told["origin"]["cite"])
    own = based(compiled(RUN + cluster("gpu_mtbf_days 500")).chosen[0], {})
    assert own is not None and "gpu_mtbf" not in str(explain(own, "goodput"))


def test_no_law_can_read_what_the_layout_decides() -> None:
    result = compiled(RUN + 'rules own { require few: save_steps > 5 because "x" cite ours "y" }')
    assert [d.id for d in result.diagnostics if d.is_error] == ["check.too_late"]


def share(help: str) -> float:
    """The goodput that a line of the help promises."""
    return float(help.partition("% would train")[0].rpartition(" ")[2]) / 100


def warned(more: str) -> Diagnostic | None:
    return next((d for d in solved(RUN + more).diagnostics if d.id == "plan.goodput"), None)


def test_little_time_to_train_is_a_warning() -> None:
    """A page that prints a goodput of 0.0% says so, and each change of the help gives what it promises."""
    bad = cluster("gpu_mtbf_days 30")
    d = warned(f"set checkpoint.save_interval = 5000\n{bad}")
    assert d is not None and d.severity == "warning" and "only 0.0% of the time trains" in d.message
    assert [f.kind for f in d.fixes] == ["drop"] and len(d.labels) == 2
    interval, in_job, calibrated, fewer = d.help
    assert share(interval) == pytest.approx(saves(bad).goodput.trains, abs=6e-4)
    assert share(in_job) == pytest.approx(saves(f"resilience ft\n{bad}").goodput.trains, abs=6e-4)
    assert share(calibrated) == pytest.approx(saves().goodput.trains, abs=6e-4)
    assert fewer.startswith("use 512 GPUs") and share(fewer) >= LEAST
    assert warned(bad) is warned("") is None


def test_saves_on_the_nodes_are_a_way_out_of_little_time() -> None:
    d = warned(cluster("storage_write 0.05 GB/s"))
    assert d is not None and not d.fixes and len(d.labels) == 1
    (on_nodes,) = (h for h in d.help if "local_disk" in h)
    disk = cluster('storage_write 0.05 GB/s; local_disk "/raid"')
    assert share(on_nodes) == pytest.approx(saves(f"resilience ft\n{disk}").goodput.trains, abs=6e-4)


def test_where_each_life_is_shorter_than_a_return_fewer_gpus_are_left() -> None:
    d = warned(cluster("gpu_mtbf_days 1"))
    assert d is not None and "100.0% returns from failures" in d.message
    assert d.help[-1].startswith("use 1 GPU,") and LEAST <= share(d.help[-1]) < 1


# A plan shows the interval of its step, what it leans on, and the layouts that it cannot tell apart.


def test_the_interval_is_around_the_step() -> None:
    e = plan_of("qwen3_235b_a22b; gb200 x 256; throughput first; precision mxfp8").estimate
    i = e.interval
    assert i is not None
    assert i.lower_s < e.step_time_s < i.upper_s
    assert i.lower_s * i.upper_s == pytest.approx(e.step_time_s**2)
    assert len(i.leans_on) == 3 and i.unlike == ()
    assert all(n.about for n in i.leans_on)


def test_a_length_that_no_run_has_is_named() -> None:
    long = plan_of("qwen3_235b_a22b; gb200 x 256; seq 128k")
    assert long.estimate.interval is not None
    assert long.estimate.interval.unlike[0] == "no run longer than 8192 tokens"
    assert "wider because there is no run longer than 8192 tokens" in " ".join(plan_text(long).split())


def test_layouts_that_the_estimate_cannot_tell_apart_are_about_as_fast() -> None:
    found = plan_of(
        "qwen3_30b_a3b; gb200 x 8; throughput first; seq 4096; batch 512; precision mxfp8; routing balanced"
    )
    effects = [a.effect for d in found.decisions for a in d.alternatives if "step time" in a.effect]
    close = [e for e in effects if e.startswith(CLOSE)]
    assert 0 < len(close) < len(effects)
    assert all(abs(_share(e)) < 0.3 for e in close)
    assert not any(abs(_share(e)) < 0.005 for e in effects if e not in close)
    for a in found.alternatives:
        near = abs(a.step_time_s / found.estimate.step_time_s - 1) < 0.01
        assert a.against_plan.startswith(CLOSE) >= near


def test_a_shipped_recipe_is_compared_in_the_same_words() -> None:
    text = "deepseek_v3; gb200 x 256; throughput first; precision mxfp8; pin moments=bf16; routing balanced"
    recipe = plan_of(text).shipped
    assert recipe is not None and recipe.against_plan is not None and recipe.changes
    off = abs(_share(recipe.against_plan))
    assert recipe.against_plan.startswith(CLOSE) >= (off < 0.01)
    assert off < 0.3 or not recipe.against_plan.startswith(CLOSE)


def _share(effect: str) -> float:
    return float(effect.removeprefix(CLOSE).split("%")[0]) / 100


# A plan FITS by default; a faster layout that may run out of memory is shown, and `risk oom` chooses it.

RUNS = table_of("planner", "checkpoints: runs")
NOTHING_FASTER = "gpt_oss_120b; gb200 x 64; throughput first"


def warned_of_risk(text: str) -> list[Diagnostic]:
    return [d for d in compiled(text).diagnostics if d.id == "plan.tight"]


@pytest.mark.parametrize("text", [*rotation.some("risks", RUNS, 1), NOTHING_FASTER])
def test_the_faster_layout_that_is_shown_is_the_one_that_risk_chooses(text: str) -> None:
    safe, risky = plan_of(text), plan_of(f"{text}; risk oom")
    shown = safe.estimate.memory.faster
    assert safe.estimate.memory.verdict == "FITS" and not warned_of_risk(text)
    assert (shown is not None) == (risky.estimate.step_time_s < safe.estimate.step_time_s * 0.9995)
    if shown is None:
        assert "risk oom" not in plan_text(safe)
        return
    assert risky.estimate.memory.verdict == "TIGHT" and not warned_of_risk(f"{text}; risk oom")
    assert shown.step_time_s == risky.estimate.step_time_s
    least, most = bounds(
        compiled(text).chosen[0].cost, compiled(f"{text}; risk oom").chosen[0].solution.rows[0].codes
    ).needed
    assert (shown.lower_gib, shown.upper_gib) == pytest.approx((least / GIB, most / GIB), abs=1e-6)
    assert shown.lower_gib < safe.estimate.memory.visible_gib < shown.upper_gib
    gain = risky.estimate.step_time_s - safe.estimate.step_time_s
    said = " ".join(plan_text(safe).split())
    assert (
        f"{shown.step_time_s:.2f} s a step ({gain:+.2f} s, {100 * gain / safe.estimate.step_time_s:+.1f}% step" in said
    )
    assert f"{shown.lower_gib:.1f} to {shown.upper_gib:.1f} of {safe.estimate.memory.visible_gib:.1f} GiB" in said
    assert "; `risk oom` chooses it" in said


def test_a_layout_that_fits_by_the_best_estimate_alone_is_chosen_with_a_warning() -> None:
    """Nothing else can hold the run: it is planned, not refused."""
    text = "nemotron_3_5_lightning; h100 x 16; throughput first; seq 8192; pin tp=1 cp=1 pp=1 ep=8 recompute=[layernorm, moe_act]"
    (found,) = warned_of_risk(text)
    assert found.severity == "warning" and "high end" in found.message and "best estimate" in found.message
    memory = plan_of(text).estimate.memory
    assert memory.verdict == "TIGHT" and memory.faster is None
    assert "no layout of this run FITS\n" in plan_text(plan_of(text))


def test_what_does_not_fit_by_the_best_estimate_needs_the_least_memory() -> None:
    text = "nemotron_3_nano; h100 x 16; throughput first; seq 8192; pin tp=1 cp=1 pp=1 ep=8 etp=1 recompute=none offload=none grad_reduce=bf16"
    (found,) = warned_of_risk(text)
    assert "expect the plan to run out of memory" in found.message
    chosen = solve(program(text), 16)
    assert chosen.must_fit == "low"
    assert chosen.compiled.ranks[0].rule.id == "std.memory_at_low.least"
    peaks = [r.peak_memory for r in chosen.solution.rows]
    assert peaks == sorted(peaks)


def test_only_what_even_the_low_end_does_not_allow_is_refused() -> None:
    """Published runs, which ran, pinned in full; a run of the tests takes a quarter of them."""
    lines = (stdlib_dir() / "calibration/published.jsonl").read_text(encoding="utf-8").splitlines()
    refused = set[str]()
    for r in map(json.loads, rotation.some("published", lines, len(lines) // 8)):
        p = program(r["run"])
        chosen = solve(p, p.gpus or 0, keep=1)
        verdict = bounds(chosen.cost, pinned_row(chosen.problem)).verdict
        assert bool(chosen.solution.rows) == (verdict != "DOES NOT FIT"), r["id"]
        assert (chosen.must_fit == "high") == (verdict == "FITS"), r["id"]
        refused |= set() if chosen.solution.rows else {r["id"]}
    assert not refused


def test_the_fewest_gpus_are_those_where_a_layout_fits() -> None:
    text = "deepseek_v3; h100; seq 16k; fit first"
    safe, risky = plan_of(text), plan_of(f"{text}; risk oom")
    assert safe.estimate.memory.verdict == "FITS"
    assert risky.gpus <= safe.gpus


def test_every_variant_of_an_isolation_fits() -> None:
    plans = compiled("moonlight_16b; h100 x 8; throughput first; isolate micro_batch in 1, 2").plans
    assert {p.estimate.memory.verdict for p in plans} == {"FITS"}
    assert all(p.estimate.memory.faster is None for p in plans)


def test_an_unknown_risk_is_a_mistake() -> None:
    (found,) = compiled("qwen3_30b_a3b; h100 x 16; risk memory").diagnostics
    assert found.id == "check.unknown_word"
