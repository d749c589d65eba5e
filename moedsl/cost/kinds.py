"""Split the compute of a microbatch by kind of work: matrix products, attention, and passes over memory."""

from __future__ import annotations

import numpy as np
from attrs import evolve

from moedsl.cost import compute, step
from moedsl.cost.memory import Trained
from moedsl.cost.rows import Table
from moedsl.cost.step import Prices
from moedsl.schema.facts import Hardware, Model

KINDS = {
    "matrix": ("linear", "mixer", "latent", "dense", "experts", "shared", "mtp", "loss"),
    "attention": ("core",),
    "scan": ("scan",),
    "passes": (
        "norm",
        "residual",
        "rotary",
        "router",
        "quantise",
        "quantise_back",
        "quantise_mixer",
        "quantise_mixer_back",
        "activation",
        "cast",
        "cast_back",
        "permute",
    ),
    "vision": ("vision", "merger"),
}
"""The parts of `compute.Work` of each kind. `up` is a part of `linear`; a product carries the casts fused with it."""


def by_kind(m: Model, hw: Hardware, shape: Table, seq: int, learns: Trained, skew: float) -> dict[str, Prices]:
    """Return the seconds of one microbatch by kind and feature; the kinds sum to the compute of `step.microbatch`."""
    whole = compute.work(m, hw, shape, seq, skew)
    every = [part for parts in KINDS.values() for part in parts]
    nothing = {part: np.zeros(shape.rows) for part in every}
    return {
        kind: step.computed(m, shape, evolve(whole, **(nothing | {p: getattr(whole, p) for p in parts})), learns)
        for kind, parts in KINDS.items()
        if m.hybrid or m.linear or kind != "scan"
    }
