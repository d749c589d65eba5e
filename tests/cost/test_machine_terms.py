"""What the machine adds to a roofline: power, hosts, messages that start, ports that are faster than NCCL, stragglers."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from moedsl.cost import Cost, compute
from moedsl.facts.axes import BY_NAME
from tests.helpers.cost_models import hardware, model

ROW = {"ep": 8, "micro_batch": 1, "cuda_graph": 0}
ALLTOALL, HYBRIDEP = (BY_NAME["dispatcher"].encode(w) for w in ("alltoall", "hybridep"))
MOE = 1 << BY_NAME["recompute"].words.index("moe")


def cost(gpu: str = "b200", gpus: int = 64, name: str = "qwen3_30b_a3b", **more: Any) -> Cost:
    return Cost(model(name), hardware(gpu), gpus, 4096, 4096, **more)


def part(cost: Cost, name: str, **row: int) -> float:
    return cost.time_report({**ROW, **row})[name]


def test_the_clock_follows_the_power_of_equal_peaks() -> None:
    assert compute.clock(hardware("gb200")) == compute.clock(hardware("h100")) == 1
    assert 1.05 < compute.clock(hardware("gb300")) < 1.15
    capped = evolve(hardware("gb200"), watts=900.0)
    assert 0.75 < compute.clock(capped) < 0.9


def test_more_exponentials_help_attention_alone() -> None:
    one, two = hardware("gb200"), evolve(hardware("gb200"), exponentials=32.0)
    slow, fast = (Cost(model("qwen3_30b_a3b"), hw, 64, 4096, 4096).work_report(ROW) for hw in (one, two))
    assert fast["attention"] < 0.9 * slow["attention"]
    assert fast["matrix"] == slow["matrix"]


def test_launches_grow_with_the_experts_of_a_rank_under_alltoall() -> None:
    few, many = (part(cost(), "launch", ep=ep, dispatcher=ALLTOALL) for ep in (64, 8))
    assert many > few
    assert part(cost(), "launch", ep=8, dispatcher=HYBRIDEP) < many


def test_a_grace_host_launches_slower() -> None:
    x86, grace = (evolve(hardware("b200"), host=host) for host in ("x86", "grace"))
    slow, fast = (part(evolve(cost(), hardware=hw), "launch", dispatcher=ALLTOALL) for hw in (grace, x86))
    assert slow > fast


def test_recompute_launches_again() -> None:
    without, again = (
        sum(cost().time_report({**ROW, "dispatcher": ALLTOALL, "recompute": r}).values()) for r in (0, MOE)
    )
    assert again > without


def test_recompute_repeats_the_messages_of_what_it_repeats() -> None:
    """Forward has two of the five messages of a block: attention and the shared expert are one each."""
    every = evolve(model("deepseek_v3"), dense_layers=0, mtp_layers=0)
    row = {**ROW, "tp": 2, "pp": 4}
    said = ([], ["shared_experts"], ["moe"], ["moe", "shared_experts"], ["full"], ["moe_act", "core_attn"])
    none, *again = (
        part(
            evolve(cost("gb200"), model=every), "tensor_communication", **row, recompute=BY_NAME["recompute"].encode(r)
        )
        for r in said
    )
    assert [round((seconds / none - 1) * 10, 6) for seconds in again] == [2, 2, 4, 4, 0]


def test_a_faster_port_does_not_make_nccl_faster() -> None:
    """45 GB/s were measured on B200 with ports of 50, and 51 on B300 with ports of 100."""
    b200, b300 = (part(cost(gpu), "expert_communication", ep=64, dispatcher=ALLTOALL) for gpu in ("b200", "b300"))
    assert b200 / b300 == pytest.approx(51 / 45, rel=0.05)
    b200, b300 = (part(cost(gpu), "expert_communication", ep=64, dispatcher=HYBRIDEP) for gpu in ("b200", "b300"))
    assert b200 / b300 > 1.5


def test_a_message_takes_time_to_start() -> None:
    balanced = cost(routing="balanced")
    near = part(balanced, "expert_communication", dispatcher=HYBRIDEP)
    slower = evolve(hardware("b200"), constants=evolve(hardware("b200").constants, exchange_start=1e-3))
    layers, microbatches = 48, 4096 // 64
    more = part(evolve(balanced, hardware=slower), "expert_communication", dispatcher=HYBRIDEP) - near
    assert more == pytest.approx(4 * layers * microbatches * (1e-3 - hardware("b200").constants.exchange_start))


def test_stragglers_grow_with_the_groups_and_shrink_with_microbatches() -> None:
    share = [part(cost(gpus=n), "stragglers") / part(cost(gpus=n), "compute") for n in (8, 64, 512)]
    assert share[0] == 0 < share[1] < share[2]
    larger = evolve(cost(gpus=512), global_batch=65536)
    assert part(larger, "stragglers") / part(larger, "compute") < share[2]
    assert part(cost(gpus=512, routing="balanced"), "stragglers") == 0


def test_a_step_has_a_least_time() -> None:
    small = Cost(model("moonlight_16b"), hardware("h100"), 8, 128, 8)
    assert float(small.time({"ep": 8})[0]) > small.hardware.constants.host_step == part(small, "step_overhead")


def test_a_scan_is_launched_from_python_in_any_precision_unless_a_graph_has_it() -> None:
    none, mamba = (1 << BY_NAME["cuda_graph"].words.index("mamba") if on else 0 for on in (False, True))
    few = Cost(model("nemotron_3_nano"), hardware("h100"), 8, 1024, 64)
    eager, graphed = (few.time_report({**ROW, "cuda_graph": g})["launch"] for g in (none, mamba))
    saved = eager - graphed
    assert saved > 0.5 * 8 * 23 * few.hardware.constants.host_scan
    fp8 = BY_NAME["precision"].encode("fp8_current")
    more = (
        few.time_report({**ROW, "precision": fp8})["launch"]
        - few.time_report({**ROW, "precision": fp8, "cuda_graph": mamba})["launch"]
    )
    assert more < 2 * saved
