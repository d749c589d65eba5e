"""What Megatron-Core hands to DeepEP and HybridEP, whose own code is in no wheel: JSON on stdout.

Their classes are stood in for and say what they were asked for. Run as a script where Bridge is installed.
"""

import importlib
from collections import Counter
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from moedsl.bridge.verify import stand_ins
from tests.oracles.ask_training import tell

NODE = 8
HIDDEN = 16


def groups() -> dict[str, bool]:
    """Whether each expert group of 48 ranks has as many of its ranks on every node that it touches, by ETP and EP."""
    ranks: Any = importlib.import_module("megatron.core.parallel_state").RankGenerator
    out = {}
    for etp, ep in ((1, 2), (1, 3), (1, 4), (1, 6), (1, 8), (1, 12), (1, 16), (2, 2), (2, 3), (2, 4), (4, 4)):
        made = ranks(tp=etp, ep=ep, dp=48 // (etp * ep), pp=1, cp=1, order="tp-cp-ep-dp-pp")
        shares = [Counter(rank // NODE for rank in group) for group in made.get_ranks("tp-ep")]
        out[f"{etp} {ep}"] = all({*share.values()} == {min(etp * ep, NODE)} for share in shares)
    return out


def topk() -> dict[str, int]:
    """The experts of a token that the DeepEP dispatcher asks for, by topk and ETP."""
    module: Any = importlib.import_module("megatron.core.transformer.moe.token_dispatcher")
    asked: list[int] = []
    out = {}
    with (
        patch.object(module, "_DeepepManager", lambda **words: asked.append(words["router_topk"])),
        patch.object(module.utils, "get_pg_size", lambda group: group.size()),
    ):
        for k, etp in ((8, 1), (8, 4), (8, 8), (22, 1), (22, 2)):
            config = SimpleNamespace(moe_flex_dispatcher_backend="deepep", moe_router_topk=k, num_moe_experts=64)
            sized = {"ep": 4, "expt_tp": etp, "tp_ep": 4 * etp}
            made = {n: SimpleNamespace(size=lambda n=size: n) for n, size in sized.items()}
            module.MoEFlexTokenDispatcher(4, [0], config, SimpleNamespace(**made))
            out[f"{k} {etp}"] = asked[-1]
    return out


def settings() -> dict[str, list[int]]:
    """The number of ranks for which the settings of DeepEP are asked, by the size of the group."""
    module: Any = importlib.import_module("megatron.core.transformer.moe.fused_a2a")
    out: dict[str, list[int]] = {}

    class Buffer:
        def __init__(self, *args: Any) -> None: ...

        @staticmethod
        def get_dispatch_config(ranks: int) -> Any:
            out.setdefault(str(ranks), []).append(ranks)
            return SimpleNamespace(get_nvl_buffer_size_hint=lambda *a: 1, get_rdma_buffer_size_hint=lambda *a: 1)

        get_combine_config = get_dispatch_config

    with patch.object(module, "Buffer", Buffer, create=True):
        for ranks in (2, 3, 6, 8, 12):
            module._buffer = None
            module.get_buffer(SimpleNamespace(size=lambda n=ranks: n), HIDDEN)
    return out


def tokens() -> dict[str, int]:
    """The tokens of a rank that HybridEP makes its buffer for, by the rows that the dispatcher has."""
    import torch

    module: Any = importlib.import_module("megatron.core.transformer.moe.fused_a2a")
    asked: list[int] = []

    class Buffer:
        def __init__(self, *, max_num_of_tokens_per_rank: int, **words: Any) -> None:
            asked.append(max_num_of_tokens_per_rank)

        def dispatch_with_permute(self, *, hidden: Any, probs: Any, **words: Any) -> Any:
            return hidden, probs, None, None, None

    with patch.object(module, "HybridEPBuffer", Buffer, create=True):
        for rows in (64, 21824, 21845):
            module.reset_hybrid_ep_buffer()
            module.HybridEPDispatch.forward(SimpleNamespace(), torch.zeros(rows, HIDDEN), None, None, None, 4)
    return {str(n): n for n in asked}


def host_reads() -> dict[str, str]:
    """Where the alltoall dispatcher waits for numbers on the host, dropless and with a capacity that it pads to."""
    import torch

    module: Any = importlib.import_module("megatron.core.transformer.moe.token_dispatcher")
    out = {}
    for padded in (False, True):
        kind = module.MoEAlltoAllTokenDispatcher
        made = kind.__new__(kind)
        made.config = SimpleNamespace(
            moe_router_topk=2, moe_expert_capacity_factor=1.0 if padded else None, moe_permute_fusion=True,
            moe_router_padding_for_quantization=False,
        )  # fmt: skip
        made.drop_and_pad, made.moe_expert_capacity_factor = padded, 1.0
        made.num_experts = made.num_local_experts = 4
        made.tp_size = made.ep_size = 1
        made.permute_idx_device = "cpu"
        made.cuda_sync_point, made.cuda_dtoh_point = "no_sync", "before_permutation_1"
        points = ("before_permutation_1", "before_ep_alltoall", "before_permutation_2", "before_finish", "no_sync")
        made.cuda_sync_point_priority = {point: i for i, point in enumerate(points)}
        made.preprocess(torch.ones(8, 4, dtype=torch.bool))
        out["padded" if padded else "dropless"] = made.cuda_sync_point
    return out


if __name__ == "__main__":
    stand_ins.install_engine()
    tell((groups, topk, settings, tokens, host_reads))
