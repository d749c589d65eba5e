"""Find what NVIDIA's code refuses only after training has started, by calling the code that refuses it.

- `ask`: the checks of a step. Each function gets objects that raise when they are used, which means that the check
  passed.
- `make_user_buffers`: the set-up of tensor-parallel overlap, which training does before it builds the model, with
  communicators that send nothing.
- `ask_stage`: the schedule of the built model with expert overlap, and its CUDA graphs, by the functions that training
  calls, on the meta device.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import patch

import torch.distributed as dist

from moedsl.bridge.verify.cases import Refusal, is_theirs, refusal
from moedsl.bridge.verify.stages import meta_device


class _PassedError(Exception):
    """Raised when the code passes its checks."""


class _Stop:
    """An object whose use means that the checks have passed."""

    def __getitem__(self, *args: object) -> NoReturn:
        raise _PassedError

    __floordiv__ = __iter__ = __len__ = __getattr__ = __getitem__


def ask(config: Any, groups: Any) -> tuple[tuple[Refusal, ...], int | None]:
    """Return every refusal of a step, and the number of microbatches (None if unknown). Needs the process groups."""
    out: list[Refusal] = []
    count: list[int] = []
    _try(out, "runtime", lambda: count.append(microbatches(config)))
    if count:
        _try(out, "runtime", lambda: _schedule(config, groups, count[0]))
    if config.model.num_moe_experts:
        _try(out, "runtime", lambda: _moe_forward(config, groups))
    _try(out, "runtime", lambda: _quantisation(config.model))
    if config.ddp.use_megatron_fsdp:
        _try(out, "runtime", lambda: _sharded_mesh(config, groups))
    return tuple(out), count[0] if count else None


def _try(out: list[Refusal], question: str, asked: Callable[[], object]) -> None:
    """Call a check, and record its refusal. A `runtime` check may raise in any code, other checks only in NVIDIA's."""
    try:
        asked()
    except _PassedError:
        return
    except Exception as error:
        if question != "runtime" and not is_theirs(error):
            raise
        out.append(refusal(error, question))


def microbatches(config: Any) -> int:
    """Return the number of microbatches by Megatron-Core's own calculator (core/num_microbatches_calculator.py)."""
    from megatron.core import num_microbatches_calculator as calculator

    calculator.unset_num_microbatches_calculator()
    train = config.train
    calculator.init_num_microbatches_calculator(
        0, train.rampup_batch_size, train.global_batch_size, train.micro_batch_size, config.data_parallel_size
    )
    return int(calculator.get_num_microbatches())


def _schedule(config: Any, groups: Any, count: int) -> None:
    """Check the microbatch group size against PP and the number of microbatches, by the interleaved schedule in
    core/pipeline_parallel/schedules.py."""
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
    """Check for tensor-parallel training without sequence parallelism: core/transformer/moe/moe_layer.py,
    MoELayer.forward."""

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
    """Check that this GPU supports the number format: transformer_engine/pytorch/quantization.py."""
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


UNTURNED = (
    "captured attention gets no rotary_pos_emb ({positions}): its graph is made without positions, and a replay drops "
    "them (megatron/core/transformer/cuda_graphs.py:2306, transformer_engine/pytorch/graph.py:1190)"
)


def ask_stage(config: Any, chunks: Sequence[Any], groups: Any) -> tuple[list[Refusal], list[str]]:
    """Return the refusals for the model chunks of one rank, and cautions about silent errors. Call inside
    `meta_device`."""
    refused: list[Refusal] = []
    cautions: list[str] = []
    if config.model.overlap_moe_expert_parallel_comm:
        _try(refused, "overlap", lambda: [_overlapped_schedule(config, chunk) for chunk in chunks])
    if config.model.cuda_graph_impl == "transformer_engine":
        _try(refused, "graphs", lambda: cautions.extend(_captured(config, chunks, groups)))
    return refused, cautions


def _overlapped_schedule(config: Any, chunk: Any) -> None:
    """Plan the layers as core/pipeline_parallel/combined_1f1b.py:381-386 does."""
    import torch

    wrapped: Any = importlib.import_module("megatron.core.utils").get_attr_wrapped_model
    model = wrapped(chunk, "build_schedule_plan", return_model_obj=True)
    tokens = torch.zeros((config.train.micro_batch_size, config.model.seq_length), dtype=torch.long)
    model.build_schedule_plan(tokens, tokens, None, labels=tokens, loss_mask=tokens)


def _captured(config: Any, chunks: Sequence[Any], groups: Any) -> list[str]:
    """Collect the captured layers and their graph inputs as TECudaGraphHelper does (core/transformer/cuda_graphs.py),
    and return cautions. Needs the microbatch calculator."""
    graphs: Any = importlib.import_module("megatron.core.transformer.cuda_graphs")
    variables = {name: str(value) for name, value in (getattr(config, "env_vars", None) or {}).items()}
    takes = inspect.signature(graphs.TECudaGraphHelper).parameters
    own = {"pg_collection": groups} if "pg_collection" in takes else {}  # not before Megatron-Core 0.18
    with patch.dict(os.environ, variables):
        helper = graphs.TECudaGraphHelper(
            chunks, config.model, config.model.seq_length, config.train.micro_batch_size, **own
        )
    if not helper.flattened_callables:
        return []
    _, made = helper._get_cuda_graph_input_data()
    # Shared code rotates positions for captured attention, except for latent attention, which rotates its own
    model = config.model
    modules = model.cuda_graph_modules if hasattr(model, "cuda_graph_modules") else model.cuda_graph_scope
    if not (not model.multi_latent_attention and (not modules or "attn" in {m.name for m in modules})):
        return []
    turned = all("rotary_pos_emb" in given for given in made.get("sample_kwargs") or () if given is not None)
    positions = {c.position_embedding_type for c in helper.chunks_with_decoder if c is not None}
    return [] if turned or "none" in positions else [UNTURNED.format(positions=", ".join(sorted(positions)))]


def _nothing(*args: object, **kwargs: object) -> None:
    """Replace a communicator of Transformer Engine, which needs connected GPUs."""


_EXTENSION = SimpleNamespace(
    device_supports_multicast=lambda: True,
    ubuf_built_with_mpi=lambda: False,
    get_stream_priority_range=lambda: (0, -1),
    CommOverlapType=SimpleNamespace(RS=0, AG=1),
    CommOverlapHelper=_nothing,
    CommOverlap=_nothing,
    CommOverlapP2P=_nothing,
)


def make_user_buffers(config: Any) -> None:
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
