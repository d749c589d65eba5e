"""Fused causal attention, forward and backward: grouped queries, and latent attention with heads of 192 and 128.

Megatron calls Transformer Engine's DotProductAttention with the sequence first (core
extensions/transformer_engine.py:1950).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from gpu.case import TE, TORCH, Case
from gpu.engine import engine
from gpu.timing import Bench, Times

GQA = ((32, 4, 128), (64, 4, 128), (64, 8, 64), (16, 2, 256))
"""Heads, groups of queries and width of a head: Qwen3-30B, Qwen3-235B, GPT-OSS, Qwen3-Next."""
MLA = ((128, 128, 64, 128), (16, 128, 64, 128))
"""Heads, the parts of a key without and with rotary embedding, and the width of a value: DeepSeek-V3, Moonlight."""
LENGTHS = (4096, 16384, 65536)


def cases(bench: Bench) -> Iterator[Case]:
    """List the shapes of one sequence."""
    te = engine(bench)
    for seq in (64,) if bench.quick else LENGTHS:
        for heads, groups, dim in ((4, 2, 16),) if bench.quick else GQA:
            yield _case(te, "gqa", {"seq": seq, "heads": heads, "query_groups": groups, "head_dim": dim})
        for heads, nope, rope, value in ((4, 16, 8, 16),) if bench.quick else MLA:
            shape = {"seq": seq, "heads": heads, "qk_nope_dim": nope, "qk_rope_dim": rope, "v_head_dim": value}
            yield _case(te, "mla", shape)


def _case(te: Any, what: str, shape: dict[str, int]) -> Case:
    seq, heads = shape["seq"], shape["heads"]
    groups = shape.get("query_groups", heads)
    keys = shape.get("head_dim") or shape["qk_nope_dim"] + shape["qk_rope_dim"]
    values = shape.get("v_head_dim", keys)

    def run(bench: Bench) -> dict[str, Times]:
        q, k, v = (
            bench.random(seq, 1, number, width, learned=True)
            for number, width in ((heads, keys), (groups, keys), (groups, values))
        )
        if te:
            attend = te.DotProductAttention(
                heads, (keys, values), num_gqa_groups=groups, qkv_format="sbhd", attn_mask_type="causal"
            )
            return bench.both(lambda: (attend(q, k, v),), (q, k, v))
        return bench.both(lambda: (plain(q, k, v, bench.cuda),), (q, k, v))

    return Case(what, shape, "bf16", TE if te else TORCH, run)


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cuda: bool) -> torch.Tensor:
    """Run PyTorch's fused attention; on a GPU the kernels are those of cuDNN or flash attention."""
    fused = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION] if cuda else [SDPBackend.MATH]
    with sdpa_kernel(fused, set_priority=True):
        query, key, value = (x.permute(1, 2, 0, 3) for x in (q, k, v))
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=q.shape[2] != k.shape[2]
        )
