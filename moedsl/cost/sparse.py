"""Describe sparse attention (DSA) as numbers: an indexer scores all keys, and a query attends to the best of them.

Megatron-Core builds it of latent attention whose keys and values stay compressed: all heads of a query read one key,
the latent with its rotary part, of which the latent is the value (core
transformer/experimental_attention_variant/absorbed_mla.py). The numbers are those of cuDNN's and FlashMLA's kernels,
which NVIDIA's recipes take (core transformer/experimental_attention_variant/dsa_cudnn_kernels.py). Each tensor-parallel
rank has the whole indexer and all tokens for it; it attends for its own heads, of which the kernel needs 64.
"""

from __future__ import annotations

import numpy as np

from moedsl.cost.rows import Floats
from moedsl.facts.facts import Model

LEAST_HEADS = 64
"""Heads of a rank that FlashMLA works on at the least: fewer are padded (`_flash_mla_head_padding`)."""
SCORED = 12
"""Bytes of a score of the indexer, in FP32: written, and read twice to find the best."""
SCORES, SORTED = float(1 << 30), float(1 << 31)
"""The most bytes of scores that are made at once, and of scratch memory to find the best (lines 132 and 135)."""


def key(m: Model) -> int:
    """Return the width of a compressed key and of the query of one head."""
    return m.kv_lora_rank + m.qk_rope_dim


def projections(m: Model) -> int:
    """Count the weights of the indexer's linears: queries of its heads, one key, and a weight for each head."""
    wide = m.indexer_heads * m.indexer_dim
    return (m.q_lora_rank or m.hidden) * wide + m.hidden * (m.indexer_dim + m.indexer_heads)


def parameters(m: Model) -> int:
    """Count the indexer: its linears and the LayerNorm of its key, scale and bias."""
    return (projections(m) + 2 * m.indexer_dim) * m.sparse


def attended(m: Model, seq: float) -> float:
    """Return the mean number of keys of a query: those before it, up to `indexer_topk`."""
    most = min(m.indexer_topk, seq)
    return most - most * (most - 1) / (2 * seq)


def heads(m: Model, tp: Floats) -> Floats:
    """Count the heads that the kernel works on, over all tensor-parallel ranks."""
    return np.maximum(LEAST_HEADS * tp, m.heads)


def attention(m: Model, tp: Floats, seq: float, exponential: float) -> Floats:
    """Count the products of a token in attention, over all tensor-parallel ranks; an exponential counts as so many."""
    return heads(m, tp) * attended(m, seq) * (key(m) + m.kv_lora_rank + exponential)


def scores(m: Model, seq: int) -> float:
    """Count the products of a token in the indexer's scores: each of its heads with every key before the token."""
    return seq / 2 * m.indexer_heads * m.indexer_dim


def losses(m: Model, tp: Floats, seq: int) -> Floats:
    """Count the products of a token for the indexer's loss and its gradients, whole on each tensor-parallel rank except
    the heads: the weights of attention again, three products of the scores of the chosen keys, and the gradients of the
    linears, whose inputs have none (core dsa.py:1884)."""
    again = heads(m, tp) / tp * attended(m, seq) * key(m)
    return again + 3 * attended(m, seq) * m.indexer_heads * m.indexer_dim + projections(m)


def gathered(m: Model) -> float:
    """Count the numbers of a token that sequence parallelism gathers or sums for the indexer, in BF16: the hidden state
    and the query's latent, the key, and the weights of the chosen keys, which are FP32 and summed over the ranks."""
    return m.hidden + m.q_lora_rank + key(m) + 4.0 * m.indexer_topk


def scratch(pairs: Floats) -> Floats:
    """Return the bytes at work while an indexer scores pairs of tokens and sorts."""
    every = 4.0 * pairs
    return np.minimum(every, SCORES) + np.minimum(2 * every, SORTED)
