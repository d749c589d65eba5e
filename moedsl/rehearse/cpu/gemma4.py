"""Build the layers of Gemma 4, with PyTorch in place of Transformer Engine."""

from __future__ import annotations

import importlib
from copy import copy
from functools import partial
from typing import Any

from megatron.core.tensor_parallel import RowParallelLinear
from torch import Tensor

from moedsl.rehearse.cpu.modules import Attention, norm


def layer(spec: Any) -> None:
    """Build the layer of bridge models/gemma/modeling_gemma4.py:1517."""
    bridge = importlib.import_module("megatron.bridge.models.gemma.modeling_gemma4")
    spec.module = bridge.Gemma4TransformerLayer
    attention, experts = spec.submodules.self_attention, copy(spec.submodules.mlp.keywords["submodules"])
    attention.module = bridge.Gemma4SelfAttention
    attention.submodules.core_attention, attention.submodules.linear_proj = _Core, _NormedRow
    experts.router = bridge.Gemma4TopKRouter
    spec.submodules.mlp = partial(bridge.Gemma4MoELayer, submodules=experts)


class _Core(Attention):
    """Attention with a window in layers that are not full: the same file, :1726."""

    def __init__(self, config: Any, layer_number: int, *words: Any, **named: Any) -> None:
        own, windowed = copy(config), layer_number % sum(config.interleaved_attn_pattern) > 0
        own.window_size = (config.window_size - 1, 0) if windowed else None
        super().__init__(own, layer_number, *words, **named)


class _NormedRow(RowParallelLinear):
    """A row-parallel linear and a norm of its output: bridge models/common/te_layers.py:26."""

    def __init__(self, inputs: int, outputs: int, *, config: Any, **more: Any) -> None:
        super().__init__(inputs, outputs, config=config, **more)
        self.post_layernorm = norm(config, outputs, config.layernorm_epsilon)

    def forward(self, input_: Tensor) -> Any:
        output, bias = super().forward(input_)
        return self.post_layernorm(output), bias
