"""Estimate what a rank holds outside torch's allocator: the driver, the context, NCCL, and the buffers of DeepEP or
HybridEP.

Ranges in bytes. NCCL follows its documented defaults (NCCL_BUFFSIZE 4 MiB; 2 to 32 channels). DeepEP and HybridEP
follow the sizes of their buffers; Megatron-Core asks for them in `core transformer/moe/fused_a2a.py:35` and `:339`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from moedsl.cost.blocks import routed_width
from moedsl.schema.axes import BY_NAME
from moedsl.schema.facts import Hardware, Model
from moedsl.schema.frozen import frozen
from moedsl.schema.units import GIB

MIB = 2**20
COLUMNS = ("tp", "cp", "pp", "ep", "etp", "micro_batch", "dispatcher")
"""The axes that this memory depends on."""
HELD_BACK = 0.03
"""The share that torch's allocator reserves above what is allocated, at most: 158.22 and 162.29 GiB, 101.51 and 103.96
GiB in published runs with expandable segments (Nemotron 3.5 Lightning, 8 GB200)."""
RESERVED = (0.3 * GIB, 1.1 * GIB)
"""The visible memory that the driver keeps from programs, on GPUs whose `torch_total` is not stated: its range over the
GPUs for which both are known."""
CONTEXT = (0.45 * GIB, 1.35 * GIB)
"""The CUDA context of a process: its kernels as they are loaded, stacks and the heap."""
GROUP = (0.06 * GIB, 0.45 * GIB)
"""A communicator: rings of 2 to 16 channels, each with buffers of NCCL's three protocols (4 + 0.5 + 4.7 MiB) for a
neighbour, and at most trees in addition to the rings."""
PEER = (4 * MIB, 19 * MIB)
"""A peer of an all-to-all or of a pipeline: one channel's Simple buffer, to two channels with all three protocols."""
CHUNK = {"send": 36, "receive": 288, "network": 128}
"""Tokens of DeepEP's chunks for groups of 16 and more, the largest of its defaults."""
CHANNELS = 10
"""DeepEP's channels: half of its 20 SMs."""
ALLTOALL, DEEPEP, HYBRIDEP = (BY_NAME["dispatcher"].encode(w) for w in ("alltoall", "deepep", "hybridep"))
HYBRIDEP_COPIES, DEEPEP_CHUNKS = (1.0, 2.0), (0.5, 1.5)
"""Buffers of HybridEP for every token of the group, and the share of DeepEP's chunks."""
SHARES = {"low": 0.0, "best": 0.5, "high": 1.0}
"""Where each case lies between the least and the most."""
PER_TOKEN = 128 * 8
"""Bytes for a token in DeepEP's buffers besides itself: indices, weights and scales for up to 128 experts."""


@frozen
class Part:
    """One holder of memory outside torch; bytes."""

    name: str
    least: float
    most: float
    because: str


def parts(hw: Hardware, m: Model, row: Mapping[str, int], gpus: int, seq: int) -> list[Part]:
    """Return everything outside torch on a rank of a layout (axis to code), without empty parts."""
    found = [
        Part("driver", *reserved(hw), "what nvidia-smi shows and no program gets: torch's total_memory is less by it"),
        Part("CUDA context", *CONTEXT, "kernels as they are loaded, stacks and the heap"),
        _nccl(row, gpus),
        _dispatcher(m, row, seq),
    ]
    return [p for p in found if p.most > 0]


def reserved(hw: Hardware) -> tuple[float, float]:
    """Return the least and the most that the driver keeps of the memory in which a layout must fit. A data sheet's
    figure, where it is all that is known, is less than a program gets."""
    if hw.torch_total:
        return hw.shown - hw.torch_total, hw.shown - hw.torch_total
    return RESERVED if hw.visible else (0.0, 0.0)


