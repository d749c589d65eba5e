"""What a rank holds on its GPU outside torch's allocator: the driver, NCCL, and the buffers of DeepEP or HybridEP.

Ranges in bytes. NCCL is by its documented defaults (NCCL_BUFFSIZE 4 MiB; 2 to 32 channels); DeepEP and HybridEP by how
their buffers are sized, `core transformer/moe/fused_a2a.py:35` and `:339` being where Megatron-Core asks for them.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from moedsl.axes import BY_NAME
from moedsl.facts import Model

GIB, MIB = 2**30, 2**20
DRIVER = (0.9 * GIB, 1.8 * GIB)
"""What the driver keeps of the memory it shows, and the CUDA context with its modules."""
GROUP = (0.06 * GIB, 0.45 * GIB)
"""A communicator: rings of 2 to 16 channels, each with buffers of NCCL's three protocols (4 + 0.5 + 4.7 MiB) for a
neighbour, trees beside the rings at the most."""
PEER = (4 * MIB, 19 * MIB)
"""A peer of an all-to-all or of a pipeline: one channel's Simple buffer, to two channels with all three protocols."""
CHUNK = {"send": 36, "receive": 288, "network": 128}
"""Tokens of DeepEP's chunks for groups of 16 and more, the largest of its defaults."""
CHANNELS = 10
"""DeepEP's channels: half of its 20 SMs."""
PER_TOKEN = 128 * 8
"""Bytes beside a token in DeepEP's buffers: indices, weights and scales for up to 128 experts."""


@frozen
class Part:
    """One holder of memory outside torch; bytes."""

    name: str
    least: float
    most: float
    because: str


def parts(m: Model, row: Mapping[str, int], gpus: int, seq: int) -> list[Part]:
    """Everything outside torch on a rank of a layout (axis to code); empty parts are left out."""
    found = [
        Part("driver and CUDA context", *DRIVER, "the driver's share of what it shows, kernels, stacks and the heap"),
        _nccl(row, gpus),
        _dispatcher(m, row, seq),
    ]
    return [p for p in found if p.most > 0]


def _nccl(row: Mapping[str, int], gpus: int) -> Part:
    """The groups of Megatron-Core with more than one rank, and the peers of those that send from rank to rank."""
    sizes = groups(row, gpus)
    wide = sum(n > 1 for n in sizes.values())
    peers = (row["ep"] * row["etp"] - 1) * (_word(row) == "alltoall") + 2 * (row["pp"] > 1)
    least, most = (g * wide + p * peers for g, p in zip(GROUP, PEER, strict=True))
    names = ", ".join(f"{name} {n}" for name, n in sizes.items() if n > 1)
    because = f"{wide} groups of more than one rank ({names}) and {peers} peers, by NCCL's defaults"
    return Part("NCCL", least, most, because)


def groups(row: Mapping[str, int], gpus: int) -> dict[str, int]:
    """Ranks of each process group of Megatron-Core that a layout communicates in."""
    tp, cp, pp, ep, etp = (row[name] for name in ("tp", "cp", "pp", "ep", "etp"))
    dp = max(gpus // (tp * cp * pp), 1)
    expert = max(gpus // (etp * ep * pp), 1)
    return {"world": gpus, "tp": tp, "cp": cp, "dp x cp": dp * cp, "pp": pp, "ep": ep, "etp": etp, "edp": expert}


def _word(row: Mapping[str, int]) -> str:
    return str(BY_NAME["dispatcher"].decode(row["dispatcher"]))


def _dispatcher(m: Model, row: Mapping[str, int], seq: int) -> Part:
    ranks = row["ep"] * row["etp"]
    tokens = row["micro_batch"] * seq / (row["cp"] * row["tp"])
    if _word(row) == "hybridep" and ranks > 1:
        return _hybridep(tokens * ranks * m.hidden * 2.0)
    if _word(row) == "deepep" and ranks > 1:
        return _deepep(m.hidden * 2.0 + PER_TOKEN, min(ranks, 8), -(-ranks // 8))
    return Part("dispatcher", 0.0, 0.0, "an all-to-all by NCCL has no buffers of its own")


def _hybridep(whole: float) -> Part:
    """One or two buffers of every token of the group."""
    because = "HybridEP registers buffers in which every token of the expert group has a place: one for dispatch, and "
    return Part("HybridEP buffers", whole, 2 * whole, because + "one for combine unless they share it")


def _deepep(token: float, local: int, nodes: int) -> Part:
    """NVLink: a chunk for each channel and local rank; network: sent and received chunks for each channel and node."""
    nvlink = CHANNELS * local * CHUNK["receive"] * token
    network = CHANNELS * nodes * 2 * CHUNK["network"] * token * (nodes > 1)
    because = f"DeepEP's chunks for {local} ranks over NVLink and {nodes} nodes, {CHANNELS} channels each"
    return Part("DeepEP buffers", 0.5 * (nvlink + network), 1.5 * (nvlink + network), because)
