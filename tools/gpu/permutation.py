"""Permutation of tokens to their experts and back, forward and backward: four passes of the alltoall dispatcher.

Tokens are sorted by expert before the exchange and by local expert after it; their results go the same way back (core
transformer/moe/token_dispatcher.py:600-830). The exchange itself needs several GPUs and is not measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from gpu.case import TE, TORCH, Case
from gpu.engine import engine
from gpu.timing import Bench, Times

MODELS = ((2048, 128, 8), (4096, 128, 8), (7168, 256, 8), (2880, 128, 4))
"""Hidden size, experts and experts of a token: Qwen3-30B, Qwen3-235B, DeepSeek-V3, GPT-OSS."""
TOKENS, RANKS = (4096, 16384), 8
"""Tokens, and ranks of the expert group."""


def cases(bench: Bench) -> Iterator[Case]:
    """List the shapes."""
    te = engine(bench)
    for hidden, experts, topk in ((32, 16, 2),) if bench.quick else MODELS:
        for tokens in (32,) if bench.quick else TOKENS:
            shape = {"hidden": hidden, "experts": experts, "topk": topk, "tokens": tokens}
            yield Case("permutation", shape, "bf16", TE if te else TORCH, _run(te, shape))


def _run(te: Any, shape: dict[str, int]) -> Any:
    experts, topk, tokens = shape["experts"], shape["topk"], shape["tokens"]

    def run(bench: Bench) -> dict[str, Times]:
        x = bench.random(tokens, shape["hidden"], learned=True)
        scores = torch.rand(tokens, experts, device=bench.device)
        chosen = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, scores.topk(topk).indices, True)
        if not te:
            return bench.both(lambda: (back(sent(x, chosen, topk), chosen, topk),), (x,))
        probs = (scores * chosen).requires_grad_()
        sizes = torch.bincount(chosen.nonzero()[:, 1], minlength=experts)
        order = torch.arange(experts, device=bench.device).view(RANKS, -1).T.ravel()
        restored, sizes_after = order.argsort(), sizes[order]

        def forward() -> tuple[torch.Tensor, torch.Tensor]:
            out, weights, rows = te.moe_permute_with_probs(x, probs, chosen, tokens * topk)
            out, weights = te.moe_sort_chunks_by_index_with_probs(out, weights, sizes, order)
            out = te.moe_sort_chunks_by_index(out, sizes_after, restored)
            return te.moe_unpermute(out, rows, restore_shape=x.shape), weights

        return bench.both(forward, (x, probs))

    return run


def sent(x: torch.Tensor, chosen: torch.Tensor, topk: int) -> torch.Tensor:
    """Copy each token to its experts, sorted by expert, with PyTorch."""
    return x.index_select(0, _rows(chosen, topk))


def back(x: torch.Tensor, chosen: torch.Tensor, topk: int) -> torch.Tensor:
    """Add the results of a token's experts, with PyTorch."""
    return x.new_zeros(len(chosen), x.shape[1]).index_add(0, _rows(chosen, topk), x)


def _rows(chosen: torch.Tensor, topk: int) -> torch.Tensor:
    """Return the token of each routed row, by expert; its length is known, so the host need not wait for it."""
    flat = chosen.T.reshape(-1).to(torch.int8).argsort(descending=True, stable=True)
    return flat[: len(chosen) * topk] % len(chosen)
