"""Ask for the parameters of each pipeline stage, from the real model that Bridge builds on the meta device.

On the meta device tensors have shapes and no memory, even where Megatron's code names cuda or cpu. Work that NVIDIA's
code repeats for each layer and each process group, and that changes no answer, is skipped.
"""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from moedsl.bridge.verify import stand_ins
from moedsl.bridge.verify.cases import Case
from moedsl.bridge.verify.groups import initialise

Look = Callable[[list[Any], Any], None]
"""Further checks of a stage's chunks and their groups, on the meta device."""


def count(config: Any, case: Case, pp_ranks: list[int], look: Look) -> tuple[list[dict[str, Any]], int]:
    """Each stage {stage, rank, dense, expert, chunks} for one rank of it, and the whole model's parameters.

    A parameter is an expert's if Megatron-Core marks it so: its gradient is reduced over EDP (`allreduce` False).
    """
    prepare(config.model)
    whole: dict[str, int] = {}
    stages = [_stage(config, case.world, stage, rank, whole, look) for stage, rank in enumerate(pp_ranks)]
    return stages, sum(whole.values())


def prepare(model: Any) -> None:
    """Build shapes only: no initialisation, quantised copies, fused gradient buffers or kernel packages."""

    def absent(*args: object, **kwargs: object) -> None:
        raise RuntimeError("a package of compiled kernels is absent")

    module: Any = importlib.import_module("megatron.core.transformer.moe.token_dispatcher")
    # DeepEP, HybridEP and NCCL EP seem to be installed: dispatchers test whether their functions are None
    for name, value in list(vars(module).items()):
        if value is None and name.startswith("set_"):
            setattr(module, name, lambda *args, **kwargs: None)
        elif value is None and ("dispatch" in name or "combine" in name):
            setattr(module, name, absent)
    skip_repetitions()
    stand_ins.leave_random_states()
    model.init_model_with_meta_device = True
    model.gradient_accumulation_fusion = False
    model.fp8_param = model.fp4_param = False


def _stage(config: Any, world: int, stage: int, rank: int, whole: dict[str, int], look: Look) -> dict[str, Any]:
    from megatron.core.enums import ModelType

    provider: Any = importlib.import_module("megatron.bridge.models.model_provider")
    groups, _ = initialise(config, world, rank, alone=True)
    config.model._pg_collection = groups
    config.model.perform_initialization = False  # the adapters of a stage before this one switch it on
    with meta_device():
        chunks = provider._create_model(config.model, ModelType.encoder_or_decoder, groups)
        chunks = chunks if isinstance(chunks, list) else [chunks]
        chunks = _adapted(config.peft, chunks)
        for chunk in chunks:
            whole.update(_unique(chunk, groups))
        look(chunks, groups)
    described = [_chunk(chunk) for chunk in chunks]
    total = {kind: sum(c[kind] for c in described) for kind in ("dense", "expert")}
    return {"stage": stage, "rank": rank, **total, "chunks": described}


def _adapted(peft: Any, chunks: list[Any]) -> list[Any]:
    """Add the adapters, as training does after it has read the weights (megatron/bridge/training/setup.py:642); on the
    meta device no rank has parameters to send to the others."""
    if peft is None:
        return chunks
    kind: Any = importlib.import_module("megatron.bridge.peft.utils").ParallelLinearAdapter
    kind._synchronize_shared_expert_parameters = lambda self: None
    return peft(chunks)


def _chunk(model: Any) -> dict[str, int]:
    """Count one virtual chunk's layers: decoder layers, and `mtp` for the prediction blocks."""
    sizes = {"dense": 0, "expert": 0}
    for name, parameter in model.named_parameters():  # `allreduce` marks them only where EP > 1
        sizes["expert" if ".experts." in name else "dense"] += parameter.numel()
    language = getattr(model, "language_model", model)
    mtp = getattr(language, "mtp", None)
    return sizes | {"layers": len(language.decoder.layers), "mtp": len(mtp.layers) if mtp is not None else 0}


def _unique(model: Any, groups: Any) -> Iterator[tuple[str, int]]:
    """The size over all ranks of each distributed checkpoint key of a parameter.

    A fused parameter is saved in parts, so keys may not be names of parameters.
    """
    from megatron.core.dist_checkpointing.mapping import ShardedTensor, ShardedTensorFactory

    buffers = {name for name, _ in model.named_buffers()}  # the router's expert bias
    for name, value in model.sharded_state_dict(prefix="", metadata={"dp_cp_group": groups.dp_cp}).items():
        parts = value.build() if isinstance(value, ShardedTensorFactory) else value
        for part in parts if isinstance(parts, (list, tuple)) else [parts]:
            if name not in buffers and isinstance(part, ShardedTensor):
                yield part.key, prod(part.global_shape)


_META = torch.device("meta")
_REPLACED = ("Stream", "Event", "current_stream")


class _Nothing:
    """A CUDA stream or event that does nothing."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


class _ToMeta(TorchFunctionMode):
    """Replaces every device in calls of torch functions by the meta device."""

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.Tensor.cuda, torch.tril):  # torch takes a millisecond for the shape of each causal mask
            return args[0]
        if kwargs.get("device") is not None:
            kwargs["device"] = _META
        if func is torch.Tensor.to:
            args = (args[0], *map(_redirect, args[1:]))
        return func(*args, **kwargs)


def _redirect(value: Any) -> Any:
    """An argument of `to`: a device, by its name or its number, becomes the meta device."""
    is_name = isinstance(value, str) and value.split(":")[0] in ("cuda", "cpu")
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return _META if is_name or is_number or isinstance(value, torch.device) else value


@contextmanager
def meta_device() -> Generator[None]:
    """Make tensors without storage, and let torch.cuda have streams without a GPU."""
    cuda: Any = torch.cuda
    saved = {name: getattr(cuda, name) for name in _REPLACED}
    cuda.Stream = cuda.Event = _Nothing
    cuda.current_stream = lambda *args, **kwargs: _Nothing()
    try:
        with _META, _ToMeta():
            yield
    finally:
        for name, value in saved.items():
            setattr(cuda, name, value)


_YARN = "megatron.core.models.common.embeddings.yarn_rotary_pos_embedding"


@functools.cache
def skip_repetitions() -> None:
    """Skip work that NVIDIA's code repeats for each layer or group, in this whole process: it changes no answer."""
    utils: Any = importlib.import_module("megatron.core.utils")
    if utils.HAVE_PACKAGING:
        utils.PkgVersion = functools.cache(utils.PkgVersion)  # each group compares torch's (parallel_state.py:249)
    # each latent attention makes a table of cosines and sines for itself: leave it to the first forward
    embedding: Any = importlib.import_module(_YARN).YarnRotaryEmbedding
    make = embedding._set_cos_sin_cache

    def later(self: Any, *given: Any, **named: Any) -> None:
        if hasattr(self, "max_seq_len_cached"):
            make(self, *given, **named)
        else:
            self.max_seq_len_cached = -1

    embedding._set_cos_sin_cache = later
    # each attention of Transformer Engine sets a logger's level, which empties the caches of a thousand loggers
    logger: Any = logging.Logger
    change = logger.setLevel

    def set_level(self: Any, level: Any) -> None:
        if level != self.level:
            change(self, level)

    logger.setLevel = set_level
