"""Grouped products of a layer's experts: both linears, forward and backward.

Megatron runs them as Transformer Engine's GroupedLinear (core transformer/moe/experts.py:182) and adds the gradients of
the weights to an FP32 buffer (core extensions/transformer_engine.py:2230). The activation between them is in `passes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from gpu.case import TE, TORCH, Case
from gpu.engine import engine, recipes
from gpu.timing import Bench, Times

EXPERTS = ((2048, 768), (2048, 1408), (4096, 1536), (2880, 2880), (7168, 2048))
"""Hidden size and width of an expert: Qwen3-30B, Moonlight, Qwen3-235B, GPT-OSS, DeepSeek-V3."""
SIZES = ((8, 64), (8, 128), (8, 256), (8, 512), (8, 1024), (8, 4096), (2, 1024), (32, 1024))
"""Local experts, and tokens of each."""


def cases(bench: Bench) -> Iterator[Case]:
    """List the shapes in every precision."""
    te = engine(bench)
    for hidden, width in ((64, 32),) if bench.quick else EXPERTS:
        for local, each in ((2, 16),) if bench.quick else SIZES:
            shape = {"hidden": hidden, "expert_hidden": width, "local_experts": local, "tokens": local * each}
            for precision, recipe in recipes(te).items():
                yield Case("experts", shape, precision, TE if te else TORCH, _run(te, recipe, shape))


def _run(te: Any, recipe: Any, shape: dict[str, int]) -> Any:
    def run(bench: Bench) -> dict[str, Times]:
        local, tokens = shape["local_experts"], shape["tokens"]
        hidden, width = shape["hidden"], shape["expert_hidden"]
        first, second = bench.random(tokens, hidden, learned=True), bench.random(tokens, width, learned=True)
        splits = [tokens // local] * local
        if te:
            up, down = (linear(te, local, *sizes, bench.device) for sizes in ((hidden, 2 * width), (width, hidden)))
            with te.autocast(enabled=recipe is not None, recipe=recipe):
                return bench.both(lambda: (up(first, splits), down(second, splits)), (first, second))
        up, down = (
            bench.random(local, 2 * width, hidden, learned=True),
            bench.random(local, hidden, width, learned=True),
        )
        learned = (first, second, up, down)
        return bench.both(lambda: (grouped(first, up, splits), grouped(second, down, splits)), learned)

    return run


def linear(te: Any, experts: int, given: int, made: int, device: torch.device) -> Any:
    """Make a grouped linear that keeps its quantised weights and adds their gradients to an FP32 buffer."""
    layer = te.GroupedLinear(
        experts, given, made, bias=False, params_dtype=torch.bfloat16, fuse_wgrad_accumulation=True, device=device
    )
    for weight in layer.parameters():
        weight.main_grad = torch.zeros_like(weight, dtype=torch.float32)
    seen = list[bool]()

    def call(x: torch.Tensor, splits: list[int]) -> torch.Tensor:
        out = layer(x, splits, is_first_microbatch=not seen)
        seen.append(True)
        return out

    return call


def grouped(x: torch.Tensor, weights: torch.Tensor, splits: Sequence[int]) -> torch.Tensor:
    """Multiply each expert's rows by its matrix, with PyTorch."""
    ends = torch.tensor(splits, device=x.device).cumsum(0, dtype=torch.int32)
    return torch.nn.functional.grouped_mm(x, weights.transpose(1, 2), offs=ends)
