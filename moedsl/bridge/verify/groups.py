"""Ask Megatron-Core which ranks form each process group, over torch's fake process group."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any
from unittest.mock import patch

import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.hyper_comm_grid import HyperCommGrid

from moedsl.bridge.verify.cases import Case
from moedsl.bridge.verify.gpu import be_rank
from moedsl.bridge.verify.report import Mismatch
from moedsl.facts import rank_groups

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
_OF_GRIDS = {
    "tp": "TENSOR_MODEL_PARALLEL_GROUP",
    "cp": "CONTEXT_PARALLEL_GROUP",
    "dp": "DATA_PARALLEL_GROUP",
    "dp cp": "DATA_PARALLEL_GROUP_WITH_CP",
    "pp": "PIPELINE_MODEL_PARALLEL_GROUP",
    "tp cp": "TENSOR_AND_CONTEXT_PARALLEL_GROUP",
    "tp pp": "MODEL_PARALLEL_GROUP",
}
_OF_EXPERT_GRIDS = {
    "ep": "EXPERT_MODEL_PARALLEL_GROUP",
    "tp": "EXPERT_TENSOR_PARALLEL_GROUP",
    "tp ep": "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP",
    "dp": "EXPERT_DATA_PARALLEL_GROUP",
    "inner_dp outer_dp": "EXPERT_DATA_PARALLEL_GROUP",
}
"""The same groups where Bridge makes them by dimensions of a grid (dist.use_decentralized_pg): bridge
training/initialize.py:431-490."""


def layout_of(config: Any, world: int) -> dict[str, int]:
    """The sizes that a config without a plan states."""
    m = config.model
    tp, cp, pp = m.tensor_model_parallel_size, m.context_parallel_size, m.pipeline_model_parallel_size
    ep, etp = m.expert_model_parallel_size or 1, m.expert_tensor_parallel_size or tp
    dp, edp = world // (tp * cp * pp), world // (etp * ep * pp)
    return {"tp": tp, "cp": cp, "dp": dp, "pp": pp, "ep": ep, "etp": etp, "edp": edp}


def compare(made: Made, config: Any, case: Case) -> tuple[dict[str, Any], tuple[Mismatch, ...]]:
    """Each family {count, sizes, matches}, and for each that differs a mismatch with its first different group."""
    layout: Mapping[str, Any] = case.plan.layout.to_json() if case.plan else layout_of(config, case.world)
    wanted = rank_groups.groups(layout, config.dist.use_tp_pp_dp_mapping)
    real = {NAMES[name]: sorted(lists) for name, lists in made.items() if name in NAMES}
    report = {
        name: {"count": len(lists), "sizes": sorted({len(g) for g in lists}), "matches": lists == wanted[name]}
        for name, lists in sorted(real.items())
    }
    missing = tuple(
        Mismatch(f"groups.{n}", len(wanted[n]), None, "Megatron-Core made none") for n in wanted if n not in real
    )
    differing = tuple(_difference(n, wanted[n], real[n]) for n, described in report.items() if not described["matches"])
    return report, (*missing, *differing)


def _difference(name: str, wanted: list[list[int]], real: list[list[int]]) -> Mismatch:
    if len(wanted) != len(real):
        return Mismatch(f"groups.{name}", f"{len(wanted)} groups", f"{len(real)} groups")
    first = next(i for i, (a, b) in enumerate(zip(wanted, real, strict=True)) if a != b)
    return Mismatch(f"groups.{name}", wanted[first][:16], real[first][:16], "the first group that differs")


Made = dict[str, list[list[int]]]
"""For each of Megatron-Core's group descriptions, the ranks of every group made with it."""


@contextmanager
def _recorded(made: Made, alone: bool) -> Generator[None]:
    """Record the groups that Megatron-Core makes. Each rank makes the groups of all ranks and names each family.
    Without GPUs a group has no backend of its own, and no options of NCCL (streams of a higher priority). With `alone`,
    only its own are made and recorded."""
    real, real_of_grid, me = dist.new_group, HyperCommGrid.create_pg, dist.get_rank()

    def new_group(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
        if alone and me not in (ranks or [me]):
            return dist.GroupMember.NON_GROUP_MEMBER
        if kwargs.get("group_desc"):
            made.setdefault(kwargs["group_desc"], []).append(sorted(ranks))
        return real(ranks, *args, **kwargs | {"backend": None, "pg_options": None})

    def create_pg(grid: HyperCommGrid, dims: list[str], **kwargs: Any) -> Any:
        names = _OF_EXPERT_GRIDS if "ep" in grid.dim_names else _OF_GRIDS
        return real_of_grid(grid, dims, **kwargs | {"group_desc": names.get(" ".join(dims))})

    with (
        patch.object(dist, "new_group", new_group),
        patch.object(dist.distributed_c10d, "new_group", new_group),  # for new_subgroups_by_enumeration
        patch.object(HyperCommGrid, "create_pg", create_pg),
    ):
        yield


def _rank_lists(world_size: int, parallel_size: Sequence[int], mask: Sequence[bool]) -> list[list[int]]:
    """Ask Megatron-Core's function of this name once: its lists are the same for every rank, and take a second for a
    thousand GPUs."""
    return [[*ranks] for ranks in _asked_rank_lists(world_size, (*parallel_size,), (*mask,))]


@functools.cache
def _asked_rank_lists(world_size: int, parallel_size: tuple[int, ...], mask: tuple[bool, ...]) -> list[list[int]]:
    return _generate(world_size, [*parallel_size], [*mask])


def initialise(config: Any, world: int, rank: int, alone: bool = False) -> tuple[Any, Made]:
    """Make the process groups of `rank`: Bridge's collection, and all made for the world. Replaces earlier ones.

    `alone` leaves the groups of other ranks to them, which saves seconds on a thousand GPUs.
    """
    from torch.testing._internal.distributed.fake_pg import FakeStore

    initialize: Any = importlib.import_module("megatron.bridge.training.initialize")
    parallel_state.generate_masked_orthogonal_rank_groups = _rank_lists
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
