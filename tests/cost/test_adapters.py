"""The launches of adapters: each has its own, and collectives over TP and, where experts share it, over EP."""

from __future__ import annotations

from typing import Any

import pytest

from moedsl.cost import Cost
from moedsl.facts.axes import BY_NAME, CUDA_GRAPH
from moedsl.facts.fine_tuning import Adapter
from moedsl.runs.measured_runs import Measured, read
from moedsl.support.resources import stdlib_dir
from tests.helpers.cost_models import hardware, model

H100 = hardware("h100")
K = H100.constants
LAYERS, MICROBATCHES = 48, 64
ROW = {"ep": 8, "tp": 1, "micro_batch": 1, "dispatcher": BY_NAME["dispatcher"].encode("alltoall")}
FC1 = frozenset({"linear_fc1"})


def launched(adapter: Adapter | None, **row: int) -> float:
    """Seconds of launches in a layer and microbatch beyond those of no adapter."""
    asked: dict[str, Any] = {**ROW, **row}
    cost = Cost(model("qwen3_30b_a3b"), H100, 8, 256, 8 * MICROBATCHES // asked["tp"], adapter=adapter)
    report = cost.time_report(asked)
    return sum(report.values()) / LAYERS / MICROBATCHES


def lora(*targets: str, experts: str = "shared") -> Adapter:
    return Adapter("lora", 8, 16, 0.0, frozenset(targets), experts)


def more(a: Adapter, b: Adapter, **row: int) -> float:
    return launched(a, **row) - launched(b, **row)


def test_an_adapter_has_launches_of_its_own() -> None:
    one, two = lora("linear_qkv"), lora("linear_qkv", "linear_proj")
    assert more(two, one) == pytest.approx(K.host_adapter, rel=0.01)
    assert more(two, one, cuda_graph=1 << CUDA_GRAPH.index("full_iteration")) < 0.1 * K.host_adapter


@pytest.mark.parametrize(("target", "collectives"), [("linear_qkv", 2), ("linear_proj", 4)])
def test_tensor_parallelism_adds_collectives(target: str, collectives: int) -> None:
    base = lora("linear_qkv", "linear_proj")
    other = "linear_proj" if target == "linear_qkv" else "linear_qkv"
    assert more(base, lora(other), tp=2) == pytest.approx(K.host_adapter + collectives * K.host_collective, rel=0.02)


@pytest.mark.parametrize(("experts", "collectives"), [("shared", 2), ("outer", 1), ("each", 0)])
def test_expert_parallelism_sums_the_gradients_that_experts_share(experts: str, collectives: int) -> None:
    some, none = lora("linear_qkv", "linear_fc1", experts=experts), lora("linear_qkv")
    assert more(some, none) == pytest.approx(K.host_adapter + collectives * K.host_collective, rel=0.02)


@pytest.fixture(scope="module")
def measured() -> dict[str, Measured]:
    _, runs, found = read(stdlib_dir() / "calibration" / "adapters.jsonl")
    assert not found
    return {r.id: r for r in runs}


def slower(r: Measured) -> float:
    return r.predicted() / (r.tokens or 0)


def test_the_row_that_taught_the_collectives_is_explained(measured: dict[str, Measured]) -> None:
    assert slower(measured["m0333"]) == pytest.approx(1, abs=0.02)


def test_rows_left_out_are_not_overshot(measured: dict[str, Measured]) -> None:
    """Before collectives were counted, the worst was 4.1."""
    left = [slower(r) for name, r in measured.items() if name != "m0333"]
    assert min(left) > 1 and max(left) < 1.9


def test_the_gpu_does_not_decide_where_the_host_launches(measured: dict[str, Measured]) -> None:
    """Nemotron 3.5 Lightning takes as long on GB200 as on H100."""
    h100, gb200 = slower(measured["m0321"]), slower(measured["m0322"])
    assert gb200 == pytest.approx(h100, rel=0.1)
