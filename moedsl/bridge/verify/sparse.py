"""Accept the kernels of sparse attention without FlashMLA and cuDNN's frontend, which a container has.

Megatron-Core looks for both when a configuration names them (megatron/core/utils.py:497).
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from moedsl.bridge.verify.te import installed

_MISSING: list[str] = []
_LOOK = "_missing_cudnn_dsa_kernel_dependencies"


def install() -> None:
    """Answer that nothing is missing; call after `te.install`."""
    if installed("megatron-core"):
        utils: Any = importlib.import_module("megatron.core.utils")
        if hasattr(utils, _LOOK):  # not before Megatron-Core 0.19
            _MISSING[:] = getattr(utils, _LOOK)()
            setattr(utils, _LOOK, _nothing)


def _nothing() -> Sequence[str]:
    return ()


def stood_in(model: Any) -> tuple[str, ...]:
    """The packages that a model's layers would call and that are not installed."""
    called = getattr(model, "dsa_kernel_backend", None) == "cudnn"
    return tuple(f"{name} (no kernel of it computes)" for name in _MISSING) if called else ()
