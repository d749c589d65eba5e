"""Prices that are kept: each row is priced once, and has the price that it has alone."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve

from moedsl.cost import Cost, step
from moedsl.cost.rows import FEW, Known, Table
from tests.cost.test_estimate import OF_EACH_KIND, rows
from tests.helpers.cost_models import hardware, model


def table(*values: int) -> Table:
    return Table({"tp": np.array(values), "cp": np.ones(len(values), np.int64)}, np.arange(len(values)))


def test_only_new_rows_are_priced() -> None:
    priced, known = list[int](), Known()

    def price(t: Table) -> np.ndarray:
        priced.extend(t["tp"].tolist())
        return np.stack([t["tp"] * 2.0, t["cp"] * 3.0])

    assert known.prices(table(4, 2, 4), ("tp", "cp"), price).tolist() == [[8, 4, 8], [3, 3, 3]]
    assert known.prices(table(8, 2), ("tp", "cp"), price).tolist() == [[16, 4], [3, 3]]
    assert sorted(priced) == [2, 4, 8]
    many = table(*range(FEW + 1))
    assert known.prices(many, ("tp", "cp"), price).tolist() == known.prices(many, ("tp", "cp"), price).tolist()
    assert len(priced) == 3 + 2 * (FEW + 1), "a large table is priced as one"


@pytest.mark.parametrize("key", OF_EACH_KIND.values(), ids=OF_EACH_KIND)
def test_a_row_that_was_priced_with_others_has_its_own_price(key: str) -> None:
    cost, cols, pick = Cost(model(key), hardware("gb200"), 512, 4096, 2048), rows(60, seed=11), np.random.default_rng(5)
    for _ in range(3):
        at = pick.permutation(60)[:30]
        some = {name: column[at] for name, column in cols.items()}
        fresh = evolve(cost)
        assert cost.time(some).tolist() == fresh.time(some).tolist()
        assert cost.memory(some).tolist() == fresh.memory(some).tolist()
        for case in ("low", "high"):
            assert cost.spare(some, case).tolist() == fresh.spare(some, case).tolist()


def test_the_layers_of_many_rows_are_priced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows repeat them for each pipeline; and in whatever pieces, a row has its price."""
    cost, some, priced = (
        Cost(model("qwen3_30b_a3b"), hardware("gb200"), 512, 4096, 2048),
        rows(600, seed=3),
        list[int](),
    )
    cols = {name: np.tile(column, 4) for name, column in some.items()} | {"pp": np.repeat([1, 2, 4, 8], 600)}
    price = step.microbatch
    monkeypatch.setattr(step, "microbatch", lambda m, hw, t, *more: priced.append(t.rows) or price(m, hw, t, *more))
    whole = cost.time(cols).tolist()
    assert sum(priced) <= 600
    monkeypatch.setattr("moedsl.cost.rows.CHUNK", 500)
    assert cost.time(cols).tolist() == whole
    assert max(priced[1:]) <= 500 and sum(priced[1:]) == priced[0]


POLICIES = [{"recompute": r, "offload": o, "sharding": s} for r in (0, 3, 128) for o in (0, 1) for s in (0, 1)]


@pytest.mark.parametrize("key", OF_EACH_KIND.values(), ids=OF_EACH_KIND)
def test_the_least_memory_on_other_gpus_follows_from_what_is_kept(key: str) -> None:
    """It bounds what each policy needs there, as if nothing were known of other numbers of GPUs."""
    some = {name: column for name, column in rows(60, seed=11).items() if name not in POLICIES[0]}
    costs = [Cost(model(key), hardware("gb200"), gpus, 4096, gpus) for gpus in (512, 640)]
    for cost in costs:
        least = cost.memory(some, policies=POLICIES)
        each = np.array([cost.memory({**some, **policy}) for policy in POLICIES])
        assert np.all(least <= each.min(axis=0))
        one_by_one = np.min([cost.memory(some, policies=[policy]) for policy in POLICIES], axis=0)
        assert np.all(least <= one_by_one)
        finite = np.isfinite(each[0])
        assert np.all(one_by_one[finite] > 0.9 * each.min(axis=0)[finite])
    assert costs[0]._alone is costs[1]._alone
