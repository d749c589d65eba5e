"""Megatron's own state that assumes a GPU: random numbers, the tensors that recompute gives back, compiled helpers."""

from __future__ import annotations

import contextlib
import importlib
from types import SimpleNamespace
from typing import Any

import torch


def adapt() -> None:
    """For the rest of the process."""
    random: Any = importlib.import_module("megatron.core.tensor_parallel.random")
    _generator(random)
    _recompute(random)
    for name in ("megatron.core.datasets.utils", "megatron.bridge.training.initialize"):
        module: Any = importlib.import_module(name)
        module.compile_helpers = lambda: None  # C++ for blended datasets: mock data needs none


def _generator(random: Any) -> None:
    """The generator of CUDA is the CPU's."""
    random._get_cuda_rng_state = lambda *args, **kwargs: torch.get_rng_state()
    random._set_cuda_rng_state = lambda state, *args, **kwargs: torch.set_rng_state(state)


def _recompute(random: Any) -> None:
    """Recompute of single modules (core/tensor_parallel/random.py:725).

    It asks Transformer Engine about FP8 whether or not there is FP8, and gives recomputed tensors back through an
    extension that it compiles on the spot (random.py:40): here their bytes are copied.
    """
    random.FP8GlobalStateManager = SimpleNamespace(is_fp8_enabled=lambda: False, get_fp8_recipe=lambda: None)
    random.activation_recompute_forward = lambda **kwargs: contextlib.nullcontext()
    random.fp8_autocast = lambda **kwargs: contextlib.nullcontext()
    random._get_share_storage = lambda: _give_back


def _give_back(kept: torch.Tensor, recomputed: torch.Tensor) -> None:
    """Below the tensors, as the extension does: autograd sees no change."""
    source = recomputed.untyped_storage()
    kept.untyped_storage().resize_(source.nbytes())
    kept.untyped_storage().copy_(source)
