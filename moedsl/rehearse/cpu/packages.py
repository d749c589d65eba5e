"""Import Megatron-Core as if without Transformer Engine, and Bridge with a replacement of it.

Megatron-Core chooses its own layers if Transformer Engine is absent, and decides that during its import. Bridge and
modelopt need its names: they get the replacement in `moedsl.bridge.verify.stand_ins`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from moedsl.bridge.verify import stand_ins

_ENGINE = ("transformer_engine", "transformer_engine_torch")
_BEFORE = (
    "megatron.core", "megatron.core.extensions.transformer_engine", "megatron.core.fp8_utils",
    "megatron.core.fp4_utils", "megatron.core.optimizer", "megatron.core.distributed", "megatron.core.models.gpt",
    "megatron.core.transformer.cuda_graphs", "megatron.core.transformer.multi_token_prediction",
    "megatron.core.transformer.moe.moe_utils", "megatron.core.transformer.moe.token_dispatcher",
    "modelopt.torch.opt.plugins", "modelopt.torch.distill.plugins.megatron",
)  # fmt: skip
"""Modules whose import tests for Transformer Engine."""


def load() -> None:
    """Import them in that order. Call before anything of Megatron is imported."""
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
        inner = _module("nvidia_resiliency_ext.inprocess", {"CallWrapper": object})
        _module("nvidia_resiliency_ext", {"inprocess": inner})


def _module(name: str, members: dict[str, Any], path: Sequence[str] = ()) -> ModuleType:
    module: Any = ModuleType(name)
    module.__path__, module.__spec__, module.__version__ = list(path), ModuleSpec(name, None, is_package=True), "0.6.0"
    module.__dict__.update(members)
    sys.modules[name] = module
    return module
