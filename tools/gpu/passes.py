"""Passes over memory: a norm with its residual, the activation of experts, and casts to 8 and 4 bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import torch
from torch.nn import functional

from gpu.case import MEGATRON, TE, TORCH, Case
from gpu.engine import engine, quantizer, recipes
from gpu.timing import FORWARD, Bench, Times

WIDTHS = (2048, 4096, 7168)
TOKENS = 16384


def cases(bench: Bench) -> Iterator[Case]:
    """List the passes for each width."""
    te, act = engine(bench), activation(bench)
    tokens = 32 if bench.quick else TOKENS
    for width in (64,) if bench.quick else WIDTHS:
        yield Case("norm", {"hidden": width, "tokens": tokens}, "bf16", TE if te else TORCH, _norm(te, width, tokens))
        run = _activation(act or plain, width, tokens)
        yield Case("swiglu", {"expert_hidden": width, "tokens": tokens}, "bf16", MEGATRON if act else TORCH, run)
        for precision, recipe in recipes(te).items():
            if recipe:
                yield Case("cast", {"hidden": width, "tokens": tokens}, precision, TE, _cast(recipe, width, tokens))


def activation(bench: Bench) -> Callable[..., Any] | None:
    """Import Megatron's fused activation of experts; None, with the reason said, where it cannot be imported."""
    if not bench.cuda:
        return None
    try:
        return import_module("megatron.core.fusions.fused_bias_swiglu").weighted_bias_swiglu_impl
    except ImportError as error:
        bench.say(f"passes: Megatron-Core cannot be imported ({error}); PyTorch's activation is not compared")
        return None


def plain(x: torch.Tensor, bias: None, weights: torch.Tensor) -> torch.Tensor:
    """Run SwiGLU with the weights of the router, with PyTorch."""
    gate, up = x.chunk(2, dim=-1)
    return (functional.silu(gate) * up * weights).to(x.dtype)


def _norm(te: Any, width: int, tokens: int) -> Any:
    def run(bench: Bench) -> dict[str, Times]:
        x, residual = bench.random(tokens, width, learned=True), bench.random(tokens, width, learned=True)
        weight = bench.random(width, learned=True)
        norm = (
            te.RMSNorm(width, dtype=torch.bfloat16, device=bench.device)
            if te
            else lambda y: functional.rms_norm(y, (width,), weight)
        )

        def forward() -> tuple[torch.Tensor, torch.Tensor]:
            added = x + residual
            return added, norm(added)

        return bench.both(forward, (x, residual, weight))

    return run


def _activation(act: Callable[..., Any], width: int, tokens: int) -> Any:
    def run(bench: Bench) -> dict[str, Times]:
        x = bench.random(tokens, 2 * width, learned=True)
        weights = torch.rand(tokens, 1, device=bench.device, requires_grad=True)
        return bench.both(lambda: (act(x, None, weights),), (x, weights))

    return run


def _cast(recipe: Any, width: int, tokens: int) -> Any:
    def run(bench: Bench) -> dict[str, Times]:
        x, cast = bench.random(tokens, width), quantizer(recipe)
        return {FORWARD: bench.time(lambda: cast(x))}

    return run
