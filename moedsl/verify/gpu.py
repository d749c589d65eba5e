"""Make torch.cuda answer like a target GPU. Bridge reads the major capability and the start of the name.

Bridge: training/flex_dispatcher_backend.py:59; Megatron-Core: transformer/moe/token_dispatcher.py:1546; Transformer
Engine: pytorch/quantization.py (FP8, MXFP8 and NVFP4 support by capability).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from attrs import frozen

from moedsl.planner.model.plan import Plan
from moedsl.schema.units import GIB


@frozen
class Device:
    """One GPU as torch.cuda describes it."""

    name: str
    """The name, starting as NVIDIA's driver writes it."""
    capability: tuple[int, int]
    memory: int
    """Total memory in bytes, which is less than the driver shows."""
    sms: int


DEVICES: Mapping[str, Device] = {
    "a100": Device("NVIDIA A100-SXM4-80GB", (8, 0), int(79.2 * GIB), 108),
    "h100": Device("NVIDIA H100 80GB HBM3", (9, 0), int(79.19 * GIB), 132),
    "h200": Device("NVIDIA H200", (9, 0), int(139.8 * GIB), 132),
    "b200": Device("NVIDIA B200", (10, 0), int(178.35 * GIB), 148),
    "gb200": Device("NVIDIA GB200", (10, 0), int(184.31 * GIB), 152),
    "b300": Device("NVIDIA B300 SXM6 AC", (10, 3), int(267.69 * GIB), 148),
    "gb300": Device("NVIDIA GB300", (10, 3), int(276.5 * GIB), 152),
}
"""Devices by the name that NVIDIA's recipes use. A plan for other hardware has its own `device`."""


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


def be_rank(rank: int, world: int) -> None:
    """The environment that torchrun would give this rank."""
    os.environ.update(WORLD_SIZE=str(world), RANK=str(rank), LOCAL_RANK=str(rank % 8))
