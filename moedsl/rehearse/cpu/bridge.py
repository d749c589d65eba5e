"""Import Bridge on a machine without GPUs, and change the fields of its recipes that differ on a CPU.

Megatron-Core uses its own layers if Transformer Engine is absent when it is imported. Bridge and modelopt need
Transformer Engine's names: they get the replacement in `moedsl.bridge.verify.stand_ins`. Each changed field has a
reason; everything else in a recipe stays as emitted.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from operator import attrgetter
from types import ModuleType
from typing import Any

from attrs import frozen

from moedsl.bridge.verify import stand_ins

_ENGINE = ("transformer_engine", "transformer_engine_torch")
_BEFORE = (
    "megatron.core", "megatron.core.extensions.transformer_engine", "megatron.core.fp8_utils",
    "megatron.core.fp4_utils", "megatron.core.optimizer", "megatron.core.distributed", "megatron.core.models.gpt",
    "megatron.core.transformer.cuda_graphs", "megatron.core.transformer.multi_token_prediction",
    "megatron.core.transformer.moe.moe_utils", "megatron.core.transformer.moe.token_dispatcher",
    "modelopt.torch.opt.plugins", "modelopt.torch.distill.plugins.megatron",
)  # fmt: skip
"""Modules that look for Transformer Engine when they are imported."""


def import_megatron() -> None:
    """Import the modules of `_BEFORE` without Transformer Engine, then install its replacement.

    Call this before anything of Megatron is imported.
    """
    hidden: Any = sys.modules
    for name in _ENGINE:
        hidden[name] = None
    for name in _BEFORE:
        importlib.import_module(name)
    for name in _ENGINE:
        del sys.modules[name]
    stand_ins.install_engine()
    if importlib.util.find_spec("nvidia_resiliency_ext") is None:
        # Bridge's pretrain imports one class of it, used only with in-process restart
        inner = _module("nvidia_resiliency_ext.inprocess", CallWrapper=object)
        _module("nvidia_resiliency_ext", inprocess=inner)


def _module(name: str, **members: Any) -> ModuleType:
    module: Any = ModuleType(name)
    module.__path__, module.__spec__, module.__version__ = [], ModuleSpec(name, None, is_package=True), "0.6.0"
    module.__dict__.update(members)
    sys.modules[name] = module
    return module


@frozen
class Change:
    """One field, its value on a CPU, and the reason."""

    path: str
    value: Any
    because: str


_KERNEL, _NCCL = "a fused kernel of CUDA, Transformer Engine or Apex", "NCCL needs GPUs"
_EACH: tuple[tuple[str, Any, str], ...] = (
    ("model.moe_permute_fusion model.moe_router_fusion model.cross_entropy_loss_fusion "
     "model.gradient_accumulation_fusion model.bias_activation_fusion model.bias_dropout_fusion "
     "model.masked_softmax_fusion model.apply_rope_fusion model.persist_layer_norm", False, _KERNEL),
    ("model.cross_entropy_fusion_impl", "native", _KERNEL),
    ("model.transformer_impl", "local", "Transformer Engine's modules need a GPU"),
    ("dist.distributed_backend", "gloo", _NCCL),
    ("dist.use_gloo_process_groups", True, _NCCL),
    ("dataset.num_workers", 0, "one process a rank"),
    ("dataset.persistent_workers dataset.pin_memory", False, "one process a rank"),
    ("logger.tensorboard_dir checkpoint.save checkpoint.load", None, "nothing is kept"),
    ("logger.log_throughput", False, "a CPU's speed says nothing"),
)  # fmt: skip
CHANGES = tuple(Change(name, value, because) for names, value, because in _EACH for name in names.split())
DELTA_NETS = Change("model.deterministic_mode", True, "a gated delta net's kernels, fla's, need a GPU: PyTorch's path")
"""The extra change for models with gated delta nets (core ssm/gated_delta_net/gdn.py:59, 199)."""


def changes(linear: bool) -> tuple[Change, ...]:
    """Return the changed fields of a model; `linear` says whether some of its layers have a gated delta net."""
    return (*CHANGES, DELTA_NETS) if linear else CHANGES


def adapt_recipe(config: Any) -> None:
    """Change a recipe's configuration; fields that it does not have are skipped."""
    from moedsl.rehearse.cpu import layers

    linear = getattr(config.model, "experimental_attention_variant", None) == "gated_delta_net"
    if linear:
        os.environ.setdefault("NCCL_ALGO", "Ring")  # deterministic mode needs it (bridge training/config.py:1057)
    for change in changes(linear):
        parent, _, name = change.path.rpartition(".")
        owner = attrgetter(parent)(config) if parent else config
        if hasattr(owner, name):
            setattr(owner, name, change.value)
    config.model.transformer_layer_spec = layers.like(config.model.transformer_layer_spec)
