"""Estimate what a rank holds outside torch's allocator: the driver, the context, NCCL, and the buffers of DeepEP or
HybridEP.

Ranges in bytes, from the calibration. NCCL follows its documented defaults. DeepEP and HybridEP follow the sizes of
their buffers; Megatron-Core asks for them in `core transformer/moe/fused_a2a.py:35` and `:339`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike, NDArray

from moedsl.cost.blocks import routed_width
from moedsl.facts.axes import BY_NAME
from moedsl.facts.calibration import Constants
from moedsl.facts.facts import Hardware, Model

COLUMNS = ("tp", "cp", "pp", "ep", "etp", "micro_batch", "dispatcher")
"""The axes that this memory depends on."""
ALLTOALL, DEEPEP, HYBRIDEP = (BY_NAME["dispatcher"].encode(w) for w in ("alltoall", "deepep", "hybridep"))
NVLINK_RANKS = 8
"""Ranks that DeepEP reaches over NVLink."""
HYBRIDEP_BECAUSE = (
    "HybridEP registers buffers in which every token of the expert group has a place: one for dispatch, and one for "
    "combine unless they share it"
)


@frozen
class Part:
    """One holder of memory outside torch; bytes."""

    name: str
    least: float
    most: float
    because: str


def parts(hw: Hardware, m: Model, row: Mapping[str, int], gpus: int, seq: int) -> list[Part]:
    """Return everything outside torch on a rank of a layout (axis to code), without empty parts."""
    # Count Megatron-Core's groups with more than one rank, and the peers of those that send from rank to rank
    sizes = groups(row, gpus)
    wide, peers = sum(n > 1 for n in sizes.values()), _peers(row)
    group, peer = hw.constants.ends("nccl_group"), hw.constants.ends("nccl_peer")
    names = ", ".join(f"{name} {n}" for name, n in sizes.items() if n > 1)
    because = f"{wide} groups of more than one rank ({names}) and {peers} peers, by NCCL's defaults"
    found = [
        _part("driver", reserved(hw), "what nvidia-smi shows and no program gets: torch's total_memory is less by it"),
        _part("CUDA context", hw.constants.ends("context"), "kernels as they are loaded, stacks and the heap"),
        _part("NCCL", {case: group[case] * wide + peer[case] * peers for case in group}, because),
        _dispatcher(hw.constants, m, row, seq),
    ]
    return [p for p in found if p.most > 0]


def _part(name: str, ends: Mapping[str, float], because: str) -> Part:
    return Part(name, ends["low"], ends["high"], because)


def reserved(hw: Hardware) -> dict[str, float]:
    """Return what the driver keeps of the memory in which a layout must fit, by case. A data sheet's figure, where it
    is all that is known, is less than a program gets."""
    if hw.visible and not hw.torch_total:
        return hw.constants.ends("driver")
    return dict.fromkeys(("low", "best", "high"), hw.shown - hw.total)


def total(
    hw: Hardware, m: Model, cols: Mapping[str, ArrayLike], gpus: int, seq: int, case: str
) -> NDArray[np.floating[Any]]:
    """Return the bytes of all parts in a case, by row of some columns of axes."""
    c = {n: np.asarray(cols[n]) for n in COLUMNS}
    sizes, (hybridep, deepep) = groups(c, gpus), _buffers(hw.constants, m, c, seq)
    wide = sum((np.asarray(n) > 1) * 1.0 for n in sizes.values())
    names = ("context", "nccl_group", "nccl_peer", "hybridep_copies", "deepep_chunks")
    context, group, peer, hybrid, deep = (hw.constants.ends(name)[case] for name in names)
    return reserved(hw)[case] + context + group * wide + peer * _peers(c) + hybrid * hybridep + deep * deepep


def _peers(c: Mapping[str, Any]) -> Any:
    """Return the bytes of groups that send from rank to rank."""
    return (c["ep"] * c["etp"] - 1) * (c["dispatcher"] == ALLTOALL) + 2 * (c["pp"] > 1)


def groups(row: Mapping[str, Any], gpus: int) -> dict[str, Any]:
    """Count the ranks of each process group of Megatron-Core in which a layout communicates; columns give columns."""
    tp, cp, pp, ep, etp = (row[name] for name in ("tp", "cp", "pp", "ep", "etp"))
    dp, expert = np.maximum(gpus // (tp * cp * pp), 1), np.maximum(gpus // (etp * ep * pp), 1)
    return {"world": gpus, "tp": tp, "cp": cp, "dp x cp": dp * cp, "pp": pp, "ep": ep, "etp": etp, "edp": expert}


def _buffers(k: Constants, m: Model, c: Mapping[str, Any], seq: int) -> tuple[Any, Any]:
    """Return (HybridEP, DeepEP): bytes of one buffer for every token of the expert group, and of all chunks; by row.

    DeepEP over NVLink has a chunk for each channel and local rank. Over the network it has sent and received chunks for
    each channel and node.
    """
    ranks, tokens = c["ep"] * c["etp"], c["micro_batch"] * seq / (c["cp"] * c["tp"])
    local, nodes = np.minimum(ranks, NVLINK_RANKS), -(-ranks // NVLINK_RANKS)
    token = k.deepep_channels * (routed_width(m) * 2.0 + k.deepep_token)
    nvlink = local * k.deepep_tokens * token
    network = nodes * 2 * k.deepep_network_tokens * token * (nodes > 1)
    whole = tokens * ranks * routed_width(m) * 2.0
    return whole * ((c["dispatcher"] == HYBRIDEP) & (ranks > 1)), (nvlink + network) * (
        (c["dispatcher"] == DEEPEP) & (ranks > 1)
    )


def _dispatcher(k: Constants, m: Model, row: Mapping[str, int], seq: int) -> Part:
    ranks, (hybridep, deepep) = row["ep"] * row["etp"], map(float, _buffers(k, m, row, seq))
    if hybridep:
        ends = k.ends("hybridep_copies")
        return _part("HybridEP buffers", {case: n * hybridep for case, n in ends.items()}, HYBRIDEP_BECAUSE)
    if deepep:
        local, nodes = min(ranks, NVLINK_RANKS), -(-ranks // NVLINK_RANKS)
        each = f"{k.deepep_channels:g} channels each"
        because = f"DeepEP's chunks for {local} ranks over NVLink and {nodes} nodes, {each}"
        return _part("DeepEP buffers", {case: n * deepep for case, n in k.ends("deepep_chunks").items()}, because)
    return Part("dispatcher", 0.0, 0.0, "an all-to-all by NCCL has no buffers of its own")
