"""Bridge's own initialisation of every process group, over torch's fake process group; any world size, one process."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout
from typing import Any

import torch.distributed as dist

from moedsl.verify.gpu import be_rank

Made = dict[str, list[list[int]]]
"""Megatron-Core's group description -> the ranks of every group made with it."""


@contextmanager
def _recorded(made: Made) -> Generator[None]:
    """Megatron-Core asks for the groups of all ranks on each rank, naming each family; options of NCCL's (streams of a
    higher priority) are none of a group without NCCL."""
    real = dist.new_group

    def new_group(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("group_desc"):
            made.setdefault(kwargs["group_desc"], []).append(sorted(ranks))
        return real(ranks, *args, **kwargs | {"pg_options": None})

    dist.new_group = new_group
    try:
        yield
    finally:
        dist.new_group = real


def initialise(config: Any, world: int, rank: int) -> tuple[Any, Made]:
    """The process groups of `rank`: Bridge's collection, and all made for the world. Replaces earlier ones."""
    from megatron.core import parallel_state
    from torch.testing._internal.distributed.fake_pg import FakeStore

    initialize: Any = importlib.import_module("megatron.bridge.training.initialize")
    parallel_state.destroy_model_parallel()
    if dist.is_initialized():
        dist.destroy_process_group()
    be_rank(rank, world)
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    made: Made = {}
    gloo, config.dist.use_gloo_process_groups = config.dist.use_gloo_process_groups, False
    try:
        with _recorded(made), redirect_stdout(sys.stderr):
            copies = config.ddp.num_distributed_optimizer_instances
            groups = initialize._initialize_distributed(config.model, config.dist, copies, None, None)
    finally:
        config.dist.use_gloo_process_groups = gloo
    return groups, made
