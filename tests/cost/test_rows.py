"""Prices of unique rows, brought back to all rows."""

from __future__ import annotations

import numpy as np
import pytest

from moedsl.cost import rows


@pytest.mark.parametrize("unique", [3, 400])
def test_the_largest_over_stages_is_that_of_each_row_alone(unique: int) -> None:
    """Whether rows share many columns of prices or hardly any."""
    dice = np.random.default_rng(0)
    which, at = dice.integers(0, 4, 120), dice.integers(0, unique, 120)
    prices = dice.random((2, 5, unique))
    profiles = [dice.random((stages, 5)) for stages in (1, 2, 7)]
    found = rows.largest(4, lambda kind: profiles[kind] if kind < 3 else None, which, prices, at)
    for i, (kind, column) in enumerate(zip(which, at, strict=True)):
        each = [max(sum(stage * p[:, column]) for stage in profiles[kind]) if kind < 3 else 0.0 for p in prices]
        assert found[:, i] == pytest.approx(each, rel=1e-12)
