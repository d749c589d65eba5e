"""Compute the process groups of both meshes from a layout, for every rank of the world.

Rank order of Megatron-Core (megatron/core/parallel_state.py, order "tp-cp-ep-dp-pp"): tp fastest, then cp (dense mesh)
or ep (expert mesh, where etp is fastest), then dp or edp, then pp; "tp-cp-ep-pp-dp" swaps the last two.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moedsl.facts.axes import ATTENTION, EXPERTS

Groups = dict[str, list[list[int]]]

_DENSE = {
    "TP": {"tp"},
    "CP": {"cp"},
    "DP": {"dp"},
    "DP_CP": {"cp", "dp"},
    "PP": {"pp"},
    "TP_CP": {"tp", "cp"},
    "TP_PP": {"tp", "pp"},
}
_EXPERT = {"ETP": {"etp"}, "EP": {"ep"}, "ETP_EP": {"etp", "ep"}, "EDP": {"edp"}}


def groups(layout: Mapping[str, Any], pp_before_dp: bool = False) -> Groups:
    """Every group by name, sorted, each a sorted list of global ranks.

    `layout` has the sizes tp cp dp pp ep etp edp. Raises ValueError if the two meshes have different numbers of ranks.
    """
    dense = _sizes(layout, ATTENTION, pp_before_dp)
    expert = _sizes(layout, EXPERTS, pp_before_dp)
    if prod(dense.values()) != prod(expert.values()):
        raise ValueError(f"the dense mesh has {prod(dense.values())} ranks, the expert mesh {prod(expert.values())}")
    out = {name: _vary(dense, axes) for name, axes in _DENSE.items()}
    return out | {name: _vary(expert, axes) for name, axes in _EXPERT.items()}


def world(layout: Mapping[str, Any]) -> int:
    """Count the ranks of the dense mesh of `layout`."""
    return prod(int(layout[axis]) for axis in ATTENTION)


def _sizes(layout: Mapping[str, Any], mesh: tuple[str, ...], pp_before_dp: bool) -> dict[str, int]:
    """The sizes of the axes, the fastest first."""
    *inner, data, pp = mesh
    outer = (pp, data) if pp_before_dp else (data, pp)
    return {axis: int(layout[axis]) for axis in (*inner, *outer)}


def rows(layout: Mapping[str, Any], *axes: str) -> NDArray[np.int64]:
    """The groups whose members differ only along these axes of one mesh, a row each."""
    mesh = ATTENTION if set(axes) <= set(ATTENTION) else EXPERTS
    return _table(_sizes(layout, mesh, False), set(axes))


def _vary(sizes: dict[str, int], axes: set[str]) -> list[list[int]]:
    return sorted(sorted(row) for row in _table(sizes, axes).tolist())


def _table(sizes: dict[str, int], axes: set[str]) -> NDArray[np.int64]:
    names = list(reversed(sizes))
    ranks = np.arange(prod(sizes.values())).reshape([sizes[n] for n in names])
    last = [n for n in names if n in axes]
    first = [n for n in names if n not in axes]
    return ranks.transpose([names.index(n) for n in (*first, *last)]).reshape(-1, prod(sizes[n] for n in last))
