"""Compute the grouped product of experts on a CPU: one matrix product an expert, instead of Transformer Engine's
kernel.

Everything around it, with the recompute of the activation, is Megatron-Core's TEGroupedMLP
(core/transformer/moe/experts.py:182), whose linears are built as in core/extensions/transformer_engine.py:2612.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from megatron.core.tensor_parallel.random import get_cuda_rng_tracker, get_expert_parallel_rng_tracker_name
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import linear


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
