"""What training initialises for tensor-parallel overlap before it builds the model, over objects that send nothing."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch.distributed as dist


def _nothing(*args: object, **kwargs: object) -> None:
    """Stand for a communicator of Transformer Engine, which needs GPUs that reach each other."""


_EXTENSION = SimpleNamespace(
    device_supports_multicast=lambda: True,
    ubuf_built_with_mpi=lambda: False,
    get_stream_priority_range=lambda: (0, -1),
    CommOverlapType=SimpleNamespace(RS=0, AG=1),
    CommOverlapHelper=_nothing,
    CommOverlap=_nothing,
    CommOverlapP2P=_nothing,
)


def initialise(config: Any) -> None:
    """Make the user buffers as bridge training/initialize.py:237 does, with the checks of te pytorch/module/base.py.

    Needs the process groups. Raises what NVIDIA's code raises.
    """
    if not config.model.tp_comm_overlap:
        return
    base: Any = importlib.import_module("transformer_engine.pytorch.module.base")
    initialize: Any = importlib.import_module("megatron.bridge.training.initialize")
    groups: Any = dist.distributed_c10d
    real = groups.new_group

    def new_group(ranks: Any = None, *args: object, **kwargs: object) -> Any:
        return real(ranks)

    with (
        patch.object(base, "tex", _EXTENSION),
        patch.object(dist, "new_group", new_group),
        patch.object(groups, "new_group", new_group),
        patch.object(dist, "is_backend_available", lambda name: True),
    ):
        initialize._initialize_tp_communicators(config.model, config.train.micro_batch_size)
