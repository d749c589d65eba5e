"""A plan shows the interval of its step, what it leans on, and the layouts that it cannot tell apart."""

from __future__ import annotations

import pytest

from moedsl.compiler import compile_source
from moedsl.planner.plan import Plan
from moedsl.planner.text import plan_text
from moedsl.support.source import Source
from moedsl.support.text import CLOSE


def plan(text: str) -> Plan:
    result = compile_source(Source("run.moe", text))
    assert not result.failed, result.diagnostics
    return result.plans[0]


def test_the_interval_is_around_the_step() -> None:
    e = plan("qwen3_235b_a22b; gb200 x 256; throughput first; precision mxfp8").estimate
    i = e.interval
    assert i is not None
    assert i.lower_s < e.step_time_s < i.upper_s
    assert i.lower_s * i.upper_s == pytest.approx(e.step_time_s**2)
    assert len(i.leans_on) == 3 and i.unlike == ()
    assert all(n.about for n in i.leans_on)


def test_a_length_that_no_run_has_is_named() -> None:
    long = plan("qwen3_235b_a22b; gb200 x 256; seq 128k")
    assert long.estimate.interval is not None
    assert long.estimate.interval.unlike == ("no run longer than 8192 tokens",)
    assert "wider because there is no run longer than 8192 tokens; leans on" in " ".join(plan_text(long).split())


def test_layouts_that_the_estimate_cannot_tell_apart_are_about_as_fast() -> None:
    found = plan("qwen3_30b_a3b; gb200 x 8; throughput first; seq 4096; batch 512; precision mxfp8; routing balanced")
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
    recipe = plan(text).shipped
    assert recipe is not None and recipe.against_plan is not None and recipe.changes
    off = abs(_share(recipe.against_plan))
    assert recipe.against_plan.startswith(CLOSE) >= (off < 0.01)
    assert off < 0.3 or not recipe.against_plan.startswith(CLOSE)


def _share(effect: str) -> float:
    return float(effect.removeprefix(CLOSE).split("%")[0]) / 100
