"""Change the fields of a recipe that differ on a CPU, each with its reason; everything else stays as emitted."""

from __future__ import annotations

import os
from operator import attrgetter
from typing import Any

from attrs import frozen


@frozen
class Change:
    """One field, its value on a CPU, and the reason."""

    path: str
    value: Any
    because: str


def _each(names: str, value: Any, because: str) -> tuple[Change, ...]:
    return tuple(Change(name, value, because) for name in names.split())


_KERNEL = "a fused kernel of CUDA, Transformer Engine or Apex"
CHANGES: tuple[Change, ...] = (
    *_each(
        "model.moe_permute_fusion model.moe_router_fusion model.cross_entropy_loss_fusion "
        "model.gradient_accumulation_fusion model.bias_activation_fusion model.bias_dropout_fusion "
        "model.masked_softmax_fusion model.apply_rope_fusion model.persist_layer_norm",
        False,
        _KERNEL,
    ),
    Change("model.cross_entropy_fusion_impl", "native", _KERNEL),
    Change("model.transformer_impl", "local", "Transformer Engine's modules need a GPU"),
    Change("dist.distributed_backend", "gloo", "NCCL needs GPUs"),
    Change("dist.use_gloo_process_groups", True, "NCCL needs GPUs"),
    Change("dataset.num_workers", 0, "one process a rank"),
    *_each("dataset.persistent_workers dataset.pin_memory", False, "one process a rank"),
    *_each("logger.tensorboard_dir checkpoint.save checkpoint.load", None, "nothing is kept"),
    Change("logger.log_throughput", False, "a CPU's speed says nothing"),
)


DELTA_NETS = Change("model.deterministic_mode", True, "a gated delta net's kernels, fla's, need a GPU: PyTorch's path")
"""Fields of models with gated delta nets (core ssm/gated_delta_net/gdn.py:59, 199)."""


def changes(linear: bool) -> tuple[Change, ...]:
    """The fields of a model; `linear` if some of its layers have a gated delta net."""
    return (*CHANGES, DELTA_NETS) if linear else CHANGES


def apply(config: Any) -> None:
    """Change a recipe's configuration; fields that it does not have are skipped."""
    from moedsl.rehearse.cpu import layers

    linear = getattr(config.model, "experimental_attention_variant", None) == "gated_delta_net"
    if linear:
        os.environ.setdefault("NCCL_ALGO", "Ring")  # deterministic mode asks for one (bridge training/config.py:1057)
    for change in changes(linear):
        parent, _, name = change.path.rpartition(".")
        owner = attrgetter(parent)(config) if parent else config
        if hasattr(owner, name):
            setattr(owner, name, change.value)
    config.model.transformer_layer_spec = layers.like(config.model.transformer_layer_spec)
