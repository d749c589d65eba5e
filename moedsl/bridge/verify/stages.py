"""Ask Megatron-Core which ranks form each process group, and which parameters each pipeline stage has.

Groups come from torch's fake process group, parameters from the real model that Bridge builds on the meta device.
Tensors there have shapes and no memory, even where Megatron's code names cuda or cpu. Work that NVIDIA's code repeats
for each layer or process group is skipped where it changes no answer.
"""

from __future__ import annotations

import functools
import importlib
import logging
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from math import prod
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.hyper_comm_grid import HyperCommGrid
from torch.overrides import TorchFunctionMode

from moedsl.bridge.verify import stand_ins
from moedsl.bridge.verify.cases import Case, Mismatch
from moedsl.bridge.verify.stand_ins import be_rank
from moedsl.facts import machines

_generate = parallel_state.generate_masked_orthogonal_rank_groups
# Megatron-Core's group_desc (megatron/core/parallel_state.py) -> our name
NAMES = {
    "TENSOR_MODEL_PARALLEL_GROUP": "TP",
    "CONTEXT_PARALLEL_GROUP": "CP",
    "DATA_PARALLEL_GROUP": "DP",
    "DATA_PARALLEL_GROUP_WITH_CP": "DP_CP",
    "PIPELINE_MODEL_PARALLEL_GROUP": "PP",
    "TENSOR_AND_CONTEXT_PARALLEL_GROUP": "TP_CP",
    "MODEL_PARALLEL_GROUP": "TP_PP",
    "EXPERT_MODEL_PARALLEL_GROUP": "EP",
    "EXPERT_TENSOR_PARALLEL_GROUP": "ETP",
    "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP": "ETP_EP",
    "EXPERT_DATA_PARALLEL_GROUP": "EDP",
}
_OF_EXPERT_GRIDS = {"ep": "EP", "tp": "ETP", "tp ep": "ETP_EP", "dp": "EDP", "inner_dp outer_dp": "EDP"}
"""Dimensions of an expert grid -> our group name, for groups that Bridge makes from grids (dist.use_decentralized_pg):
bridge training/initialize.py:431-490. In other grids the dimensions themselves are the name."""


def layout_of(config: Any, world: int) -> dict[str, int]:
    """Return the parallel sizes of a config, for a case without a plan."""
    m = config.model
    tp, cp, pp = m.tensor_model_parallel_size, m.context_parallel_size, m.pipeline_model_parallel_size
    ep, etp = m.expert_model_parallel_size or 1, m.expert_tensor_parallel_size or tp
    dp, edp = world // (tp * cp * pp), world // (etp * ep * pp)
    return {"tp": tp, "cp": cp, "dp": dp, "pp": pp, "ep": ep, "etp": etp, "edp": edp}


def compare_groups(made: Made, config: Any, case: Case) -> tuple[dict[str, Any], tuple[Mismatch, ...]]:
    """Compare Megatron-Core's process groups with the expected ones.

    Return {count, sizes, matches} by group name, and a mismatch for each name that differs, with its first differing
    group.
    """
    layout: Mapping[str, Any] = case.plan.layout.to_json() if case.plan else layout_of(config, case.world)
    wanted = machines.rank_groups(layout, config.dist.use_tp_pp_dp_mapping)
    real = {NAMES[name]: sorted(lists) for name, lists in made.items() if name in NAMES}
    report = {
        name: {"count": len(lists), "sizes": sorted({len(g) for g in lists}), "matches": lists == wanted[name]}
        for name, lists in sorted(real.items())
    }
    found = [Mismatch(f"groups.{n}", len(wanted[n]), None, "Megatron-Core made none") for n in wanted if n not in real]
    for name in report:
        planned, asked = wanted[name], real[name]
        if len(planned) != len(asked):
            found.append(Mismatch(f"groups.{name}", f"{len(planned)} groups", f"{len(asked)} groups"))
        elif planned != asked:
            first = next((a, b) for a, b in zip(planned, asked, strict=True) if a != b)
            found.append(Mismatch(f"groups.{name}", first[0][:16], first[1][:16], "the first group that differs"))
    return report, tuple(found)


