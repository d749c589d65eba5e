"""Copies: device to device, which shows the bandwidth of HBM, and between the GPU and pinned memory of the host."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gpu.case import TORCH, Case
from gpu.timing import Bench, Times

BYTES = 2**30


def cases(bench: Bench) -> Iterator[Case]:
    """List the three copies."""
    size = 2**16 if bench.quick else BYTES
    for what, source, target in (("hbm", True, True), ("to_host", True, False), ("from_host", False, True)):
        yield Case(what, {"bytes": size}, "bf16", TORCH, _run(size, source, target))


def _run(size: int, source: bool, target: bool):
    def run(bench: Bench) -> dict[str, Times]:
        given, made = (_buffer(bench, size, on_device) for on_device in (source, target))
        return {"copy": bench.time(lambda: made.copy_(given, non_blocking=True))}

    return run


def _buffer(bench: Bench, size: int, on_device: bool) -> torch.Tensor:
    if on_device:
        return bench.random(size // 2)
    return torch.randn(size // 2, dtype=torch.bfloat16, pin_memory=bench.cuda)
