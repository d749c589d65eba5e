"""Question: which ranks form each process group. Megatron-Core's answer against the meshes computed from the layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moedsl.schema import rank_groups
from moedsl.verify.case import Case
from moedsl.verify.distributed import Made
from moedsl.verify.report import Mismatch

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


def layout_of(config: Any, world: int) -> dict[str, int]:
    """The sizes that a config without a plan asks for."""
    m = config.model
    tp, cp, pp = m.tensor_model_parallel_size, m.context_parallel_size, m.pipeline_model_parallel_size
    ep, etp = m.expert_model_parallel_size or 1, m.expert_tensor_parallel_size or tp
    dp, edp = world // (tp * cp * pp), world // (etp * ep * pp)
    return {"tp": tp, "cp": cp, "dp": dp, "pp": pp, "ep": ep, "etp": etp, "edp": edp}


def compare(made: Made, config: Any, case: Case) -> tuple[dict[str, Any], tuple[Mismatch, ...]]:
    """Each family {count, sizes, matches}, and a mismatch for each that differs, with the first group that does."""
    layout: Mapping[str, Any] = case.plan.layout.to_json() if case.plan else layout_of(config, case.world)
    wanted = rank_groups.groups(layout, config.dist.use_tp_pp_dp_mapping)
    real = {NAMES[name]: sorted(lists) for name, lists in made.items() if name in NAMES}
    report = {name: _describe(lists, wanted[name]) for name, lists in sorted(real.items())}
    missing = tuple(
        Mismatch(f"groups.{n}", len(wanted[n]), None, "Megatron-Core made none") for n in wanted if n not in real
    )
    differing = tuple(_difference(n, wanted[n], real[n]) for n, described in report.items() if not described["matches"])
    return report, (*missing, *differing)


def _describe(lists: list[list[int]], wanted: list[list[int]]) -> dict[str, Any]:
    return {"count": len(lists), "sizes": sorted({len(g) for g in lists}), "matches": lists == wanted}


def _difference(name: str, wanted: list[list[int]], real: list[list[int]]) -> Mismatch:
    if len(wanted) != len(real):
        return Mismatch(f"groups.{name}", f"{len(wanted)} groups", f"{len(real)} groups")
    first = next(i for i, (a, b) in enumerate(zip(wanted, real, strict=True)) if a != b)
    return Mismatch(f"groups.{name}", wanted[first][:16], real[first][:16], "the first group that differs")
