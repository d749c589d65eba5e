"""Build attention whose layers with a window have another shape, with PyTorch in place of Transformer Engine."""

from __future__ import annotations

import importlib
from copy import copy
from typing import Any

from torch import Tensor

from moedsl.rehearse.cpu.modules import Attention


def of_two_shapes(spec: Any) -> None:
    """Build the attention of bridge models/mimo_v2_flash/modeling_mimo_v2_flash.py:294."""
    attention = spec.submodules.self_attention
    bridge = importlib.import_module("megatron.bridge.models.mimo_v2_flash.modeling_mimo_v2_flash")
    attention.module = bridge.MiMoV2FlashSelfAttention
    attention.submodules.core_attention = _Core


class _Core(Attention):
    """Attention with a window and sinks in some layers, and scaled values in each: the same file, :230."""

    def __init__(self, config: Any, layer_number: int, *words: Any, **named: Any) -> None:
        own, windowed = copy(config), config.hybrid_attention_pattern[layer_number - 1] == 1
        own.window_size = (config.window_size - 1, 0) if windowed else None
        own.softmax_type = "learnable" if windowed else "vanilla"
        super().__init__(own, layer_number, *words, **named)
        self.value_scale: float | None = config.attention_value_scale

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *words: Any, **named: Any) -> Tensor:
        scaled = value if self.value_scale is None else value * self.value_scale
        return super().forward(query, key, scaled, *words, **named)
