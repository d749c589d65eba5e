"""The laws on the tokens and the widths of a quantised product, held against the forward passes of Transformer Engine's linear layers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracles.proven import answers, derived, permits

pytestmark = pytest.mark.bridge
RULE = "std.precision.quantised_tokens"
DENSE = "std.precision.quantised_dense"


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
    for case, answer in ((c, a) for c, a in said[layers].items() if not c.startswith("row")):
        assert permitted(case) == (answer == "ok"), (case, answer)
    verdicts = {answer.split(":")[0] for answer in said[layers].values()}
    assert verdicts == {"ok", "ValueError"}


def test_a_shard_of_fp8_is_checked_before_any_communication(said: dict[str, Any]) -> None:
    """Shards of 3,000 tokens over 2 ranks, and of 25,000 over 8."""
    for tokens, ranks in ((3000, 2), (25000, 8)):
        assert "divisible by 8" in said["linear"][f"column fp8_blockwise {tokens} {ranks}"]


def test_a_share_of_a_dense_layer_is_whole_blocks(said: dict[str, Any]) -> None:
    """std.precision.quantised_dense, of the second of two dense layers: the first may be in BF16."""
    rows = {tuple(case.split()[1:]): answer for case, answer in said["linear"].items() if case.startswith("row")}
    assert {answer.split(":")[0] for answer in rows.values()} == {"ok", "ValueError"}
    for (precision, width, ranks), answer in rows.items():
        values = {"dense_layers": 2, "mtp_dense": False, "ffn_hidden": int(width), "tp": int(ranks)}
        columns = derived("std.precision.quantised_columns", precision=precision)
        may = permits(DENSE, precision=precision, quantised_columns=columns, **values)
        assert may == (answer == "ok"), (precision, width, ranks, answer)
