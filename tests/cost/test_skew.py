"""How full the fullest rank of an expert group is under natural routing."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve

from moedsl.cost import Cost
from moedsl.cost.communication import Skew
from moedsl.cost.rows import Table
from moedsl.solver.problem import lower
from moedsl.solver.solve import make_cost
from tests.helpers.cost_models import hardware, model
from tests.helpers.programs import compiled

RANKS = np.array([1, 2, 8, 32, 128])
WHOLE = np.zeros(len(RANKS), np.int64)


def fullest(spread: float, captured: bool = False, balanced: float = 1.0) -> list[float]:
    t = Table({"ep": RANKS, "captured": WHOLE + captured}, np.arange(len(RANKS)))
    return [float(x) for x in Skew(balanced, spread, 1.5).fullest(model("qwen3_30b_a3b"), t)]


def test_one_rank_has_all_tokens_and_more_ranks_a_fuller_one() -> None:
    found = fullest(0.2)
    assert found[0] == 1 and found == sorted(found)
    assert 1.2 < found[2] < 1.6


def test_forced_balance_has_none() -> None:
    assert fullest(0.0) == [1.0] * len(RANKS)


def test_a_router_that_training_balances_has_one_skew() -> None:
    assert fullest(0.0, balanced=1.4) == [1.4] * len(RANKS)


def test_no_rank_has_more_than_all_tokens() -> None:
    """All choices of a token are different experts, so a rank with fewer experts than choices has a share of them."""
    assert fullest(1.0)[1] <= 2
    assert max(fullest(50.0)) == 128 / 8


def test_a_captured_iteration_stays_within_its_capacity() -> None:
    assert max(fullest(1.0, captured=True)) == 1.5
    assert fullest(1.0, captured=True)[0] == 1


@pytest.mark.parametrize(("said", "balanced"), [("", False), ('"none"', False), ('"aux_loss"', True)])
def test_a_run_may_balance_the_router(said: str, balanced: bool) -> None:
    more = f"set model.moe_router_load_balancing_type = {said}; " if said else ""
    run = compiled(f"gpt_oss_20b; h100 x 8; throughput first; {more}pin tp=1 cp=1 pp=1 ep=8").programs[0]
    assert make_cost(lower(run, 8)).model.router_balanced is balanced


def test_a_balanced_router_is_faster() -> None:
    free = Cost(model("gpt_oss_20b"), hardware("h100"), 8, 4096, 128)
    balanced = evolve(free, model=evolve(free.model, router_balanced=True))
    row = {"ep": 8, "micro_batch": 1}
    assert balanced.time(row)[0] < 0.9 * free.time(row)[0]
    assert evolve(free, routing="balanced").time(row)[0] < balanced.time(row)[0]
