"""Make torch.cuda answer like a target GPU. Bridge reads the major capability and the start of the name.

Bridge: training/flex_dispatcher_backend.py:59; Megatron-Core: transformer/moe/token_dispatcher.py:1546; Transformer
Engine: pytorch/quantization.py (FP8, MXFP8 and NVFP4 support by capability).
"""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

from attrs import frozen

from moedsl.planner.model.plan import Plan


@frozen
class Device:
    """One GPU as torch.cuda describes it."""

    name: str
    """The name, starting as NVIDIA's driver writes it."""
    capability: tuple[int, int]
    memory: int
    """Total memory in bytes, which is less than the driver shows."""
    sms: int


def from_plan(plan: Plan) -> Device:
    """The GPU of a plan."""
    d = plan.device
    return Device(d.name, (d.capability[0], d.capability[1]), d.memory, d.sms)


def answer(device: Device, world: int, rank: int) -> None:
    """Make torch.cuda and the environment answer as rank `rank` of `world` on that GPU, for this process only."""
    import torch

    properties = SimpleNamespace(
        major=device.capability[0],
        minor=device.capability[1],
        name=device.name,
        total_memory=device.memory,
        multi_processor_count=device.sms,
    )
    cuda: Any = torch.cuda
    cuda.get_device_properties = lambda *args, **kwargs: properties
    cuda.mem_get_info = lambda *args, **kwargs: (device.memory, device.memory)
    cuda.get_device_capability = lambda *args, **kwargs: device.capability
    cuda.get_device_name = lambda *args, **kwargs: device.name
    cuda.device_count = lambda: 8
    cuda.is_available = lambda: True
    be_rank(rank, world)


def be_current() -> None:
    """Make the first GPU the current one of a process that keeps no tensors."""
    import torch

    cuda: Any = torch.cuda
    cuda.current_device = lambda: 0
    cuda.synchronize = lambda *args, **kwargs: None


def be_rank(rank: int, world: int) -> None:
    """The environment that torchrun would give this rank."""
    os.environ.update(WORLD_SIZE=str(world), RANK=str(rank), LOCAL_RANK=str(rank % 8))
