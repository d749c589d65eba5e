"""Describe the blocks of a model's layers by kind of layer; in a hybrid, each layer is one block.

An ordinary layer is attention and a dense MLP (`dense`), or attention and experts (`moe`). Some models have more kinds:
a gated delta net and experts (`delta`), attention that reuses the keys of another layer's indexer (`reuse`), and
attention with a window of another shape (`window`, or `dense_window` without experts). In a hybrid, `dense` and `moe`
are only the MLP and the experts, `mamba` is a Mamba-2 mixer, and `attention` is attention.

`mamba`, `delta_net` and the functions of sparse attention (DSA) describe the other mixers as numbers. Mamba-2 and the
delta net have an input projection, a convolution of width 4, a scan in chunks whose states are matrices, a gated norm
and an output projection. Their cost is linear in the tokens, so the numbers of one token suffice. TP splits them by
heads.

In sparse attention an indexer scores all keys, and each query attends to the best of them. Megatron-Core builds it on
latent attention whose keys and values stay compressed: all heads of a query read one key (the latent with its rotary
part), and the latent is also the value (core transformer/experimental_attention_variant/absorbed_mla.py). The numbers
are those of cuDNN's and FlashMLA's kernels, which NVIDIA's recipes use (core
transformer/experimental_attention_variant/dsa_cudnn_kernels.py). Each TP rank runs the whole indexer on all tokens; it
attends only for its own heads, of which the kernel needs 64.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TypeVar

import numpy as np
from attrs import evolve, frozen

from moedsl.cost.rows import Floats
from moedsl.facts.facts import Model

LETTERS = {"M": "mamba", "*": "attention", "E": "moe", "-": "dense"}
"""Megatron's letters for the layers of a hybrid (core models/hybrid/hybrid_layer_allocation.py:17-24)."""
ORDINARY = ("dense", "moe")
KINDS = (*ORDINARY, "mamba", "attention", "delta", "reuse", "window", "dense_window")
"""Every kind of layer; a model has some of them (`kinds`)."""
_FULL = {"window": "moe", "dense_window": "dense"}
"""Each kind of layer with a window of another shape, and the same kind with full attention."""
T = TypeVar("T")


@lru_cache(maxsize=256)
def kinds(m: Model) -> tuple[str, ...]:
    """List the kinds of layer that a model can have."""
    if m.hybrid:
        return (*ORDINARY, "mamba", "attention")
    dense = ("dense_window",) if m.windowed and windows(m, 0, m.dense_layers) else ()
    return (*ORDINARY, *dense, *_others(m))


def _others(m: Model) -> tuple[str, ...]:
    """List the kinds of layer with experts whose attention differs from the others'."""
    has = {"delta": m.linear, "reuse": m.indexer_every > 1, "window": m.windowed}
    return tuple(kind for kind, some in has.items() if some)


def with_experts(m: Model) -> tuple[str, ...]:
    """List the kinds of layer with experts, the most frequent one last."""
    return ("moe", *_others(m))


