"""The advice on MiniMax-M2's norm over all heads, held against Bridge's own norm on two ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracles.proven import answers, permits

pytestmark = pytest.mark.bridge


def test_tensor_parallel_ranks_lose_a_part_of_the_gradients(tmp_path: Path) -> None:
    """std.split_norm.whole_gradients"""
    errors = answers("ask_split_norm.py", str(tmp_path))
    for tp in (1, 2):
        assert (errors[f"gradients of {tp}"] < 1e-5) == permits("std.split_norm.whole_gradients", tp=tp)
        assert errors[f"outputs of {tp}"] < 1e-5
    assert errors["gradients of 2"] > 0.01
