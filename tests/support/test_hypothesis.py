"""How Hypothesis runs in these tests."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st


@settings(max_examples=1)
@given(st.just(0.3))
def test_an_example_may_take_as_long_as_a_busy_machine_makes_it(seconds: float) -> None:
    """Hypothesis alone would fail a test whose example takes 0.2 s, or which draws its examples for a second."""
    time.sleep(seconds)