def deltas(m: Model, first: int, end: int) -> int:
    """Count the layers from `first` to `end` - 1 that have a gated delta net: each except the last of every
    `linear_every` (core models/gpt/experimental_attention_variant_module_specs.py:366)."""
    every = m.linear_every or 1
    return (end - first) - (end // every - first // every)


def sharing(m: Model, first: int, end: int) -> int:
    """Count the layers from `first` to `end` - 1 that attend to the keys of another layer's indexer."""
    return sum(not indexed(m, i) for i in range(first, end)) if m.indexer_every > 1 else 0


def indexed(m: Model, layer: int) -> bool:
    """Whether a layer, counted from 0, has its own indexer (core
    transformer/experimental_attention_variant/dsa.py:37)."""
    return max(layer + 1 - max(m.indexer_leading, 1), 0) % m.indexer_every == 0


def windows(m: Model, first: int, end: int) -> int:
    """Count the layers from `first` to `end` - 1 that have a window of another shape."""
    if not m.windowed:
        return 0
    after = 0 if m.window_first else 1
    return sum(i >= m.window_leading and (i + after) % m.window_every > 0 for i in range(first, end))


def either(m: Model, full: Mapping[str, T], other: Mapping[str, T]) -> dict[str, T]:
    """Join values by kind of layer: `full` for full attention, `other` for windows of another shape."""
    return {**full, **{kind: other[like] for kind, like in _FULL.items() if kind in kinds(m) and like in other}}


@lru_cache(maxsize=256)
def without_window(m: Model) -> Model:
    """Return the model with the attention shape of its layers with full attention."""
    return evolve(
        _with_one_shape(m), query_groups=m.full_query_groups or m.query_groups, head_dim=m.full_head_dim or m.head_dim
    )


@lru_cache(maxsize=256)
def with_window(m: Model) -> Model:
    """Return the model with the attention shape of its layers with a window."""
    return evolve(
        _with_one_shape(m),
        window=m.window,
        heads=m.window_heads or m.heads,
        query_groups=m.window_query_groups or m.query_groups,
        attention_sinks=m.window_sinks,
    )


def _with_one_shape(m: Model) -> Model:
    others = (
        *("window", "window_every", "window_leading", "window_heads", "window_query_groups"),
        *("full_query_groups", "full_head_dim"),
    )
    return evolve(m, window_first=False, window_sinks=False, **dict.fromkeys(others, 0))


@lru_cache(maxsize=1024)
def counted(pattern: str) -> dict[str, int]:
    """Count the layers of each kind in a hybrid's pattern."""
    return {kind: pattern.count(letter) for letter, kind in LETTERS.items()}


@lru_cache(maxsize=256)
def in_mtp(m: Model) -> dict[str, int]:
    """Count the layers of each kind in one MTP depth: the layers of a hybrid's MTP pattern, a dense one, or one like
    the model's last layer (core models/gpt/gpt_layer_specs.py:get_gpt_mtp_block_spec)."""
    if m.hybrid:
        return counted(m.mtp_pattern)
    delta = deltas(m, m.layers - 1, m.layers) if m.linear else 0
    none = dict.fromkeys(("reuse", "window", "dense_window"), 0)
    return {"dense": int(m.mtp_dense), "moe": 1 - delta - m.mtp_dense, "delta": delta, **none}


def routed_width(m: Model) -> int:
    """Return the width of the tensors sent to the experts: the hidden size, or the width of its latent projection."""
    return m.moe_latent or m.hidden


def products(m: Model) -> int:
    """Count the weight matrices of an MLP: three with a gate, else two."""
    return 3 if m.gated else 2


MAMBA_CHUNK = 128
"""Tokens between two states that a Mamba-2 scan keeps (core ssm/mamba_mixer.py:192; `chunk_size`)."""
DELTA_CHUNK = 64
"""Tokens between two states of a gated delta net (fla ops/gated_delta_rule/chunk.py, `chunk_size`)."""


@frozen
class Mixer:
    """Elements and FLOPs of one token in forward, without TP."""

    projected: int
    """Output width of the first projection."""
    inner: int
    """Input width of the second projection."""
    flops: float
    """FLOPs of the scan's products."""
    streamed: float
    """Elements read and written between the two projections."""
    saved: float
    """Elements kept for backward between the two projections, in BF16, without the second one's input."""
    working: float
    """Elements in use in the backward of the scan, in BF16."""


@lru_cache(maxsize=256)
def mamba(m: Model) -> Mixer:
    """Count a Mamba-2 mixer.

    The scan computes a chunk's scores for each group, their product with each head's inputs, its state, and the state's
    output. Its kernels (mamba_ssm ops/triton/ssd_combined.py) pass their results on through memory: the convolution
    reads and writes x, B and C; the states are written, passed on (read and written) and read; each kernel reads the x,
    B, C and z that it uses again; the norm reads and writes the output. Backward recomputes the states
    (MambaSplitConv1dScanCombinedFn). It works on the projection's gradient, the convolution's output and its gradient,
    all states and their gradients, and the gradient of the scan's output.
    """
    inner, shared = m.mamba_heads * m.mamba_head_dim, 2 * m.mamba_groups * m.mamba_state
    states = inner * m.mamba_state / MAMBA_CHUNK
    projected = 2 * inner + shared + m.mamba_heads
    return Mixer(
        projected=projected,
        inner=inner,
        flops=MAMBA_CHUNK * (shared + 2 * inner) + 4 * inner * m.mamba_state,
        streamed=2 * (inner + shared) + 4 * states + (inner + shared) + 4 * inner + 2 * inner,
        saved=projected + 2 * inner,
        working=projected + 2 * (inner + shared) + 2 * states + inner,
    )


@lru_cache(maxsize=256)
def delta_net(m: Model) -> Mixer:
    """Count a gated delta net (core ssm/gated_delta_net/gdn.py:62, fla ops/gated_delta_rule/chunk.py:261).

    Between the projections, kernels convolve queries, keys and values; normalise queries and keys to length 1, and
    repeat them for each value head; compute for each chunk the products of its keys, their triangular inverse, and the
    keys and values after it (w and u); pass states from chunk to chunk; compute the queries' results; apply the gated
    norm, and write its output with the sequence first. Saved: the whole projection, of which the convolution keeps a
    view (fla modules/conv/triton/ops.py:364), queries and keys of length 1, the scan's input with the inverse, its
    output, a copy of the gate, and the norm's output; each head's decay and strength add a few numbers. The scan's
    backward recomputes w, u and the states, and works on their gradients and those of all inputs.
    """
    heads, qk = m.linear_value_heads, m.linear_key_heads * m.linear_key_dim
    v = heads * m.linear_value_dim
    keys, inverse, convolved = heads * m.linear_key_dim, DELTA_CHUNK * heads, 2 * qk + v
    states = keys * m.linear_value_dim / DELTA_CHUNK
    projected = 2 * qk + 2 * v + 2 * heads
    within = 2 * DELTA_CHUNK * (3 * keys + 2 * v) + 2 * DELTA_CHUNK * inverse / 3
    lengths, repeated = 4 * qk, 2 * qk + 2 * keys
    decays = keys + 2 * inverse + (keys + v + inverse) + (keys + v)
    passed, found = (2 * keys + v) + states + v, (2 * keys + v) + states + v
    return Mixer(
        projected=projected,
        inner=v,
        flops=within + 6 * keys * m.linear_value_dim,
        streamed=2 * convolved + lengths + repeated + 4 * v + decays + passed + found + 5 * v,
        saved=projected + 2 * qk + 2 * keys + v + inverse + 3 * v + 4 * heads,
        working=2 * states + 6 * keys + 5 * v + inverse,
    )


@lru_cache(maxsize=256)
def of(m: Model) -> Mapping[str, Mixer]:
    """Map each kind of layer that has a mixer (`blocks.kinds`) to its `Mixer`; empty if every layer has attention."""
    if m.hybrid:
        return {"mamba": mamba(m)}
    return {"delta": delta_net(m)} if m.linear else {}


LEAST_HEADS = 64
"""Minimum heads per rank that FlashMLA works on; fewer are padded (`_flash_mla_head_padding`)."""
SCORED = 12
"""Bytes of memory traffic for each score of the indexer, in FP32: one write, and two reads to find the best."""
SCORES, SORTED = float(1 << 30), float(1 << 31)
"""Maximum bytes of scores computed at once, and of scratch memory to find the best (lines 132 and 135)."""


def key(m: Model) -> int:
    """Return the width of a compressed key, and of one head's query."""
    return m.kv_lora_rank + m.qk_rope_dim


def projections(m: Model) -> int:
    """Count the weights of the indexer's linears: queries of its heads, one key, and one weight for each head."""
    wide = m.indexer_heads * m.indexer_dim
    return (m.q_lora_rank or m.hidden) * wide + m.hidden * (m.indexer_dim + m.indexer_heads)


def parameters(m: Model) -> int:
    """Count the indexer's parameters: its linears, and scale and bias of its key's LayerNorm; 0 without sparse
    attention."""
    return (projections(m) + 2 * m.indexer_dim) * m.sparse


def attended(m: Model, seq: float) -> float:
    """Return the mean number of keys that a query attends to: all before it, at most `indexer_topk`."""
    most = min(m.indexer_topk, seq)
    return most - most * (most - 1) / (2 * seq)


def heads(m: Model, tp: Floats) -> Floats:
    """Count the heads that the kernel works on, padded ones included, over all TP ranks."""
    return np.maximum(LEAST_HEADS * tp, m.heads)


def attention(m: Model, tp: Floats, seq: float, exponential: float) -> Floats:
    """Count a token's products in attention, over all TP ranks; an exponential counts as `exponential` products."""
    return heads(m, tp) * attended(m, seq) * (key(m) + m.kv_lora_rank + exponential)


def scores(m: Model, seq: int) -> float:
    """Count a token's products in the indexer's scores: each indexer head with every key before the token."""
    return seq / 2 * m.indexer_heads * m.indexer_dim


def losses(m: Model, tp: Floats, seq: int) -> Floats:
    """Count a token's products for the indexer's loss and its gradients, on each TP rank.

    These are the attention weights again (only the rank's heads), three products of the chosen keys' scores, and the
    gradients of the linears, whose inputs get none (core dsa.py:1884).
    """
    again = heads(m, tp) / tp * attended(m, seq) * key(m)
    return again + 3 * attended(m, seq) * m.indexer_heads * m.indexer_dim + projections(m)


def gathered(m: Model) -> float:
    """Count the elements per token that sequence parallelism gathers or sums for the indexer, in BF16: the hidden
    state, the query's latent, the key, and the chosen keys' weights, which are FP32 and summed over the ranks."""
    return m.hidden + m.q_lora_rank + key(m) + 4.0 * m.indexer_topk


def scratch(pairs: Floats) -> Floats:
    """Return the bytes in use while an indexer scores pairs of tokens and sorts the scores."""
    every = 4.0 * pairs
    return np.minimum(every, SCORES) + np.minimum(2 * every, SORTED)
