"""What a TIGHT plan says of the layouts that FIT: there is one wherever a pin of it gives one."""

from __future__ import annotations

from typing import Any

import pytest

from moedsl.facts import axes
from moedsl.planner.memory import Certain
from moedsl.planner.plan import Plan
from moedsl.planner.text import plan_text
from tests.helpers.programs import compiled


def plan(text: str) -> Plan:
    result = compiled(text)
    assert not result.failed, result.diagnostics
    return result.plans[0]


@pytest.mark.parametrize(
    "text",
    [
        "qwen3_next_80b_a3b; h100 x 128; seq 32k; risk oom",  # bring-up ranks by parallelism, and what FITS has another
        "deepseek_v3; h100 x 1024; throughput first; risk oom",
    ],
)
def test_the_one_that_fits_does_when_it_is_pinned(text: str) -> None:
    tight = plan(text)
    memory = tight.estimate.memory
    assert memory.verdict == "TIGHT"
    found = memory.certain.layout
    assert "nearest layout that FITS" in plan_text(tight)
    fits = plan(f"{text}; pin {pins(tight, found.changes)}").estimate
    assert fits.memory.verdict == "FITS"
    assert fits.step_time_s == pytest.approx(found.step_time_s)


def test_nothing_that_fits_is_said_as_such() -> None:
    """Of a run that leaves nothing open."""
    text = "qwen3_next_80b_a3b; h100 x 128; seq 32k; risk oom"
    tight = plan(f"{text}; pin {pins(plan(text), {})}")
    assert tight.estimate.memory.certain == Certain(within=None, layout=None)
    assert "no layout of this run FITS\n" in plan_text(tight)


def pins(p: Plan, changes: dict[str, Any]) -> str:
    """A plan's whole layout as pins, with some of it changed."""
    kept = {n: getattr(p.layout, n) for n in ("tp", "cp", "pp", "vpp", "ep", "etp")}
    kept |= {n: getattr(p.policy, n) for n in ("recompute", "dispatcher", "cuda_graph", "ep_overlap", "offload")}
    kept |= {"micro_batch": p.batch.micro_batch, "delay_wgrad": p.policy.delay_wgrad}
    return " ".join(f"{n}={axes.written(v) or 'none'}" for n, v in (kept | changes).items())
