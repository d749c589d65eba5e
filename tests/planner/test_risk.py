"""A plan FITS by default; a faster layout that may run out of memory is shown, and `risk oom` chooses it."""

from __future__ import annotations

import json

import pytest

from moedsl.cost.estimate import bounds
from moedsl.facts.units import GIB
from moedsl.planner.plan import Plan
from moedsl.planner.text import plan_text
from moedsl.solver.problem import pinned_row
from moedsl.solver.solve import solve
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.resources import stdlib_dir
from tests.helpers import rotation
from tests.helpers.programs import compiled
from tests.helpers.small_programs import program

RUNS = [
    "moonlight_16b; h100 x 8; throughput first",
    "kimi_k2; h100 x 1024; throughput first",
    "qwen3_next_80b_a3b; h100 x 128; seq 32k; fit first",
    "qwen3_30b_a3b; h100 x 16; scale first",
    "moonlight_16b; h100 x 8; throughput first; sweep micro_batch in 2",
]
NOTHING_FASTER = "gpt_oss_120b; gb200 x 64; throughput first"


def plan(text: str) -> Plan:
    result = compiled(text)
    assert not result.failed, result.diagnostics
    return result.plans[0]


def warned(text: str) -> list[Diagnostic]:
    return [d for d in compiled(text).diagnostics if d.id == "plan.tight"]


@pytest.mark.parametrize("text", [*rotation.some("risks", RUNS, 1), NOTHING_FASTER])
def test_the_faster_layout_that_is_shown_is_the_one_that_risk_chooses(text: str) -> None:
    safe, risky = plan(text), plan(f"{text}; risk oom")
    shown = safe.estimate.memory.faster
    assert safe.estimate.memory.verdict == "FITS" and not warned(text)
    assert (shown is not None) == (risky.estimate.step_time_s < safe.estimate.step_time_s * 0.9995)
    if shown is None:
        assert "risk oom" not in plan_text(safe)
        return
    assert risky.estimate.memory.verdict == "TIGHT" and not warned(f"{text}; risk oom")
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
    (found,) = warned(text)
    assert found.severity == "warning" and "high end" in found.message and "best estimate" in found.message
    memory = plan(text).estimate.memory
    assert memory.verdict == "TIGHT" and memory.faster is None
    assert "no layout of this run FITS\n" in plan_text(plan(text))


def test_what_does_not_fit_by_the_best_estimate_needs_the_least_memory() -> None:
    text = "nemotron_3_nano; h100 x 16; throughput first; seq 8192; pin tp=1 cp=1 pp=1 ep=8 etp=1 recompute=none offload=none grad_reduce=bf16"
    (found,) = warned(text)
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
    for r in map(json.loads, rotation.some("published", lines, len(lines) // 4)):
        p = program(r["run"])
        chosen = solve(p, p.gpus or 0, keep=1)
        verdict = bounds(chosen.cost, pinned_row(chosen.problem)).verdict
        assert bool(chosen.solution.rows) == (verdict != "DOES NOT FIT"), r["id"]
        assert (chosen.must_fit == "high") == (verdict == "FITS"), r["id"]
        refused |= set() if chosen.solution.rows else {r["id"]}
    assert not refused


def test_the_fewest_gpus_are_those_where_a_layout_fits() -> None:
    text = "deepseek_v3; h100; seq 16k; fit first"
    safe, risky = plan(text), plan(f"{text}; risk oom")
    assert safe.estimate.memory.verdict == "FITS"
    assert risky.gpus <= safe.gpus


def test_every_variant_of_an_isolation_fits() -> None:
    plans = compiled("moonlight_16b; h100 x 8; throughput first; isolate micro_batch in 1, 2").plans
    assert {p.estimate.memory.verdict for p in plans} == {"FITS"}
    assert all(p.estimate.memory.faster is None for p in plans)


def test_an_unknown_risk_is_a_mistake() -> None:
    (found,) = compiled("qwen3_30b_a3b; h100 x 16; risk memory").diagnostics
    assert found.id == "check.unknown_word"
