"""Steps that were measured on one H200 (docs/estimates.md), against today's plans of the same programs.

Bridge 0.6.2, Megatron-Core 0.19.2, Transformer Engine 2.20.2, torch 2.11.0, CUDA 13.0; a virtual machine with 16 cores.
Seconds are the median of a run's steps without a profiler, the first two left out; bytes are
`mem-max-allocated-gigabytes` of Bridge's log.
"""

from __future__ import annotations

import pytest
from attrs import frozen

from tests.helpers.one_gpu import MOONLIGHT, QWEN3
from tests.helpers.paths import ROOT
from tests.helpers.programs import plan_of

SMOKE = (ROOT / "examples/smoke.moe").read_text(encoding="utf-8").replace("h100 x 1", "h200 x 1")


@frozen
class Measured:
    """A run: its program, a step in seconds, and torch's peak in bytes."""

    program: str
    step_s: float
    peak: float


RUNS = {
    "four layers of Qwen3-30B": Measured(QWEN3, 1.698, 65.844e9),
    "five layers of Moonlight": Measured(MOONLIGHT, 1.377, 67.648e9),
    "examples/smoke.moe": Measured(SMOKE, 0.498, 0.81429e9),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_plan_of_a_run_on_one_gpu_is_near_what_was_measured(name: str) -> None:
    run = RUNS[name]
    estimate = plan_of(run.program).estimate
    assert estimate is not None and estimate.interval is not None
    assert estimate.memory.peak_gib * 2**30 == pytest.approx(run.peak, rel=0.003 if run.peak > 1e9 else 0.1)
    assert estimate.interval.lower_s < run.step_s < estimate.interval.upper_s