def total(
    hw: Hardware, m: Model, cols: Mapping[str, ArrayLike], gpus: int, seq: int, case: str
) -> NDArray[np.floating[Any]]:
    """Return the bytes of all parts in a case, by row of some columns of axes; the best case is the middle."""
    c = {n: np.asarray(cols[n]) for n in COLUMNS}
    sizes, (hybridep, deepep) = groups(c, gpus), _buffers(m, c, seq)
    wide = sum((np.asarray(n) > 1) * 1.0 for n in sizes.values())
    ranges = (reserved(hw), CONTEXT, GROUP, PEER, HYBRIDEP_COPIES, DEEPEP_CHUNKS)
    driver, context, group, peer, hybrid, deep = (least + SHARES[case] * (most - least) for least, most in ranges)
    return driver + context + group * wide + peer * _peers(c) + hybrid * hybridep + deep * deepep


def _peers(c: Mapping[str, Any]) -> Any:
    """Return the bytes of groups that send from rank to rank."""
    return (c["ep"] * c["etp"] - 1) * (c["dispatcher"] == ALLTOALL) + 2 * (c["pp"] > 1)


def _nccl(row: Mapping[str, int], gpus: int) -> Part:
    """Count Megatron-Core's groups with more than one rank, and the peers of those that send from rank to rank."""
    sizes = groups(row, gpus)
    wide, peers = sum(n > 1 for n in sizes.values()), _peers(row)
    least, most = (g * wide + p * peers for g, p in zip(GROUP, PEER, strict=True))
    names = ", ".join(f"{name} {n}" for name, n in sizes.items() if n > 1)
    because = f"{wide} groups of more than one rank ({names}) and {peers} peers, by NCCL's defaults"
    return Part("NCCL", least, most, because)


def groups(row: Mapping[str, Any], gpus: int) -> dict[str, Any]:
    """Count the ranks of each process group of Megatron-Core in which a layout communicates; columns give columns."""
    tp, cp, pp, ep, etp = (row[name] for name in ("tp", "cp", "pp", "ep", "etp"))
    dp, expert = np.maximum(gpus // (tp * cp * pp), 1), np.maximum(gpus // (etp * ep * pp), 1)
    return {"world": gpus, "tp": tp, "cp": cp, "dp x cp": dp * cp, "pp": pp, "ep": ep, "etp": etp, "edp": expert}


def _buffers(m: Model, c: Mapping[str, Any], seq: int) -> tuple[Any, Any]:
    """Return (HybridEP, DeepEP): bytes of one buffer for every token of the expert group, and of all chunks; by row.

    DeepEP over NVLink has a chunk for each channel and local rank. Over the network it has sent and received chunks for
    each channel and node.
    """
    ranks, tokens = c["ep"] * c["etp"], c["micro_batch"] * seq / (c["cp"] * c["tp"])
    local, nodes, token = np.minimum(ranks, 8), -(-ranks // 8), routed_width(m) * 2.0 + PER_TOKEN
    nvlink = CHANNELS * local * CHUNK["receive"] * token
    network = CHANNELS * nodes * 2 * CHUNK["network"] * token * (nodes > 1)
    whole = tokens * ranks * routed_width(m) * 2.0
    return whole * ((c["dispatcher"] == HYBRIDEP) & (ranks > 1)), (nvlink + network) * (
        (c["dispatcher"] == DEEPEP) & (ranks > 1)
    )


def _dispatcher(m: Model, row: Mapping[str, int], seq: int) -> Part:
    ranks, (hybridep, deepep) = row["ep"] * row["etp"], map(float, _buffers(m, row, seq))
    if hybridep:
        return _hybridep(hybridep)
    if deepep:
        return _deepep(deepep, min(ranks, 8), -(-ranks // 8))
    return Part("dispatcher", 0.0, 0.0, "an all-to-all by NCCL has no buffers of its own")


def _hybridep(whole: float) -> Part:
    """Return the bytes of one or two buffers of every token of the group."""
    because = "HybridEP registers buffers in which every token of the expert group has a place: one for dispatch, and "
    least, most = HYBRIDEP_COPIES
    return Part("HybridEP buffers", least * whole, most * whole, because + "one for combine unless they share it")


def _deepep(chunks: float, local: int, nodes: int) -> Part:
    """Return the bytes of half to one and a half of its chunks."""
    because = f"DeepEP's chunks for {local} ranks over NVLink and {nodes} nodes, {CHANNELS} channels each"
    least, most = DEEPEP_CHUNKS
    return Part("DeepEP buffers", least * chunks, most * chunks, because)
