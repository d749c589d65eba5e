"""Ask for the parameters of each pipeline stage, from the real model that Bridge builds on the meta device."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

from moedsl.bridge.verify import mamba, repeated
from moedsl.bridge.verify.case import Case
from moedsl.bridge.verify.groups import initialise
from moedsl.bridge.verify.meta import meta_device
from moedsl.bridge.verify.report import Mismatch
from moedsl.planner.model.plan import Plan

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
    _stand_in_for_kernels()
    repeated.spare()
    mamba.leave_random_states()
    model.init_model_with_meta_device = True
    model.gradient_accumulation_fusion = False
    model.fp8_param = model.fp4_param = False


def _stand_in_for_kernels() -> None:
    """Pretend that DeepEP, HybridEP and NCCL EP are installed: dispatchers test whether their functions are None."""

    def absent(*args: object, **kwargs: object) -> None:
        raise RuntimeError("a package of compiled kernels is absent")

    module: Any = importlib.import_module("megatron.core.transformer.moe.token_dispatcher")
    for name, value in list(vars(module).items()):
        if value is None and name.startswith("set_"):
            setattr(module, name, lambda *args, **kwargs: None)
        elif value is None and ("dispatch" in name or "combine" in name):
            setattr(module, name, absent)


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


def compare(stages: list[dict[str, Any]], plan: Plan | None) -> tuple[list[dict[str, Any]], tuple[Mismatch, ...]]:
    """Compare stages with the plan's: `params` are all of a rank of the stage, `expert_params` those of experts."""
    planned = plan.estimate.memory.stages if plan else ()
    if not planned:
        return [{"stage": s["stage"], "planned": None, "real": s} for s in stages], ()
    out: list[Mismatch] = []
    if len(planned) != len(stages):
        out.append(Mismatch("stages", len(planned), len(stages), "pipeline stages"))
    pairs: list[dict[str, Any]] = []
    for want, real in zip(planned, stages, strict=False):
        counted = {"params": real["dense"] + real["expert"], "expert_params": real["expert"]}
        pairs.append({"stage": real["stage"], "planned": {name: getattr(want, name) for name in counted}, "real": real})
        out += [
            Mismatch(f"stages[{real['stage']}].{name}", getattr(want, name), value)
            for name, value in counted.items()
            if getattr(want, name) != value
        ]
    return pairs, tuple(out)
