"""Replace modules of Transformer Engine by PyTorch: a norm, core attention, a duplicated linear, and grouped experts.

Megatron-Core's local norm refuses sequence parallelism (core/transformer/torch_norm.py:45), and its local attention
refuses context parallelism and latent attention (core/transformer/dot_product_attention.py:60). Parameters have the
shapes and names of the real ones.

Experts are one matrix product each. Everything around it, with the recompute of the activation, is Megatron-Core's
TEGroupedMLP (core/transformer/moe/experts.py:182), whose linears are built as in
core/extensions/transformer_engine.py:2612.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from megatron.core.tensor_parallel import ColumnParallelLinear, gather_from_sequence_parallel_region
from megatron.core.tensor_parallel.random import (
    get_cuda_rng_tracker,
    get_data_parallel_rng_tracker_name,
    get_expert_parallel_rng_tracker_name,
)
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.utils import is_layer_window_attention
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import linear


def norm(config: Any, hidden_size: int, eps: float = 1e-5, **_: object) -> torch.nn.Module:
    """RMSNorm or LayerNorm; its gradients are summed over TP if sequence parallelism splits its input."""
    kinds = {"RMSNorm": torch.nn.RMSNorm, "LayerNorm": torch.nn.LayerNorm}
    module = kinds[config.normalization](hidden_size, eps=eps, dtype=config.params_dtype)
    for parameter in module.parameters():
        parameter.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
    return module


class Norm:
    """`norm` as a class: Megatron-Core calls no function to build a module (core transformer/spec_utils.py:86)."""

    def __new__(cls, *words: Any, **named: Any) -> Any:
        return norm(*words, **named)


class Attention(MegatronModule):
    """Causal attention of local queries over the keys and values of the whole context-parallel group.

    Inputs are [sequence, batch, heads, width] of this rank, the output [sequence, batch, heads x value width].
    """

    def __init__(
        self,
        config: Any,
        layer_number: int,
        attn_mask_type: Any,
        attention_type: str,
        attention_dropout: float | None = None,
        softmax_scale: float | None = None,
        cp_comm_type: str | None = None,
        pg_collection: Any = None,
        **_: object,
    ) -> None:
        super().__init__(config=config)
        self.scale, self.group = softmax_scale, pg_collection.cp
        windowed = is_layer_window_attention(config.window_size, config.window_attn_skip_freq, layer_number)
        self.window = config.window_size[0] if windowed else None
        self.softmax_offset: Tensor | None = None
        if config.softmax_type == "learnable":
            heads = config.num_attention_heads // pg_collection.tp.size()
            self.softmax_offset = torch.nn.Parameter(torch.zeros(heads, dtype=config.params_dtype))

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        attn_mask_type: Any = None,
        attention_bias: Tensor | None = None,
        packed_seq_params: Any = None,
    ) -> Tensor:
        parts = self.group.size()
        rows, columns = _positions(parts, self.group.rank(), query.size(0)), _all_positions(parts, query.size(0))
        if parts > 1:
            key, value = (gather_from_sequence_parallel_region(x, group=self.group) for x in (key, value))
        copies = query.size(2) // key.size(2)
        key, value = (x.repeat_interleave(copies, dim=2) for x in (key, value))
        scale = self.scale or 1 / math.sqrt(query.size(-1))
        scores = torch.einsum("qbhd,kbhd->bhqk", query, key) * scale
        distance = rows[:, None] - columns[None, :]
        hidden = distance < 0 if self.window is None else (distance < 0) | (distance > self.window)
        scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        return torch.einsum("bhqk,kbhd->qbhd", self._softmax(scores), value).flatten(2).contiguous()

    def _softmax(self, scores: Tensor) -> Tensor:
        """Divide with a learned offset in the denominator, if the model has attention sinks."""
        if self.softmax_offset is None:
            return scores.softmax(-1)
        offset = self.softmax_offset.view(1, -1, 1, 1).expand(scores.size(0), -1, scores.size(2), 1)
        return torch.cat([scores, offset], -1).softmax(-1)[..., :-1]


def _positions(parts: int, part: int, length: int) -> Tensor:
    """The positions of a rank's tokens: its piece from the front and its piece from the back of 2 x parts pieces."""
    if parts == 1:
        return torch.arange(length)
    piece = length // 2
    front, back = part, 2 * parts - 1 - part
    return torch.cat([torch.arange(i * piece, (i + 1) * piece) for i in (front, back)])


