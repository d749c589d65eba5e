"""The layout that a plan shows beside Megatron's even split: it is better, it is what its pin gives, and it is legal."""

from __future__ import annotations

import re

import pytest

from moedsl.compiler import compile_source
from moedsl.cost import pipeline
from moedsl.planner.other_layouts import WORTH, Alternative
from moedsl.planner.plan import Plan
from moedsl.support.source import Source
from tests.helpers.cost_models import model

RUNS = (
    "gpt_oss_120b; h100 x 64; routing balanced; pin pp=4 vpp=1 tp=1 cp=1 ep=8 micro_batch=1",
    "qwen3_30b_a3b; h100 x 16; scale first; pin pp=2 vpp=12 tp=1 cp=1 ep=8 micro_batch=1",
    "qwen3_next_80b_a3b; gb200 x 64; throughput first; pin pp=4 vpp=2 tp=1 cp=1 ep=16 micro_batch=1",
)


def plan(text: str) -> Plan:
    result = compile_source(Source("run.moe", text))
    assert not result.failed, result.diagnostics
    return result.plans[0]


def shown(p: Plan) -> list[Alternative]:
    return [p.rebalanced] if p.rebalanced else []


@pytest.mark.parametrize("text", RUNS)
def test_its_pin_gives_its_figures(text: str) -> None:
    before = plan(text)
    assert before.layout.pipeline_layout is None
    (found,) = shown(before)
    policy = {n: v for n, v in before.policy.to_json().items() if n in ("recompute", "cuda_graph", "dispatcher")}
    words = " ".join(
        f"{n}=[{', '.join(v)}]" if isinstance(v, list) and v else f"{n}={v or 'none'}" for n, v in policy.items()
    )
    after = plan(f'{text} {words} pipeline_layout="{found.changes["pipeline_layout"]}"')
    assert after.estimate.step_time_s == pytest.approx(found.step_time_s)
    assert after.estimate.memory.peak_gib == pytest.approx(found.peak_gib)
    assert found.step_time_s <= (1 - WORTH) * before.estimate.step_time_s
    assert not shown(after)


@pytest.mark.parametrize(
    "text",
    [
        "deepseek_v3; gb200 x 256; throughput first; pin pp=4",  # its layers do not divide: it is balanced as it is
        "qwen3_30b_a3b; h100 x 16; pin pp=1",
        "nemotron_3_nano; h100 x 16; pin pp=2",  # segments are balanced always
    ],
)
def test_nothing_where_nothing_is_to_gain(text: str) -> None:
    assert not shown(plan(text))


def test_it_is_said_as_it_is_written() -> None:
    from moedsl.planner.text import plan_text

    said = plan_text(plan(RUNS[0]))
    assert re.search(r'^  pipeline_layout="Et\*9\|.*L": -\d', said, re.M)


@pytest.mark.parametrize("name", ["gpt_oss_120b", "qwen3_30b_a3b", "qwen3_next_80b_a3b"])
@pytest.mark.parametrize(("pp", "vpp"), [(2, 1), (4, 3), (6, 2)])
def test_no_stage_is_heavier_than_by_the_even_split(name: str, pp: int, vpp: int) -> None:
    m = model(name)
    mtp, loss = pipeline.weights(m)
    text = pipeline.balanced(m, pp, vpp)
    assert text is not None
    layout, wrong = pipeline.parse_layout(text, m, pp, vpp)
    assert layout is not None and not wrong
    loads = [sum(c.layers + mtp * c.mtp + loss * c.loss for c in layout.stage(s)) for s in range(pp)]
    assert max(loads) <= m.layers / pp + loss + mtp * m.mtp_layers
    assert max(loads) - min(loads) < 2 + loss + mtp * m.mtp_layers
