"""Advice that makes a plan TIGHT for no predicted gain is told, and the pin that it names gives what it promises."""

from __future__ import annotations

import pytest

from moedsl.support.diagnostics import Diagnostic
from tests.helpers.programs import compiled, diagnosed, plan_of, solved

RUN = "qwen3_30b_a3b; h100 x 16; seq 4k; batch 1024; throughput first; risk oom; pin ep=16"
ADVICE = "std.cuda_graph_advice.narrow_first"


def noted(text: str) -> list[Diagnostic]:
    return [d for d in diagnosed(text) if d.id == "plan.idle_advice"]


def test_the_pin_that_is_named_fits_at_the_same_step_time() -> None:
    (found,) = noted(RUN)
    assert found.severity == "note" and ADVICE in found.message
    (before,) = compiled(RUN).plans
    (after,) = compiled(f"{RUN}; {found.help[0].split('`')[1]}").plans
    assert before.estimate.memory.verdict == "TIGHT"
    assert after.estimate.memory.verdict == "FITS"
    assert after.estimate.step_time_s <= before.estimate.step_time_s * (1 + 1e-9)


@pytest.mark.parametrize(
    "text",
    [
        f"{RUN}; pin cuda_graph=none",
        f"{RUN}; pin cuda_graph=[attn, moe_router, moe_preprocess]",
        f'{RUN}; allow {ADVICE} because "measured"',
        "qwen3_30b_a3b; h100 x 16; seq 4k; batch 1024; fit first",
        "qwen3_30b_a3b; gb200 x 16; seq 4k; batch 1024; scale first",
    ],
)
def test_nothing_is_said_of(text: str) -> None:
    """What is pinned is the run's own wish, what is allowed counts for nothing, and the others fit."""
    assert noted(text) == []


def test_verdicts_agree() -> None:
    """The quick verdict is the whole one."""
    from moedsl.cost.estimate import FITS, bounds, fits

    for phase in ("fit", "scale", "throughput"):
        for chosen in solved(f"qwen3_30b_a3b; h100 x 16; seq 4k; {phase} first").chosen:
            for row in chosen.solution.rows:
                assert fits(chosen.cost, row.codes) == (bounds(chosen.cost, row.codes).verdict == FITS)


def test_advice_that_the_run_s_own_pins_exclude_names_them() -> None:
    text = "qwen3_30b_a3b; h100 x 64; seq 32k; throughput first; pin pp=2 vpp=1 cp=1 dispatcher=alltoall"
    costs = {a.rule: a.cost for a in plan_of(text).advice}
    assert costs["std.dispatch_advice.deepep_on_nvl8"] == "the run excludes it by dispatcher=alltoall"
    assert costs["std.layout_advice.cp_from_4k_shard"] == "the run excludes it by cp=1"
    assert set(str(costs["std.layout_advice.vpp_with_pp"]).partition(" by ")[2].split(", ")) == {"pp=2", "vpp=1"}
