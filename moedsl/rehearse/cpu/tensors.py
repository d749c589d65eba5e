"""Tensors stay on the CPU, where code names cuda; a CPU tensor's type is given as Megatron's tables have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class _OnCpu(TorchFunctionMode):
    """Sends what goes to cuda to the CPU, and pins no memory: there is no GPU to copy it to."""

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if _is_cuda(kwargs.get("device")):
            kwargs["device"] = "cpu"
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        if func is torch.Tensor.to:
            args = (args[0], *("cpu" if _is_cuda(a) else a for a in args[1:]))
        return func(*args, **kwargs)


def _is_cuda(value: Any) -> bool:
    return isinstance(value, (str, torch.device)) and str(value).startswith("cuda")


def stay() -> None:
    """From here on, for the rest of the process.

    Megatron-Core's optimizer sorts parameters by the names of the types of CUDA tensors
    (core/optimizer/distrib_optimizer.py, `torch.cuda.FloatTensor`).
    """
    tensor: Any = torch.Tensor
    real, tensor.cuda = tensor.type, lambda self, *args, **kwargs: self

    def named(self: Any, *args: Any, **kwargs: Any) -> Any:
        return real(self, *args, **kwargs) if args or kwargs else f"torch.cuda.{real(self).split('.')[-1]}"

    tensor.type = named
    _OnCpu().__enter__()
