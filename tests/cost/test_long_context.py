"""Activations of a long sequence, counted by hand from what Megatron-Core and Transformer Engine save."""

from __future__ import annotations

from typing import Any

import pytest

from moedsl.cost import Cost
from moedsl.facts.axes import BY_NAME
from tests.helpers.cost_models import hardware, model

QWEN: dict[str, Any] = {"tp": 4, "cp": 4, "pp": 4, "vpp": 12, "ep": 32, "recompute": ["moe_act", "layernorm"]}
GRAPHS = ["attn", "moe_router", "moe_preprocess"]


def kept(gpu: str = "gb200", batch: int = 1024, **row: Any) -> float:
    """Saved activations of the first stage of Qwen3-235B at 128k on 256 GPUs, bytes."""
    cost = Cost(model("qwen3_235b_a22b"), hardware(gpu), 256, 131072, batch)
    coded = {**QWEN, "dispatcher": "alltoall", "cuda_graph": [], "precision": "bf16", **row}
    axes = {n: BY_NAME[n].encode(v) if n in BY_NAME and not isinstance(v, int) else v for n, v in coded.items()}
    return cost.memory_report(axes)[0].activations


CHUNKS, LAYERS, TOKENS = 51, 102, 8192
"""2 (pp - 1) + (vpp - 1) pp + 1 chunks of two layers (the first chunk of the embedding has two as well), and a rank's
tokens after CP 4 and TP 4."""


def test_a_layer_keeps_what_its_modules_save() -> None:
    """Two residuals, the norm's output, q k v before and after their norms, the attention output, the permuted input
    of 8 experts a token, both halves of their first product: 1.47 GiB, and what uneven routing adds."""
    residuals, norm = 2 * 4096 * 2, 4096 * 2
    q, kv = 64 * 128, 4 * 128
    attention = norm + 2 * (q + 2 * kv) + 2 * (q + kv) + 2 * q + 4 * 64
    experts = 8 * (2 * 4096 + 4 + 2 * 2 * 1536)
    router = 9 * 128
    layer = TOKENS * (residuals + attention + experts + router)
    uneven = LAYERS / 24**0.5 * 0.1 * TOKENS * experts
    assert layer == pytest.approx(1.472 * 2**30, rel=0.01)
    assert kept() == pytest.approx(LAYERS * layer + uneven, rel=0.005)


def test_the_norm_that_leaves_a_graph_is_kept_whatever_is_recomputed() -> None:
    """core transformer/transformer_layer.py:458: only alltoall's preprocessing keeps it inside."""
    norm = LAYERS * TOKENS * 4096 * 2
    without = {"recompute": ["moe_act"]}
    for dispatcher, graph, freed in (
        ("alltoall", [], norm),
        ("alltoall", GRAPHS, norm),
        ("hybridep", [], norm),
        ("hybridep", GRAPHS, 0),
        ("alltoall", ["moe_router"], 0),
    ):
        row: dict[str, Any] = {"dispatcher": dispatcher, "cuda_graph": graph}
        assert kept(**row, **without) - kept(**row) == pytest.approx(freed, abs=1e6), row


def test_a_graph_copies_the_input_of_a_chunk_and_has_a_mask_for_each_layer() -> None:
    """A mask of a CP rank's tokens times all of them, whole on each TP rank: 4 GiB."""
    row: dict[str, Any] = {"dispatcher": "alltoall"}
    copies = kept(**row, cuda_graph=GRAPHS) - kept(**row)
    mask = 131072 // 4 * 131072
    assert copies == pytest.approx(CHUNKS * TOKENS * 4096 * 2 + LAYERS * mask, rel=1e-6)


def test_four_microbatches_keep_48_chunks() -> None:
    assert kept(batch=16) / kept() == pytest.approx(48 / CHUNKS, rel=0.01)
