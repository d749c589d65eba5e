"""Make stand-ins for what this machine does not have: the GPU, compiled kernels, and the files that a recipe names.

- Transformer Engine's compiled extension (`install_engine`). A module that replaces it makes a class for any name, and
  calling one raises. Transformer Engine's classes register their real parameters and never run. Its own switches
  (NVTE_PROJECT_BUILDING, NVTE_FRAMEWORK; transformer_engine/common/__init__.py) keep it from loading its library.
- mamba_ssm and causal_conv1d (`install_mamba`), whose kernels need a CUDA compiler to install. Megatron-Core looks for
  them once, while megatron/core/ssm/mamba_mixer.py is imported (lines 61-81), and does not build its mixer without them
  (line 200). Stand-ins replace them only for that import, so nothing else finds them: the gated norm registers its real
  parameter, and no kernel computes.
- FlashMLA and cuDNN's frontend for sparse attention (`install_sparse_attention`), which a container has. Megatron-Core
  looks for both when a configuration names them (megatron/core/utils.py:497).
- The checkpoint, the tokenizer and the processor that a recipe names (`checkpoint`, `vocabulary`, `processors`).
- The GPU: torch.cuda answers like the target (`answer`). Bridge reads the major capability and the start of the name
  (training/flex_dispatcher_backend.py:59), as do Megatron-Core (transformer/moe/token_dispatcher.py:1546) and
  Transformer Engine (pytorch/quantization.py: FP8, MXFP8 and NVFP4 support by capability).
"""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

from moedsl.bridge.verify.cases import Device

EXTENSION = "transformer_engine_torch"


class _OnDemand(type):
    """The type of each class in the extension; an enum's members are made when they are read."""

    _members: dict[str, Any]
    _number: int

    def __getattr__(cls, name: str) -> Any:
        if name == "__members__":  # Transformer Engine compares its enums with these: echo what it asked for
            return dict(cls._members)
        if name.startswith("__"):
            raise AttributeError(name)
        return cls._members.setdefault(name, _class(f"{cls.__name__}.{name}", len(cls._members)))

    def __int__(cls) -> int:
        return cls._number


def _class(name: str, number: int = 0) -> _OnDemand:
    def refuse(self: object, *args: object, **kwargs: object) -> None:
        raise RuntimeError(f"{EXTENSION}.{name} needs the compiled extension of Transformer Engine")

    return _OnDemand(name, (), {"__init__": refuse, "_members": {}, "_number": number})


class _Extension(ModuleType):
    """The module that replaces the extension."""

    def __init__(self) -> None:
        super().__init__(EXTENSION)
        self.__spec__ = ModuleSpec(EXTENSION, None)
        self.__file__ = "<stand-in>"
        self.get_cudnn_version = lambda: 92000  # asked by name while attention is built

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _class(name)
        setattr(self, name, value)
        return value


def install_engine() -> str:
    """Install the replacement if needed; returns "real", "stood in" or "absent". Call before megatron is imported."""
    if not installed("transformer_engine"):
        return "absent"
    if compiled() is not None:
        return "real"
    os.environ["NVTE_PROJECT_BUILDING"] = "1"
    os.environ["NVTE_FRAMEWORK"] = "none"
    sys.modules[EXTENSION] = _Extension()
    common: Any = importlib.import_module("transformer_engine.common")
    common.load_framework_extension = lambda framework: None
    return "stood in"


def compiled() -> Path | None:
    """Find the compiled extension where Transformer Engine looks for it: next to its package in an editable install, in
    the package in a container, in `wheel_lib` from PyPI (transformer_engine/common/__init__.py:101)."""
    spec = find_spec("transformer_engine")
    if spec is None or spec.origin is None:
        return None
    roots = (Path(spec.origin).parents[1], Path(sysconfig.get_paths()["purelib"]))
    folders = (root / inner for root in roots for inner in ("", "transformer_engine", "transformer_engine/wheel_lib"))
    return next((file for folder in folders for file in folder.glob(f"{EXTENSION}*.so")), None)


def installed(name: str) -> bool:
    """Whether a distribution is really installed; does not import it."""
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


MIXER = "megatron.core.ssm.mamba_mixer"
MAMBA = ("mamba_ssm", "causal_conv1d")


def install_mamba() -> None:
    """Install stand-ins if needed; call after `install_engine`, before anything else of megatron is imported."""
    absent = [package for package in MAMBA if not installed(package)]
    if not absent or not installed("megatron-core"):
        return
    modules = {name: names for package in absent for name, names in _mamba_modules()[package].items()}
    for name, names in modules.items():
        sys.modules[name] = module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None, is_package=True)
        module.__path__ = []
        vars(module).update(names)
    try:
        importlib.import_module(MIXER)
    finally:
        for name in modules:
            del sys.modules[name]


