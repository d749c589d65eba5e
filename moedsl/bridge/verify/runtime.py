"""Ask what NVIDIA's code refuses only after training has started, by calling those lines.

Each function gets objects that stop it after the check: reaching them means that the check passed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import patch

from moedsl.bridge.verify.meta import meta_device
from moedsl.bridge.verify.report import Refusal, refusal


class _PassedError(Exception):
    """Raised when the code passes its checks."""


class _Stop:
    """An object whose use means that the checks have passed."""

    def _stop(self, *args: object) -> NoReturn:
        raise _PassedError

    __floordiv__ = __getitem__ = __iter__ = __len__ = _stop

    def __getattr__(self, name: str) -> NoReturn:
        raise _PassedError


def ask(config: Any, groups: Any) -> tuple[tuple[Refusal, ...], int | None]:
    """List every later refusal, and the number of microbatches if it can be computed. Needs the process groups."""
    out: list[Refusal] = []
    count: list[int] = []
    _try(out, lambda: count.append(microbatches(config)))
    if count:
        _try(out, lambda: _schedule(config, groups, count[0]))
    if config.model.num_moe_experts:
        _try(out, lambda: _moe_forward(config, groups))
    _try(out, lambda: _quantisation(config.model))
    if config.ddp.use_megatron_fsdp:
        _try(out, lambda: _sharded_mesh(config, groups))
    return tuple(out), count[0] if count else None


def _try(out: list[Refusal], question: Callable[[], object]) -> None:
    try:
        question()
    except _PassedError:
        return
    except Exception as error:
        out.append(refusal(error, "runtime"))


def microbatches(config: Any) -> int:
    """Call Megatron-Core's own calculator (core/num_microbatches_calculator.py)."""
    from megatron.core import num_microbatches_calculator as calculator

    calculator.unset_num_microbatches_calculator()
    train = config.train
    calculator.init_num_microbatches_calculator(
        0, train.rampup_batch_size, train.global_batch_size, train.micro_batch_size, config.data_parallel_size
    )
    return int(calculator.get_num_microbatches())


def _schedule(config: Any, groups: Any, count: int) -> None:
    """Check microbatch groups against PP and the number of microbatches: core/pipeline_parallel/schedules.py, the
    interleaved schedule."""
    import torch

    schedules: Any = importlib.import_module("megatron.core.pipeline_parallel.schedules")
    model = config.model
    chunks = model.virtual_pipeline_model_parallel_size or 1
    if model.pipeline_model_parallel_size == 1 or chunks == 1:
        return

    class Chunk(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config, self.model_type = model, None

    with meta_device(), patch.object(model, "timers", None):
        schedules.forward_backward_pipelining_with_interleaving(
            forward_step_func=None,
            data_iterator=[None] * chunks,
            model=[Chunk() for _ in range(chunks)],
            num_microbatches=count,
            seq_length=_Stop(),
            micro_batch_size=1,
            p2p_communicator=SimpleNamespace(config=model, pp_group=groups.pp),
            pg_collection=groups,
        )


def _moe_forward(config: Any, groups: Any) -> None:
    """Check tensor parallel training without sequence parallel: core/transformer/moe/moe_layer.py, MoELayer.forward."""

    class Layer(_Stop):
        training, attn_tp_group = True, groups.tp

    layer: Any = Layer()
    layer.config = SimpleNamespace(sequence_parallel=config.model.sequence_parallel)
    importlib.import_module("megatron.core.transformer.moe.moe_layer").MoELayer.forward(layer, _Stop())


def _sharded_mesh(config: Any, groups: Any) -> None:
    """Check that dense and expert meshes cover the world: core/distributed/fsdp/mcore_fsdp_adapter.py."""
    adapter: Any = importlib.import_module("megatron.core.distributed.fsdp.mcore_fsdp_adapter")
    adapter._get_dp_tp_mesh(groups.dp_cp, groups.tp)
    if config.model.num_moe_experts:
        adapter._get_dp_tp_mesh(groups.expt_dp, groups.expt_tp, ep_size=groups.ep.size())


def _quantisation(model: Any) -> None:
    """Check that this GPU computes in the format: transformer_engine/pytorch/quantization.py."""
    if not (model.fp8 or getattr(model, "fp4", None)):
        return
    recipes: Any = importlib.import_module("megatron.core.fp8_utils")
    quantization: Any = importlib.import_module("transformer_engine.pytorch.quantization")
    if not getattr(model, "fp4", None):
        quantization.check_recipe_support(recipes.get_fp8_recipe(model))
        return
    supported, why = quantization.check_nvfp4_support()
    if not supported:
        raise RuntimeError(why)