def _all_positions(parts: int, length: int) -> Tensor:
    return torch.cat([_positions(parts, part, length) for part in range(parts)])


class Duplicated(torch.nn.Module):
    """A linear that is whole on every tensor-parallel rank, for latent attention's down projections.

    Megatron-Core's local layers split them (core/models/gpt/gpt_layer_specs.py:422), Transformer Engine's do not
    (core/extensions/transformer_engine.py:975), and moedsl counts the latter.
    """

    def __init__(self, inputs: int, outputs: int, *, config: Any, init_method: Any, **_: object) -> None:
        super().__init__()
        weight = torch.empty(outputs, inputs, dtype=config.params_dtype)
        tracker: Any = get_cuda_rng_tracker()
        with tracker.fork(get_data_parallel_rng_tracker_name()):  # the same values on each rank
            init_method(weight)
        self.weight = torch.nn.Parameter(weight)
        self.weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        """Return the output, and no bias to add later."""
        return torch.nn.functional.linear(x, self.weight), None


class NormedColumn(ColumnParallelLinear):
    """A column-parallel linear after a norm of its input, one module as in Transformer Engine.

    Latent attention without a q_lora_rank has it (core/transformer/multi_latent_attention.py:505).
    """

    def __init__(self, inputs: int, outputs: int, *, config: Any, **more: Any) -> None:
        super().__init__(inputs, outputs, config=config, **more)
        self.layer_norm = norm(config, inputs, config.layernorm_epsilon)

    def forward(self, input_: Tensor, *more: Any, **others: Any) -> Any:
        return super().forward(self.layer_norm(input_), *more, **others)


class _Grouped(torch.nn.Module):
    """Hold `count` linears; weight{i} is [outputs, inputs]. Expert tensor parallelism works in the dispatcher."""

    def __init__(self, count: int, inputs: int, outputs: int, config: Any, how: Any, bias: bool, late: bool) -> None:
        super().__init__()
        self.count, self.late = count, late
        tracker: Any = get_cuda_rng_tracker()
        for i in range(count):
            weight = Parameter(torch.empty(outputs, inputs, dtype=config.params_dtype))
            with tracker.fork(get_expert_parallel_rng_tracker_name()):  # other values on each rank of the expert mesh
                how(weight.data)
            self._add(f"weight{i}", weight, config)
            if bias:
                self._add(f"bias{i}", Parameter(torch.zeros(outputs, dtype=config.params_dtype)), config)
        self.has_bias = bias

    def _add(self, name: str, parameter: Any, config: Any) -> None:
        """Mark a parameter whose gradient is reduced over the expert mesh, if there is one."""
        parameter.allreduce = config.expert_model_parallel_size == 1
        self.register_parameter(name, parameter)

    def forward(self, x: Tensor, counts: Sequence[int]) -> tuple[Tensor, list[Any] | None]:
        """Multiply the tokens of one expert after another, [tokens, inputs]; returns biases if they are added later."""
        weights = [getattr(self, f"weight{i}") for i in range(self.count)]
        biases = [getattr(self, f"bias{i}") for i in range(self.count)] if self.has_bias else [None] * self.count
        now = [None] * self.count if self.late else biases
        parts = [linear(t, w, b) for t, w, b in zip(torch.split(x, list(counts)), weights, now, strict=True)]
        return torch.cat(parts), biases if self.late and self.has_bias else None


def _column(count: int, inputs: int, outputs: int, *, config: Any, init_method: Any, bias: bool, **more: Any) -> Any:
    width = outputs // more["pg_collection"].expt_tp.size()
    return _Grouped(count, inputs, width, config, init_method, bias, more["skip_bias_add"])


def _row(count: int, inputs: int, outputs: int, *, config: Any, init_method: Any, bias: bool, **more: Any) -> Any:
    width = inputs // more["pg_collection"].expt_tp.size()
    return _Grouped(count, width, outputs, config, init_method, bias, more["skip_bias_add"])


def modules(self: object, grouped: bool) -> Any:
    """The modules that Megatron-Core's local layers use for the experts of a rank (core/models/backends.py:138)."""
    from megatron.core.transformer.moe.experts import GroupedMLPSubmodules, TEGroupedMLP

    return partial(TEGroupedMLP, submodules=GroupedMLPSubmodules(linear_fc1=_column, linear_fc2=_row))