Made = dict[str, list[list[int]]]
"""Megatron-Core's group description -> the ranks of every group made with it."""


@contextmanager
def _recorded(made: Made, alone: bool) -> Generator[None]:
    """Record the groups that Megatron-Core makes, by their descriptions.

    Each rank makes the groups of all ranks; with `alone`, only groups that contain this rank are made and recorded.
    Backend and NCCL options (high-priority streams) are dropped, because there are no GPUs.
    """
    real, real_of_grid, me = dist.new_group, HyperCommGrid.create_pg, dist.get_rank()

    def new_group(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
        if alone and me not in (ranks or [me]):
            return dist.GroupMember.NON_GROUP_MEMBER
        if kwargs.get("group_desc"):
            made.setdefault(kwargs["group_desc"], []).append(sorted(ranks))
        return real(ranks, *args, **kwargs | {"backend": None, "pg_options": None})

    def create_pg(grid: HyperCommGrid, dims: list[str], **kwargs: Any) -> Any:
        words = " ".join(dims)
        name = _OF_EXPERT_GRIDS.get(words) if "ep" in grid.dim_names else words.upper().replace(" ", "_")
        description = next((theirs for theirs, ours in NAMES.items() if ours == name), None)
        return real_of_grid(grid, dims, **kwargs | {"group_desc": description})

    with (
        patch.object(dist, "new_group", new_group),
        patch.object(dist.distributed_c10d, "new_group", new_group),  # for new_subgroups_by_enumeration
        patch.object(HyperCommGrid, "create_pg", create_pg),
    ):
        yield


@functools.cache
def _rank_lists(world_size: int, parallel_size: tuple[int, ...], mask: tuple[bool, ...]) -> list[list[int]]:
    """Return Megatron-Core's rank lists, cached: they are the same for every rank, and take a second for a thousand
    GPUs."""
    return _generate(world_size, [*parallel_size], [*mask])


def initialise(config: Any, world: int, rank: int, alone: bool = False) -> tuple[Any, Made]:
    """Make the process groups of `rank`, in place of earlier ones; return Bridge's collection, and all groups of the
    world.

    `alone` skips groups without this rank, which saves seconds on a thousand GPUs.
    """
    from torch.testing._internal.distributed.fake_pg import FakeStore

    initialize: Any = importlib.import_module("megatron.bridge.training.initialize")

    def generate(world_size: int, parallel_size: Sequence[int], mask: Sequence[bool]) -> list[list[int]]:
        return [[*ranks] for ranks in _rank_lists(world_size, (*parallel_size,), (*mask,))]

    parallel_state.generate_masked_orthogonal_rank_groups = generate
    parallel_state.destroy_model_parallel()
    if dist.is_initialized():
        dist.destroy_process_group()
    be_rank(rank, world)
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    made: Made = {}
    gloo, config.dist.use_gloo_process_groups = config.dist.use_gloo_process_groups, False
    try:
        with _recorded(made, alone), redirect_stdout(sys.stderr):
            copies = config.ddp.num_distributed_optimizer_instances
            groups = initialize._initialize_distributed(config.model, config.dist, copies, None, None)
    finally:
        config.dist.use_gloo_process_groups = gloo
    return groups, made


_DECODER = "decoder.layers."
Look = Callable[[list[Any], Any], None]
"""A callback that checks a stage's model chunks, given with their process groups, on the meta device."""


def count(config: Any, case: Case, pp_ranks: list[int], look: Look) -> tuple[list[dict[str, Any]], int]:
    """Count parameters: {stage, rank, dense, expert, chunks} for one rank of each stage, and the total of the whole
    model.

    `expert` counts the parameters with `.experts.` in their name. `look` is called for each stage.
    """
    from megatron.core.enums import ModelType

    provider: Any = importlib.import_module("megatron.bridge.models.model_provider")
    prepare(config.model)
    whole: dict[str, int] = {}
    stages: list[dict[str, Any]] = []
    for stage, rank in enumerate(pp_ranks):
        groups, _ = initialise(config, case.world, rank, alone=True)
        config.model._pg_collection = groups
        config.model.perform_initialization = False  # the adapters of an earlier stage switch it on
        with meta_device():
            chunks = provider._create_model(config.model, ModelType.encoder_or_decoder, groups)
            chunks = chunks if isinstance(chunks, list) else [chunks]
            if config.peft is not None:
                # add the adapters, as training does after it has read the weights (megatron/bridge/training/setup.py:
                # 642); on the meta device no rank has parameters to send to the others
                kind: Any = importlib.import_module("megatron.bridge.peft.utils").ParallelLinearAdapter
                kind._synchronize_shared_expert_parameters = lambda self: None
                chunks = config.peft(chunks)
            for chunk in chunks:
                whole.update(_unique(chunk, groups))
            look(chunks, groups)
        # Count the dense and expert parameters of each model chunk, its decoder layers, those with experts, and its
        # `mtp` blocks
        described: list[dict[str, int]] = []
        for chunk in chunks:
            sizes = {"dense": 0, "expert": 0}
            names = dict(chunk.named_parameters())
            for name, parameter in names.items():  # `allreduce` marks experts only if EP > 1
                sizes["expert" if ".experts." in name else "dense"] += parameter.numel()
            language = getattr(chunk, "language_model", chunk)
            mtp = getattr(language, "mtp", None)
            layers = {"layers": len(language.decoder.layers), "mtp": len(mtp.layers) if mtp is not None else 0}
            mixed = {
                name.split(".layers.")[1].split(".")[0] for name in names if ".experts." in name and _DECODER in name
            }
            described.append(sizes | layers | {"mixed": len(mixed)})
        total = {kind: sum(c[kind] for c in described) for kind in ("dense", "expert")}
        stages.append({"stage": stage, "rank": rank, **total, "chunks": described})
    return stages, sum(whole.values())


def prepare(model: Any) -> None:
    """Configure the model to build shapes only: no initialisation, quantised copies, fused gradient buffers or kernel
    packages."""

    def absent(*args: object, **kwargs: object) -> None:
        raise RuntimeError("a package of compiled kernels is absent")

    module: Any = importlib.import_module("megatron.core.transformer.moe.token_dispatcher")
    # make DeepEP, HybridEP and NCCL EP look installed: dispatchers test whether their functions are None
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


def _unique(model: Any, groups: Any) -> Iterator[tuple[str, int]]:
    """Yield each checkpoint key of the parameters, with its size over all ranks.

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


class _Nothing:
    """A CUDA stream or event that does nothing."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


class _ToMeta(TorchFunctionMode):
    """Replaces every device argument of torch functions with the meta device."""

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.Tensor.cuda, torch.tril):  # torch takes a millisecond for the shape of each causal mask
            return args[0]
        if kwargs.get("device") is not None:
            kwargs["device"] = _META
        if func is torch.Tensor.to:
            args = (args[0], *(_META if self.is_device(value) else value for value in args[1:]))
        return func(*args, **kwargs)

    @staticmethod
    def is_device(value: Any) -> bool:
        """Whether an argument of `to` is a device, a device name or a device number."""
        is_name = isinstance(value, str) and value.split(":")[0] in ("cuda", "cpu")
        is_number = isinstance(value, int) and not isinstance(value, bool)
        return is_name or is_number or isinstance(value, torch.device)


@contextmanager
def meta_device() -> Generator[None]:
    """Make tensors on the meta device, without storage, and give torch.cuda streams without a GPU."""
    with patch.multiple(torch.cuda, Stream=_Nothing, Event=_Nothing, current_stream=_Nothing), _META, _ToMeta():
        yield


_YARN = "megatron.core.models.common.embeddings.yarn_rotary_pos_embedding"


@functools.cache
def skip_repetitions() -> None:
    """Skip work that NVIDIA's code repeats for each layer or group and that changes no answer; patches the whole
    process."""
    utils: Any = importlib.import_module("megatron.core.utils")
    if utils.HAVE_PACKAGING:
        utils.PkgVersion = functools.cache(utils.PkgVersion)  # each group compares versions (parallel_state.py:249)
    # each latent attention makes its own table of cosines and sines: defer it to the first forward
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
