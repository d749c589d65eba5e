"""Build Mamba-2 without mamba_ssm and causal_conv1d, whose kernels need a CUDA compiler to install.

Megatron-Core looks for them once, while megatron/core/ssm/mamba_mixer.py is imported (lines 61-81), and does not build
its mixer without them (line 200). Stand-ins replace them only for that import, so nothing else finds them: the gated
norm registers its real parameter, and no kernel computes.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

from moedsl.bridge.verify.te import installed

MIXER = "megatron.core.ssm.mamba_mixer"


def install() -> None:
    """Install stand-ins if needed; call after `te.install`, before anything else of megatron is imported."""
    absent = _absent()
    if absent and installed("megatron-core"):
        with _in_place({name: names for package in absent for name, names in _PACKAGES[package]().items()}):
            importlib.import_module(MIXER)


def stood_in(model: Any) -> tuple[str, ...]:
    """The packages that a model's layers would call and that are not installed."""
    layers = getattr(model, "hybrid_layer_pattern", None) or ""
    return tuple(f"{name} (no kernel of it computes)" for name in _absent()) if "M" in layers else ()


def leave_random_states() -> None:
    """Skip the random states from which a mixer and an adapter draw their parameters (megatron/core/ssm/
    mamba_mixer.py:318, tensor_parallel/layers.py:177): training sets them, and on the meta device parameters have no
    values."""
    for name in (MIXER, "megatron.core.tensor_parallel.layers"):
        module: Any = importlib.import_module(name)
        module.get_cuda_rng_tracker = lambda: SimpleNamespace(fork=nullcontext)


@contextmanager
def _in_place(modules: Mapping[str, Mapping[str, Any]]) -> Generator[None]:
    """Make these modules importable under these names."""
    made = {name: _module(name, names) for name, names in modules.items()}
    sys.modules.update(made)
    try:
        yield
    finally:
        for name in made:
            del sys.modules[name]


def _module(name: str, names: Mapping[str, Any]) -> ModuleType:
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None, is_package=True)
    module.__path__ = []
    vars(module).update(names)
    return module


def _mamba_ssm() -> Mapping[str, Mapping[str, Any]]:
    scans = ("mamba_chunk_scan_combined", "mamba_split_conv1d_scan_combined")
    return {
        "mamba_ssm": {},
        "mamba_ssm.ops": {},
        "mamba_ssm.ops.triton": {},
        "mamba_ssm.ops.triton.layernorm_gated": {"RMSNorm": _gated_norm()},
        "mamba_ssm.ops.triton.ssd_combined": {name: _kernel(f"mamba_ssm.{name}") for name in scans},
    }


def _causal_conv1d() -> Mapping[str, Mapping[str, Any]]:
    states = "causal_conv1d_varlen_states"
    return {
        "causal_conv1d": {"causal_conv1d_fn": _kernel("causal_conv1d.causal_conv1d_fn")},
        "causal_conv1d.causal_conv1d_varlen": {states: _kernel(f"causal_conv1d.{states}")},
    }


_PACKAGES: Mapping[str, Callable[[], Mapping[str, Mapping[str, Any]]]] = {
    "mamba_ssm": _mamba_ssm,
    "causal_conv1d": _causal_conv1d,
}
"""The modules that the mixer imports of each package, with the names that it imports from them."""


def _gated_norm() -> type:
    """The norm after the scan, as the mixer makes it (megatron/core/ssm/mamba_mixer.py:417): one weight a channel."""
    import torch

    class RMSNorm(torch.nn.Module):
        def __init__(
            self,
            hidden_size: int,
            eps: float = 1e-5,
            group_size: int | None = None,
            norm_before_gate: bool = True,
            device: Any = None,
            dtype: Any = None,
        ) -> None:
            super().__init__()
            self.eps, self.group_size, self.norm_before_gate = eps, group_size, norm_before_gate
            self.weight = torch.nn.Parameter(torch.ones(hidden_size, device=device, dtype=dtype))
            self.register_parameter("bias", None)

        forward = _kernel("mamba_ssm.RMSNorm")

    return RMSNorm


def _kernel(name: str) -> Callable[..., Any]:
    def absent(*args: object, **kwargs: object) -> None:
        raise RuntimeError(f"{name} needs a package of kernels that is absent")

    return absent


def _absent() -> list[str]:
    return [package for package in _PACKAGES if not installed(package)]
