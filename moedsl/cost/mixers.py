"""Describe mixers that run over a sequence in linear time, Mamba-2 and the gated delta net, as numbers of a token.

Both have one projection in, a convolution of 4, a scan in chunks whose states are matrices, a gated norm and a
projection out. Their cost is linear in the tokens, so the numbers of one token suffice. TP splits them by heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from attrs import frozen

from moedsl.facts.facts import Model

MAMBA_CHUNK = 128
"""Tokens between two states that the scan of a Mamba-2 mixer keeps (core ssm/mamba_mixer.py:192; `chunk_size`)."""
DELTA_CHUNK = 64
"""Tokens between two states of a gated delta net (fla ops/gated_delta_rule/chunk.py, `chunk_size`)."""


@frozen
class Mixer:
    """One token's numbers in forward, except the FLOPs; whole, without TP."""

    projected: int
    """Output of the first projection."""
    inner: int
    """Input of the second projection."""
    flops: float
    """Of the scan's products."""
    streamed: float
    """Read and written between the two projections."""
    saved: float
    """Kept for backward between the two projections, in BF16, without the input of the second one."""
    working: float
    """At work in the backward of the scan, in BF16."""


@lru_cache(maxsize=256)
def mamba(m: Model) -> Mixer:
    """Count a Mamba-2 mixer.

    The scan has scores of a chunk for each group, their product with each head's inputs, its state, and the output of
    the state. Its kernels (mamba_ssm ops/triton/ssd_combined.py) pass their results on through memory. The convolution
    reads and writes x, B and C. The states are written, passed on (read and written) and read. x, B, C and z are read
    again by each kernel that uses them, and the norm after them reads and writes the output. Backward computes the
    states again (MambaSplitConv1dScanCombinedFn). It works on the gradient of the projection, the output of the
    convolution and its gradient, all states and their gradients, and the gradient of the scan's output.
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

    Between the projections: queries, keys and values through the convolution; queries and keys normalised to length 1,
    and again for each value head; for a chunk the products of its keys, their triangular inverse, and the keys and
    values after it (w and u); the states from chunk to chunk; the queries' results from them; the gated norm, and its
    output with the sequence first. Saved: the whole projection, of which the convolution keeps a view (fla
    modules/conv/triton/ops.py:364), queries and keys of length 1, the scan's input with the inverse, its output, a copy
    of the gate, the norm's output; decay and strength of a head are a few numbers more. The scan's backward computes w,
    u and the states again, and works on their gradients and those of all inputs.
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
    """Map each kind of layer that has a mixer (`blocks.kinds`) to it; empty if every layer has attention."""
    if m.hybrid:
        return {"mamba": mamba(m)}
    return {"delta": delta_net(m)} if m.linear else {}
