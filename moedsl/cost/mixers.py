"""Mixers that run over a sequence in linear time: Mamba-2 and the gated delta net, as numbers of a token.

Both have one projection in, a convolution of 4, a scan in chunks whose states are matrices, a gated norm and a
projection out. What they cost is linear in the tokens, so a token's numbers say it all; TP splits them by heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from attrs import frozen

from moedsl.schema.facts import Model

MAMBA_CHUNK = 128
"""Tokens between two states that the scan of a Mamba-2 mixer keeps (core ssm/mamba_mixer.py:192; `chunk_size`)."""
DELTA_CHUNK = 64
"""The same of a gated delta net (fla ops/gated_delta_rule/chunk.py, `chunk_size`)."""


@frozen
class Mixer:
    """One token's numbers in forward, but for the FLOPs; whole, TP not counted."""

    projected: int
    """What the first projection puts out."""
    inner: int
    """What enters the second one."""
    flops: float
    """Of the scan's products."""
    streamed: float
    """Read and written between the two projections."""
    saved: float
    """Kept for backward between the two projections, in BF16; what enters them is beside it."""
    working: float
    """At work in the backward of the scan, in BF16."""


@lru_cache(maxsize=256)
def mamba(m: Model) -> Mixer:
    """A Mamba-2 mixer.

    The scan: scores of a chunk for each group, their product with each head's inputs, its state and what its state puts
    out. Its kernels (mamba_ssm ops/triton/ssd_combined.py) hand their results on through memory: the convolution reads
    and writes x, B and C; the states are written, passed on (read and written) and read; x, B, C and z are read again
    by each of the kernels that use them, and the norm behind reads and writes what comes out. The states are made anew
    in backward (MambaSplitConv1dScanCombinedFn), where the gradient of the projection, what the convolution put out and
    its gradient, all states and theirs, and the gradient of what the scan puts out are at work.
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
    """A gated delta net (core ssm/gated_delta_net/gdn.py:62, fla ops/gated_delta_rule/chunk.py:261).

    Between the projections: queries, keys and values through the convolution; queries and keys to length 1, and again
    for each value head; of a chunk the products of its keys, their triangular inverse, keys and values behind it (w and
    u); the states from chunk to chunk; what queries find in them; the gated norm, and its output with the sequence
    first. Saved: the whole projection, of which the convolution keeps a view (fla modules/conv/triton/ops.py:364),
    queries and keys of length 1, what enters the scan with the inverse, what it puts out, a copy of the gate, the
    norm's output; decay and strength of a head are a few numbers more. The scan's backward makes w, u and the states
    anew, and has the gradients of them and of all that entered at work.
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
    """The mixer of each kind of layer that has one (`blocks.kinds`); empty where every layer has attention."""
    if m.hybrid:
        return {"mamba": mamba(m)}
    return {"delta": delta_net(m)} if m.linear else {}
