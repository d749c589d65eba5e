"""A number of GPUs with odd factors is told what a near batch and fewer GPUs would train; `batch near` takes the best."""

import re

import pytest

from tests.helpers import rotation
from tests.helpers.programs import compiled, diagnosed
from tests.helpers.tables import table_of

COUNTS = (32, 36, 48, 60, 64, 68, 72, 96, 128, 144, 160, 288, 512, 576)
RACKS = [72, 36, 48, 60, 68, 96, 144, 160, 576]
RUN = "{}; gb300 x {}; seq 4k; batch {}; throughput first"


def speed(model: str, gpus: int, batch: int | str = 1024) -> float:
    """The tokens a second and GPU of a compile of its own; 0 without a layout."""
    plans = compiled(RUN.format(model, gpus, batch)).plans
    return plans[0].estimate.tokens_per_s_per_gpu if plans else 0.0


@pytest.mark.parametrize("model", rotation.some("uneven models", table_of("planner", "uneven: models"), 1))
@pytest.mark.parametrize("gpus", rotation.some("uneven counts", RACKS, 2))
def test_no_count_is_worse_than_a_smaller_one_without_a_word(model: str, gpus: int) -> None:
    here = speed(model, gpus)
    best = max(speed(model, n) for n in COUNTS if gpus / 2 <= n < gpus)
    found = [d for d in diagnosed(RUN.format(model, gpus, 1024)) if d.id == "plan.fewer_gpus"]
    assert found or not here or best <= 1.1 * here
    for d in found:
        said = re.match(r"`gb300 x (\d+)` trains ([\d.]+)x", d.message)
        assert said
        fewer, gain = said.groups()
        assert float(gain) == pytest.approx(speed(model, int(fewer)) / here, abs=0.006)
        assert [fix.text for fix in d.fixes] == [f"gb300 x {fewer}"]


def test_a_rack_of_72_is_told_of_64_and_of_a_batch_that_divides() -> None:
    found = {d.id: d.message for d in diagnosed(RUN.format("qwen3_30b_a3b", 72, 1024)) if d.severity == "warning"}
    gains = {n: speed("qwen3_30b_a3b", *n) / speed("qwen3_30b_a3b", 72) for n in ((64, 1024), (72, 1152))}
    assert min(gains.values()) > 1.2
    assert f"`gb300 x 64` trains {gains[64, 1024]:.2f}x" in found["plan.fewer_gpus"]
    assert "2 nodes spare" in found["plan.fewer_gpus"]
    assert f"`batch 1152` trains {gains[72, 1152]:.2f}x" in found["plan.uneven_batch"]


def test_batch_near_takes_the_batch_that_trains_most() -> None:
    (plan,) = compiled(RUN.format("qwen3_30b_a3b", 72, "near 1024")).plans
    assert plan.batch.global_batch == 1152
    assert plan.estimate.tokens_per_s_per_gpu == speed("qwen3_30b_a3b", 72, 1152) > 1.25 * speed("qwen3_30b_a3b", 72)
    (d,) = (d for d in diagnosed(RUN.format("qwen3_30b_a3b", 72, "near 1024")) if d.id == "plan.near_batch")
    assert "1152, near 1024" in d.message


def test_phases_of_a_workflow_share_the_near_batch_and_a_sweep_keeps_its_own() -> None:
    text = "qwen3_30b_a3b; gb300 x 72; seq 4k; batch near 1024; "
    assert len({p.batch.global_batch for p in compiled(text + "workflow").plans}) == 1
    swept = compiled(text + "throughput first; sweep micro_batch in 1, 2").plans
    assert {p.batch.global_batch for p in swept} == {1024}


@pytest.mark.parametrize("rest", table_of("planner", "uneven: nothing is said of"))
def test_nothing_is_said_of(rest: str) -> None:
    ids = {d.id for d in diagnosed(f"qwen3_30b_a3b; {rest}")}
    assert not ids & {"plan.fewer_gpus", "plan.near_batch"}
