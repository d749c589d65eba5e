"""Describe the blocks of a model's layers: two or three kinds of layer, or four in a hybrid, where each layer is one
block.

An ordinary layer is attention and a dense MLP (`dense`), or attention and experts (`moe`). With linear attention there
are also layers of a gated delta net and experts (`delta`), with an indexer in one layer of several those that share its
keys (`reuse`), and with a window of another shape those that have it (`window`, and `dense_window` without experts). A
hybrid's layers are one block each: `dense` and `moe` are then only the MLP and the experts, `mamba` is a Mamba-2 mixer,
and `attention` attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TypeVar

from attrs import evolve

from moedsl.facts.facts import Model

LETTERS = {"M": "mamba", "*": "attention", "E": "moe", "-": "dense"}
"""Megatron's letters of a hybrid's layers (core models/hybrid/hybrid_layer_allocation.py:17-24)."""
ORDINARY = ("dense", "moe")
KINDS = (*ORDINARY, "mamba", "attention", "delta", "reuse", "window", "dense_window")
"""Every kind of layer; a model has some of them (`kinds`)."""
_FULL = {"window": "moe", "dense_window": "dense"}
"""The kinds of layer with a window of another shape, each with the one that has full attention."""
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
    """Tell whether a layer, from 0, has an indexer of its own (core
    transformer/experimental_attention_variant/dsa.py:37)."""
    return max(layer + 1 - max(m.indexer_leading, 1), 0) % m.indexer_every == 0


def windows(m: Model, first: int, end: int) -> int:
    """Count the layers from `first` to `end` - 1 that have a window of another shape."""
    if not m.windowed:
        return 0
    after = 0 if m.window_first else 1
    return sum(i >= m.window_leading and (i + after) % m.window_every > 0 for i in range(first, end))


def either(m: Model, full: Mapping[str, T], other: Mapping[str, T]) -> dict[str, T]:
    """Add the layers with a window of another shape, as `other` has them, to those with full attention."""
    return {**full, **{kind: other[like] for kind, like in _FULL.items() if kind in kinds(m) and like in other}}


@lru_cache(maxsize=256)
def without_window(m: Model) -> Model:
    """Return the model of the layers with full attention, of one whose layers with a window differ."""
    return evolve(
        _with_one_shape(m), query_groups=m.full_query_groups or m.query_groups, head_dim=m.full_head_dim or m.head_dim
    )


@lru_cache(maxsize=256)
def with_window(m: Model) -> Model:
    """Return the model of the layers with a window."""
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
    """Count the layers of each kind in one depth of MTP: those of a hybrid's pattern, a dense one, or one like the
    model's last layer (core models/gpt/gpt_layer_specs.py:get_gpt_mtp_block_spec)."""
    if m.hybrid:
        return counted(m.mtp_pattern)
    delta = deltas(m, m.layers - 1, m.layers) if m.linear else 0
    none = dict.fromkeys(("reuse", "window", "dense_window"), 0)
    return {"dense": int(m.mtp_dense), "moe": 1 - delta - m.mtp_dense, "delta": delta, **none}


def routed_width(m: Model) -> int:
    """Return the width of the tensors sent to the experts: the hidden state, or its projection."""
    return m.moe_latent or m.hidden


def products(m: Model) -> int:
    """Count the matrices of an MLP of one width: three with a gate, else two."""
    return 3 if m.gated else 2