def _mamba_modules() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """Return package -> module -> the names that the mixer imports from it, with stand-ins for their values."""
    import torch

    def kernel(name: str) -> Callable[..., Any]:
        def absent(*args: object, **kwargs: object) -> None:
            raise RuntimeError(f"{name} needs a package of kernels that is absent")

        return absent

    class RMSNorm(torch.nn.Module):
        """The norm after the scan, as the mixer makes it (megatron/core/ssm/mamba_mixer.py:417): one weight per
        channel."""

        def __init__(
            self, hidden_size: int, eps: float = 1e-5, group_size: int | None = None, norm_before_gate: bool = True,
            device: Any = None, dtype: Any = None,
        ) -> None:  # fmt: skip
            super().__init__()
            self.eps, self.group_size, self.norm_before_gate = eps, group_size, norm_before_gate
            self.weight = torch.nn.Parameter(torch.ones(hidden_size, device=device, dtype=dtype))
            self.register_parameter("bias", None)

        forward = kernel("mamba_ssm.RMSNorm")

    scans = ("mamba_chunk_scan_combined", "mamba_split_conv1d_scan_combined")
    states = "causal_conv1d_varlen_states"
    return {
        "mamba_ssm": {
            "mamba_ssm": {},
            "mamba_ssm.ops": {},
            "mamba_ssm.ops.triton": {},
            "mamba_ssm.ops.triton.layernorm_gated": {"RMSNorm": RMSNorm},
            "mamba_ssm.ops.triton.ssd_combined": {name: kernel(f"mamba_ssm.{name}") for name in scans},
        },
        "causal_conv1d": {
            "causal_conv1d": {"causal_conv1d_fn": kernel("causal_conv1d.causal_conv1d_fn")},
            "causal_conv1d.causal_conv1d_varlen": {states: kernel(f"causal_conv1d.{states}")},
        },
    }


def leave_random_states() -> None:
    """Skip the random states from which a mixer and an adapter initialise parameters
    (megatron/core/ssm/mamba_mixer.py:318, tensor_parallel/layers.py:177): training sets them up, and parameters on the
    meta device have no values."""
    for name in (MIXER, "megatron.core.tensor_parallel.layers"):
        module: Any = importlib.import_module(name)
        module.get_cuda_rng_tracker = lambda: SimpleNamespace(fork=nullcontext)


_MISSING: list[str] = []
_LOOK = "_missing_cudnn_dsa_kernel_dependencies"


def install_sparse_attention() -> None:
    """Make Megatron-Core report no missing kernel package of sparse attention; call after `install_engine`."""
    if installed("megatron-core"):
        utils: Any = importlib.import_module("megatron.core.utils")
        if hasattr(utils, _LOOK):  # not before Megatron-Core 0.19
            _MISSING[:] = getattr(utils, _LOOK)()
            setattr(utils, _LOOK, lambda: ())


def absent_packages(model: Any) -> tuple[str, ...]:
    """Return the packages that a model's layers would call and that are not installed."""
    mixes = "M" in (getattr(model, "hybrid_layer_pattern", None) or "")
    sparse = getattr(model, "dsa_kernel_backend", None) == "cudnn"
    names = [*(n for n in MAMBA if mixes and not installed(n)), *(_MISSING if sparse else ())]
    return tuple(f"{name} (no kernel of it computes)" for name in names)


@contextmanager
def checkpoint(config: Any) -> Generator[tuple[str, ...]]:
    """Let Bridge find `checkpoint.pretrained_checkpoint` (bridge training/config.py:594); yield what was replaced."""
    utils: Any = importlib.import_module("megatron.bridge.training.utils.checkpoint_utils")
    named, real = config.checkpoint.pretrained_checkpoint, utils.file_exists
    if named is None or real(named):
        yield ()
        return
    with patch.object(utils, "file_exists", lambda path: path == named or real(path)):
        yield (f"the checkpoint {named} (not on this machine: nothing of it was read)",)


@contextmanager
def weights(config: Any) -> Generator[None]:
    """Let Bridge accept an adapter recipe that leaves the name of its weights to the user, as all of Bridge's own do
    (bridge recipes/common.py:318, training/config.py:1488)."""
    if config.peft is None or config.checkpoint.pretrained_checkpoint is not None:
        yield
        return
    config.checkpoint.pretrained_checkpoint = "named by the user"
    try:
        with checkpoint(config):
            yield
    finally:
        config.checkpoint.pretrained_checkpoint = None


@contextmanager
def processors() -> Generator[list[str]]:
    """Let a recipe load a tokenizer or processor whose files are not here, as image datasets do before Bridge 0.6;
    yield what was replaced."""
    import transformers

    replaced: list[str] = []

    def of(kind: Any) -> Any:
        real = kind.from_pretrained.__func__

        def load(cls: type, name: str, *more: Any, **options: Any) -> Any:
            try:
                return real(cls, name, *more, **options)
            except OSError:  # transformers raises it for files that are not here
                replaced.append(f"the files of {name} that a dataset of images reads (not on this machine)")
                return MagicMock(name=name)

        return patch.object(kind, "from_pretrained", classmethod(load))

    with of(transformers.AutoTokenizer), of(transformers.ProcessorMixin):
        yield replaced


def vocabulary(config: Any) -> tuple[str, ...]:
    """Set a missing vocabulary size from the tokenizer's configuration or from its model, where setup asks the
    tokenizer (bridge training/setup.py:681); return what was replaced. Nothing is set if both are unknown."""
    if getattr(config.model, "vocab_size", 0) is not None:
        return ()
    from transformers import AutoConfig

    name, rows = config.tokenizer.tokenizer_model, config.tokenizer.vocab_size or None
    if rows is None and name:
        with suppress(OSError, ValueError, AttributeError):
            rows = AutoConfig.from_pretrained(name).vocab_size
    if rows is None:
        return ()
    config.model.vocab_size, config.model.should_pad_vocab = rows, True
    return (f"the tokenizer {name} (its vocabulary is assumed to be {rows}, that of its model)",)


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
    """Make torch.cuda name device 0 as the current one and skip synchronisation, in a process that keeps no tensors."""
    import torch

    cuda: Any = torch.cuda
    cuda.current_device = lambda: 0
    cuda.synchronize = lambda *args, **kwargs: None


def be_rank(rank: int, world: int) -> None:
    """Set the environment variables that torchrun would give this rank."""
    os.environ.update(WORLD_SIZE=str(world), RANK=str(rank), LOCAL_RANK=str(rank % 8))
