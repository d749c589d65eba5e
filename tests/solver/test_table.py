"""Combinations of values are found whatever the size of the values."""

from __future__ import annotations

import numpy as np
import pytest

from moedsl.solver.laws import Table


@pytest.mark.parametrize("largest", [3, 2**40])
@pytest.mark.parametrize("names", [("a", "b", "c"), ("c", "a"), ("b",)])
def test_distinct_rows(largest: int, names: tuple[str, ...]) -> None:
    rng = np.random.default_rng(len(names))
    values = rng.integers(-largest, largest, (4, 4))
    rows = np.stack([values[rng.integers(0, 4, 200), i] for i in range(4)])
    table = Table(dict(zip("abcd", rows, strict=True)), {}, {}).distinct(names)
    each = [tuple(row[n] for n in sorted(names)) for row in table.each()]
    known = [tuple(int(rows["abcd".index(n)][i]) for n in sorted(names)) for i in range(200)]
    assert each == list(dict.fromkeys(known))


def test_no_axis_is_one_row() -> None:
    table = Table({"a": np.array([1, 1])}, {}, {})
    assert table.distinct(()).rows == 1
    assert table.take(np.array([False, False])).distinct(()).rows == 0
