"""The blocks that a model's layers are made of: two or three kinds of layer, four where each is one block (a hybrid).

An ordinary layer is attention and a dense MLP (`dense`), or attention and experts (`moe`); with linear attention there
are layers of a gated delta net and experts too (`delta`). A hybrid's layers are one block each: `dense` and `moe` then
mean the MLP and the experts alone, `mamba` a Mamba-2 mixer, `attention` attention.
"""

from __future__ import annotations

from functools import lru_cache

from moedsl.schema.facts import Model

LETTERS = {"M": "mamba", "*": "attention", "E": "moe", "-": "dense"}
"""Megatron's letters of a hybrid's layers (core models/hybrid/hybrid_layer_allocation.py:17-24)."""
ORDINARY = ("dense", "moe")
KINDS = (*ORDINARY, "mamba", "attention", "delta")
"""Every kind of layer; a model has some of them (`kinds`)."""


@lru_cache(maxsize=256)
def kinds(m: Model) -> tuple[str, ...]:
    """The kinds of layer that a model can have."""
    if m.hybrid:
        return (*ORDINARY, "mamba", "attention")
    return (*ORDINARY, "delta") if m.linear else ORDINARY


def with_experts(m: Model) -> tuple[str, ...]:
    """Of those the ones that have experts, the most frequent one last."""
    return ("moe", "delta") if m.linear else ("moe",)


def deltas(m: Model, first: int, end: int) -> int:
    """How many of the layers `first` to `end` - 1 have a gated delta net: each but the last of every `linear_every`
    (core models/gpt/experimental_attention_variant_module_specs.py:366)."""
    every = m.linear_every or 1
    return (end - first) - (end // every - first // every)


@lru_cache(maxsize=1024)
def counted(pattern: str) -> dict[str, int]:
    """Layers of each kind in a hybrid's pattern."""
    return {kind: pattern.count(letter) for letter, kind in LETTERS.items()}


@lru_cache(maxsize=256)
def in_mtp(m: Model) -> dict[str, int]:
    """Layers of each kind in one depth of MTP: what a hybrid's pattern says, or one as the model's last layer (core
    models/gpt/gpt_layer_specs.py:get_gpt_mtp_block_spec)."""
    if m.hybrid:
        return counted(m.mtp_pattern)
    delta = deltas(m, m.layers - 1, m.layers) if m.linear else 0
    return {"dense": 0, "moe": 1 - delta, "delta": delta}


def routed_width(m: Model) -> int:
    """Width of what is sent to the experts: the hidden state, or its projection."""
    return m.moe_latent or m.hidden


def products(m: Model) -> int:
    """Matrices of an MLP of one width: with a gate there are three."""
    return 3 if m.gated else 2
