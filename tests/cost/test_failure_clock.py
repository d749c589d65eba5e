"""The goodput of a plan against months on a clock that draws failures, and the interval that is best there."""

import pytest
from failure_clock import MONTH, Clock, Training, jobs_of, trained
from failure_clock import goodput as clocked_goodput

from moedsl.cost.goodput import Goodput, Local, best_interval
from tests.helpers import rotation

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
RUNS = {
    "rare failures": Training(9.2, 240, 7, 144, 4 * DAY, 15 * MINUTE),
    "16,384 GPUs": Training(0.7, 553, 7, 144, 2.9 * HOUR, 20 * MINUTE),
    "100,000 GPUs": Training(6.5, 23, 7, 96, 29 * MINUTE, 22 * MINUTE),
    "saves that block": Training(5.0, 600, 120, 0, DAY, 10 * MINUTE),
    "a month without failures": Training(5.0, 600, 7, 60, 1e6 * DAY, 10 * MINUTE),
}
NEAR = [(6 * HOUR, 2), (3 * HOUR, 4), (30 * MINUTE, 3)]
"""Times between failures, and how many saves on the nodes there are for each durable one."""


ON_NODES = Training(5, 144, 7, 300, 3 * HOUR, 8 * MINUTE, near=4, near_blocked=2, near_durable=5, in_place=0.6)
IN_JOBS = Training(10, 100, 5, 60, 9 * HOUR, 600, limit=4 * HOUR, lead=10 * MINUTE, start=20 * MINUTE, retries=1)


@pytest.mark.parametrize("how", [*RUNS.values(), ON_NODES, IN_JOBS], ids=[*RUNS, "saves on the nodes", "jobs"])
def test_intervals_that_pass_at_once_end_as_one_by_one(how: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once, jobs = trained(how, 2, seed=6), jobs_of(how, 100_000, seed=6) if how.limit else 0
    monkeypatch.setattr(Clock, "skip", lambda *_: None)
    one_by_one = trained(how, 2, seed=6)
    assert at_once.now == pytest.approx(one_by_one.now, rel=1e-9)
    assert at_once.spent == pytest.approx(one_by_one.spent, rel=1e-9)
    ends = ("step", "safe", "failures", "jobs", "starts", "again")
    assert [getattr(at_once, name) for name in ends] == [getattr(one_by_one, name) for name in ends]
    assert not how.limit or jobs == jobs_of(how, 100_000, seed=6)


def months(how: Training) -> float:
    """As many as have 40,000 failures, at most 120."""
    return min(120, 40_000 * how.mtbf / MONTH)


@pytest.mark.parametrize("name", RUNS)
def test_the_formula_agrees_with_the_clock(name: str) -> None:
    """Within half a point, over 120 months or 40,000 failures; each share of the time too."""
    how = RUNS[name]
    by_formula = Goodput(how.every * how.step, how.blocked, how.durable, how.mtbf, how.back)
    clock = trained(how, months(how), seed=3)
    assert clock.safe * how.step / clock.now == pytest.approx(by_formula.trains, abs=0.005)
    assert clock.spent["saves"] / clock.now == pytest.approx(by_formula.saves, abs=0.005)
    assert clock.spent["returns"] / clock.now == pytest.approx(by_formula.returns, abs=0.005)
    assert clock.failures * how.mtbf / clock.now == pytest.approx(1, abs=0.1) or clock.failures == 0


@pytest.mark.parametrize(
    "share, mtbf, near", rotation.some("saves on the nodes", [(s, *at) for s in (0.0, 0.6, 1.0) for at in NEAR], 1)
)
def test_saves_on_the_nodes_agree_with_the_clock(share: float, mtbf: float, near: int) -> None:
    """Within a point: the formula takes a save as begun and whole at once where a failure is near its end."""
    how = Training(5, 144, 7, 300, mtbf, 8 * MINUTE, near=near, near_blocked=2, near_durable=5, in_place=share)
    local = Local(near, 2, 5, share)
    by_formula = Goodput(how.every * how.step, how.blocked, how.durable, mtbf, how.back, local)
    clock = trained(how, months(how), seed=4)
    assert clock.safe * how.step / clock.now == pytest.approx(by_formula.trains, abs=0.01)
    assert clock.spent["saves"] / clock.now == pytest.approx(by_formula.saves, abs=0.01)
    if not share:
        alone = Goodput(how.every * how.step, 7 + 2 * (near - 1), how.durable, mtbf, how.back)
        assert by_formula.trains == pytest.approx(alone.trains, abs=1e-9)


@pytest.mark.parametrize("name", rotation.some("best interval", [n for n in RUNS if "without" not in n], 1))
def test_no_interval_is_better_on_the_clock(name: str) -> None:
    how = RUNS[name]
    best = best_interval(how.blocked, how.mtbf) / how.step
    kept = {
        times: clocked_goodput(
            Training(how.step, max(1, round(times * best)), how.blocked, 0, how.mtbf, how.back), months(how), 5
        )
        for times in (0.25, 0.5, 0.7, 1, 1.4, 2, 4)
    }
    assert kept[1] > max(kept.values()) - 0.003
    assert kept[1] > max(kept[0.25], kept[4])


def test_a_chain_of_jobs_loses_its_starts_and_its_leads() -> None:
    """Without failures: of each job of 4 hours, the lead; and between jobs, the start."""
    how = Training(10, 100, 5, 60, 1e6 * DAY, 600, limit=4 * HOUR, lead=10 * MINUTE, start=20 * MINUTE)
    clock = trained(how, 12, seed=1)
    share = (4 * HOUR - 10 * MINUTE) / (4 * HOUR - 10 * MINUTE + 65 + 20 * MINUTE)
    assert clock.safe * how.step / clock.now == pytest.approx(share * 1000 / 1005, abs=0.003)
    assert clock.jobs == pytest.approx(12 * 30 * DAY / (4 * HOUR + 20 * MINUTE - 10 * MINUTE + 65), rel=0.01)


def test_a_failure_in_a_chain_returns_to_what_was_saved() -> None:
    """With failures too, no more is kept than without a limit, and the steps only grow."""
    free = RUNS["16,384 GPUs"]
    limited = Training(**{**vars(free), "limit": 4 * HOUR, "lead": 5 * MINUTE, "start": 10 * MINUTE})
    kept, without = clocked_goodput(limited, 60, 2), clocked_goodput(free, 60, 2)
    assert without * (1 - 25 / 240) < kept < without
