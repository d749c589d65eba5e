"""Checkpoints and failures against published figures, and against the formulas of Young and Daly."""

import math

import pytest

from moedsl.cost import goodput
from moedsl.cost.goodput import Goodput, Local, best_interval
from moedsl.cost.memory import Trained
from moedsl.facts.fine_tuning import Adapter
from tests.helpers.cost_models import hardware, model

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


@pytest.mark.parametrize("mtbf, published", [(24 * HOUR, 117), (6 * HOUR, 57), (15 * MINUTE, 9.1)])
def test_the_interval_is_daly_s(mtbf: float, published: float) -> None:
    """Daly (FGCS 2006) prints these minutes for checkpoints of 5 minutes."""
    assert best_interval(5 * MINUTE, mtbf) / MINUTE == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize("blocked", [0.1, 7.0, 60.0])
def test_for_rare_failures_it_is_young_s(blocked: float) -> None:
    assert best_interval(blocked, 1e4 * blocked) == pytest.approx(math.sqrt(2 * blocked * 1e4 * blocked), rel=0.01)


@pytest.mark.parametrize("blocked", [33.0, 40.0, 1e9])
def test_where_checkpoints_block_for_longer_than_a_job_lives_it_is_the_life(blocked: float) -> None:
    assert best_interval(blocked * HOUR, HOUR) == pytest.approx(HOUR)


@pytest.mark.parametrize("mtbf", [10 * MINUTE, 3 * HOUR, 4 * DAY])
@pytest.mark.parametrize("blocked", [1.0, 60.0])
def test_no_other_interval_keeps_more(mtbf: float, blocked: float) -> None:
    best = best_interval(blocked, mtbf)
    most = Goodput(best, blocked, 30.0, mtbf, 600.0).trains
    for other in (0.5, 0.9, 1.1, 2.0):
        assert Goodput(best * other, blocked, 30.0, mtbf, 600.0).trains < most


@pytest.mark.parametrize("local", [None, Local(4, 1.0, 1.0, 0.5)])
def test_where_nothing_can_be_trained_the_share_is_none(local: Local | None) -> None:
    """Intervals and returns of years, with a failure every minute."""
    for interval, returns in ((1e9, 600.0), (60.0, 1e9)):
        assert Goodput(interval, 7.0, 60.0, MINUTE, returns, local).trains == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("gpus, hours", [(16_384, 1.8), (131_072, 0.23)])
def test_the_time_between_failures_is_that_of_rsc_1(gpus: int, hours: float) -> None:
    """arXiv:2410.21680: 6.5 failures in 1,000 days of a node with 8 GPUs, and what they project from it."""
    assert goodput.mtbf(gpus, 8 * 1000 / 6.5 * DAY) / HOUR == pytest.approx(hours, rel=0.03)


def test_the_stated_rate_is_that_of_llama_3() -> None:
    """arXiv:2407.21783 Table 5: 419 unexpected interruptions in 54 days on up to 16,384 H100."""
    assert 54 * DAY / goodput.mtbf(16_384, hardware("h100").constants.gpu_mtbf) == pytest.approx(419, rel=0.1)


def test_llama_3_trains_as_published() -> None:
    """More than 90% of the time, on a file system of 2 TB/s. The stated restart is that of a requeued job, which takes
    longer than theirs: 4 points."""
    h, gpus, nbytes = hardware("h100"), 16_384, 14 * 405e9
    write = nbytes / goodput.write_rate(h, gpus, 2e12)
    stops = goodput.blocked(h, gpus, nbytes, write, True, h.constants.save_start)
    mtbf = 54 * DAY / 419
    g = Goodput(best_interval(stops, mtbf), stops, write, mtbf, goodput.back(h.constants, gpus) + write)
    assert 0.86 < g.trains < 0.95
    warm = Goodput(g.interval, stops, write, mtbf, 70 + 65 + write)
    assert warm.trains > 0.90  # detection and a hot update as ByteRobust has them


@pytest.mark.parametrize("stall, effective", [(10 * MINUTE, 0.44), (3 * MINUTE, 0.80)])
def test_100_000_gpus_train_as_published(stall: float, effective: float) -> None:
    """arXiv:2602.00277: a failure every 18 minutes, stalls of 10 and of 3 minutes, 44% and 80% effective."""
    for blocked in (1.0, 20.0):
        g = Goodput(best_interval(blocked, 18 * MINUTE), blocked, 0.0, 18 * MINUTE, stall)
        assert g.trains == pytest.approx(effective, abs=0.12)


def test_a_checkpoint_of_405b_is_written_as_published() -> None:
    """ByteCheckpoint (arXiv:2407.20143) Table 8: 51 s on 8,960 GPUs."""
    assert 14 * 405e9 / goodput.write_rate(hardware("h100"), 8_960) == pytest.approx(51, rel=0.15)


@pytest.mark.parametrize("parameters, gib", [(8e9, 105), (70e9, 912), (405e9, 5288)])
def test_bytes_of_a_parameter_are_those_of_mlperf_storage(parameters: float, gib: float) -> None:
    """Its table of checkpoints with Adam; the figures are GiB."""
    size = goodput.size(model("qwen3_30b_a3b"), Trained())
    assert size.total / size.parameters * parameters / 2**30 == pytest.approx(gib, rel=0.01)


def test_what_is_not_trained_has_no_state() -> None:
    m = model("qwen3_vl_30b_a3b")
    every, tower = goodput.size(m, Trained()), goodput.size(m, Trained(language=False, projection=False))
    assert every.parameters == tower.parameters and every.weights == tower.weights
    assert 0.005 * every.optimizer < tower.optimizer < 0.05 * every.optimizer
    assert goodput.size(m, Trained(), state=False).total == every.weights
    assert goodput.size(m, Trained(), fsdp=True).total / every.parameters == 12
    assert goodput.size(m, Trained(), "dist_muon").total / every.parameters == 10


def test_an_adapter_is_saved_alone() -> None:
    m = model("qwen3_30b_a3b")
    adapter = Adapter("lora", 8, 16, 0.0, frozenset({"linear_qkv"}), "none")
    assert goodput.size(m, Trained(language=False, adapter=adapter)).total < 1e-3 * 14 * 30e9
