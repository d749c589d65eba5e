"""The blocks that a model's layers are made of: two kinds of layer, or four where each layer is one block (a hybrid).

An ordinary layer is attention and a dense MLP (`dense`), or attention and experts (`moe`). A hybrid's layers are one
block each: `dense` and `moe` then mean the MLP and the experts alone, `mamba` a Mamba-2 mixer, `attention` attention.
"""

from __future__ import annotations

from functools import lru_cache

from moedsl.facts import Model

LETTERS = {"M": "mamba", "*": "attention", "E": "moe", "-": "dense"}
"""Megatron's letters of a hybrid's layers (core models/hybrid/hybrid_layer_allocation.py:17-24)."""
ORDINARY = ("dense", "moe")


@lru_cache(maxsize=256)
def kinds(m: Model) -> tuple[str, ...]:
    """The kinds of layer that a model can have."""
    return (*ORDINARY, "mamba", "attention") if m.hybrid else ORDINARY


@lru_cache(maxsize=1024)
def counted(pattern: str) -> dict[str, int]:
    """Layers of each kind in a hybrid's pattern."""
    return {kind: pattern.count(letter) for letter, kind in LETTERS.items()}


@lru_cache(maxsize=256)
def in_mtp(m: Model) -> dict[str, int]:
    """Layers of each kind in one depth of MTP: a MoE layer, or what a hybrid's pattern says."""
    return counted(m.mtp_pattern) if m.hybrid else {"dense": 0, "moe": 1}


def routed_width(m: Model) -> int:
    """Width of what is sent to the experts: the hidden state, or its projection."""
    return m.moe_latent or m.hidden


def products(m: Model) -> int:
    """Matrices of an MLP of one width: with a gate there are three."""
    return 3 if m.gated else 2
