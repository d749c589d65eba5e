"""torch.cuda without a GPU: streams and events that do nothing, memory that is not counted, the CPU as the device.

Megatron-Core and Bridge call these unconditionally (core/pipeline_parallel/schedules.py, core/timers.py, bridge
training/initialize.py, training/setup.py). Work is done in order on a CPU, so that no stream has to be waited for.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Self

import torch


class Idle:
    """A CUDA stream or event: whatever is asked of it is done at once."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., Idle]:
        return lambda *args, **kwargs: Idle()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def __int__(self) -> int:
        return 0

    def __float__(self) -> float:
        return 0.0


_NOTHING = ("synchronize", "set_device", "set_stream", "empty_cache", "reset_peak_memory_stats")
_ZERO = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")


def stand_in() -> None:
    """Replaces the functions of torch.cuda and torch.accelerator that training calls."""
    cuda: Any = torch.cuda
    cuda.Stream = cuda.Event = Idle
    cuda.current_stream = cuda.default_stream = lambda *args, **kwargs: Idle()
    cuda.stream = lambda *args, **kwargs: contextlib.nullcontext()
    cuda.current_device = lambda: torch.device("cpu")
    cuda.is_current_stream_capturing = lambda: False
    for name in _NOTHING:
        setattr(cuda, name, lambda *args, **kwargs: None)
    for name in _ZERO:
        setattr(cuda, name, lambda *args, **kwargs: 0)
    cuda.manual_seed = torch.manual_seed
    cuda.memory_stats = lambda *args, **kwargs: defaultdict(int)
    cuda.mem_get_info = lambda *args, **kwargs: (1 << 30, 1 << 30)
    cuda.get_rng_state = lambda *args, **kwargs: torch.get_rng_state()
    cuda.set_rng_state = lambda state, *args, **kwargs: torch.set_rng_state(state)
    accelerator: Any = torch.accelerator
    accelerator.current_stream = lambda *args, **kwargs: SimpleNamespace(is_capturing=lambda: False)
