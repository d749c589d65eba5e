"""What a rank sees inside `pretrain()`: its groups, its parameters, the losses of an iteration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any


def groups() -> dict[str, list[int]]:
    """The ranks of each of this rank's groups in Megatron-Core's state, by the names of `moedsl.schema.rank_groups`."""
    import torch.distributed as dist
    from megatron.core import parallel_state as state

    made: dict[str, Any] = {
        "TP": state.get_tensor_model_parallel_group(),
        "CP": state.get_context_parallel_group(),
        "DP": state.get_data_parallel_group(),
        "DP_CP": state.get_data_parallel_group(with_context_parallel=True),
        "PP": state.get_pipeline_model_parallel_group(),
        "TP_CP": state.get_tensor_and_context_parallel_group(),
        "TP_PP": state.get_model_parallel_group(),
        "EP": state.get_expert_model_parallel_group(),
        "ETP": state.get_expert_tensor_parallel_group(),
        "ETP_EP": state.get_expert_tensor_and_model_parallel_group(),
        "EDP": state.get_expert_data_parallel_group(),
    }
    return {name: sorted(dist.get_process_group_ranks(group)) for name, group in made.items()}


def parameters(chunks: Sequence[Any]) -> dict[str, int]:
    """Parameters of all virtual stages of this rank: those of experts, and the others."""
    sizes = {"dense": 0, "expert": 0}
    for chunk in chunks:
        for name, parameter in chunk.named_parameters():
            sizes["expert" if ".experts." in name else "dense"] += parameter.numel()
    return sizes


def digests(chunks: Sequence[Any]) -> dict[str, str]:
    """A hash of the values of this rank's parameters: those of experts, and the others."""
    hashes = {"dense": sha256(), "expert": sha256()}
    for chunk in chunks:
        for name, parameter in chunk.named_parameters():
            kind = "expert" if ".experts." in name else "dense"
            hashes[kind].update(parameter.detach().float().cpu().numpy().tobytes())
    return {kind: found.hexdigest()[:16] for kind, found in hashes.items()}


def losses(found: Mapping[str, Any] | None) -> dict[str, float]:
    """The reduced losses of an iteration; only the last stage has any."""
    return {name: float(value) for name, value in (found or {}).items()}
