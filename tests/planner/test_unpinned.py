"""What a pin costs: the plan of the same program without it, compiled on its own."""

from __future__ import annotations

import pytest

from moedsl.facts.axes import show
from moedsl.planner.page import page_text
from moedsl.planner.report import page
from tests.helpers import rotation
from tests.helpers.programs import compiled, solved

PROGRAMS = {
    "qwen3_30b_a3b; h100 x 16; throughput first": ("tp=2", "ep=4"),
    "deepseek_v3; gb200 x 192; throughput first": ("pp=4", "dispatcher=alltoall", "recompute=full"),
    "qwen3_235b_a22b; gb200 x 64; seq 32k; fit first": ("cp=8", "recompute=full", "micro_batch=1"),
    "olmoe_7b; h100 x 8; scale first": ("pp=1", "offload=none"),
}


@pytest.mark.parametrize("head", rotation.some("pinned", [*PROGRAMS], 2))
def test_a_pin_has_the_price_of_its_absence(head: str) -> None:
    pins = PROGRAMS[head]
    (plan,) = compiled(f"{head}; pin {' '.join(pins)}").plans
    decisions = {d.name: d for d in plan.decisions}
    for pin in pins:
        name = pin.split("=")[0]
        rest = " ".join(p for p in pins if p != pin)
        (free,) = solved(f"{head}; pin {rest}").chosen
        row = free.solution.rows[0]
        value = row.layout[name]
        mine = decisions[name]
        assert mine.origin == "pinned"
        if value == mine.value:
            assert not mine.alternatives
            continue
        (other,) = mine.alternatives
        assert other.value == value
        assert other.step_time == pytest.approx(row.step_time / plan.estimate.step_time_s - 1)
        assert f"without the pin {show(value)}, {other.effect}" in page([plan])


def test_what_a_run_varies_or_learns_from_has_no_price() -> None:
    """The value of a sweep is compared in its table, and another number format is another experiment."""
    result = compiled("qwen3_30b_a3b; h100 x 16; throughput first; sweep tp in 1, 2; pin moments=bf16")
    for plan in result.plans:
        assert not [d for d in plan.decisions if d.origin == "pinned" and d.alternatives]


def test_a_page_names_the_pins_that_cost() -> None:
    result = compiled("qwen3_30b_a3b; h100 x 16; throughput first; pin dispatcher=alltoall ep=16")
    text = page_text(result.plans[0], (), (), 100)
    _, _, below = text.partition("Pinned, each with the value that the run would choose without that pin\n")
    assert below.startswith("  dispatcher alltoall         hybridep is -")
