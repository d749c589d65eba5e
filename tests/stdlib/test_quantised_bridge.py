"""The law on the tokens of a quantised product, held against the forward passes of Transformer Engine's linear layers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracles.proven import answers, derived, permits

pytestmark = pytest.mark.bridge
RULE = "std.precision.quantised_tokens"


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    return answers("ask_quantised.py")


def permitted(case: str) -> bool:
    precision, tokens, ranks = case.split()[-3:]
    rows = derived("std.precision.quantised_rows", precision=precision)
    values = {"micro_batch": 1, "seq": int(tokens), "cp": 1, "tp": int(ranks), "quantised_rows": rows}
    return permits(RULE, precision=precision, **values)


@pytest.mark.parametrize("layers", ["linear", "normed"])
def test_a_shard_is_quantised_before_it_is_gathered(layers: str, said: dict[str, Any]) -> None:
    """std.precision.quantised_tokens, of column-parallel layers, of duplicated ones, and of those with their norm."""
    for case, answer in said[layers].items():
        assert permitted(case) == (answer == "ok"), (case, answer)
    verdicts = {answer.split(":")[0] for answer in said[layers].values()}
    assert verdicts == {"ok", "ValueError"}


def test_a_shard_of_fp8_is_checked_before_any_communication(said: dict[str, Any]) -> None:
    """Shards of 3,000 tokens over 2 ranks, and of 25,000 over 8."""
    for tokens, ranks in ((3000, 2), (25000, 8)):
        assert "divisible by 8" in said["linear"][f"column fp8_blockwise {tokens} {ranks}"]
