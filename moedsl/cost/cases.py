"""Low, best and high cases of the uncertain terms of the memory estimate.

Each uncertainty is physical, with the reason for its range. None belongs to a model, a GPU or a run.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve

from moedsl.schema.frozen import frozen
from moedsl.schema.units import GIB


@frozen
class Case:
    """One value for each uncertain term."""

    imbalance: float = 1.1
    """Routed tokens of a layer's fullest expert rank over the mean."""
    same_rank: bool = False
    """Whether one rank is the fullest of every layer; else the excess of n layers grows with their square root."""
    framework: float = 0.6 * GIB
    """Bytes in torch's allocator outside the model: workspaces, RNG states, data, rotary tables."""
    copies: float = 2.0
    """Copies of the routed tokens at full width that are alive at once, without the saved ones."""
    transposes: bool | None = None
    """Whether a per-tensor FP8 weight keeps its transpose; None follows the architecture."""
    logits: float = 1.0
    """Logits and the copy that the loss saves (te pytorch/triton/cross_entropy.py:40); 0.5 if it works in place."""
    stash: float = 1.2
    """A whole-iteration graph's paged stash over what the experts save at the mean, whatever the routing (core
    transformer/moe/paged_stash.py:599)."""
    capacity: float = 1.5
    """The buffers of the experts in such a graph over those at the mean."""
    unfused: bool = False
    """Whether gated activation functions run as separate kernels (`bias_activation_fusion` off)."""
    together: bool = False
    """Whether the logits' gradient is alive together with the working set of a layer."""
    captured: float = 0.0
    """Graphs that serve two microbatches at a time under expert overlap, over the layers not at work."""


@frozen
class Unknown:
    """An uncertain term: its low and high change of `BEST`, and the reason."""

    name: str
    least: Mapping[str, float | bool]
    most: Mapping[str, float | bool]
    because: str


BEST = Case()
NATIVE = 2.5
"""Bytes for a logit of Megatron-Core's own fused cross entropy over Transformer Engine's. It makes an FP32 copy and
takes the exponential of it (core tensor_parallel/cross_entropy.py:25), 10 for 4. With this, two published peaks of
Nemotron 3.5 Lightning are off by 0.2% and 0.6%; without it they are 9% and 13% too small."""
BALANCED = Unknown(
    "routing",
    {"imbalance": 1.0},
    {"imbalance": 1.05},
    "forced balancing draws experts at random: tens of thousands of tokens a rank stay within 5% of their mean",
)
NATURAL = Unknown(
    "routing",
    {"imbalance": 1.0},
    {"imbalance": 1.5, "same_rank": True},
    "1.0 to 1.5 times the mean on the fullest rank: in a published run with an untrained router (H100, EP 8), hot "
    "ranks held 72.9 GiB and rank 0 peaked at 66.3 GB; the difference is about half of what its experts save",
)
OTHERS = (
    Unknown(
        "workspaces",
        {"framework": 0.3 * GIB},
        {"framework": 1.5 * GIB},
        "cuBLAS allocates 32 MiB on Hopper for each handle and stream, and Transformer Engine as much for each stream "
        "of grouped products; the number of streams depends on the overlap",
    ),
    Unknown(
        "dispatch copies",
        {"copies": 1.0},
        {"copies": 4.0},
        "permuted, sent, received and combined tokens are freed one after another on one stream; with separate "
        "streams for communication, all can be alive together",
    ),
    Unknown(
        "FP8 transposes",
        {"transposes": False},
        {"transposes": True},
        "a per-tensor FP8 weight also keeps its transpose if the GPU or keep_fp8_transpose_cache requires one",
    ),
    Unknown(
        "logits",
        {"logits": 0.5},
        {"together": True},
        "Transformer Engine's cross entropy saves a copy of the logits and writes their gradient over it, or works in "
        "place if configured so; in the high case two copies are alive with the working set of a layer, for example "
        "if another microbatch's forward overlaps",
    ),
    Unknown(
        "graph pools",
        {"captured": 0.0},
        {"captured": 1.0},
        "under expert overlap, graphs are captured in the order of the schedule, and a layer's buffers serve the next "
        "microbatch after its backward; in the high case all layers hold two microbatches",
    ),
)


def unknowns(routing: str) -> tuple[Unknown, ...]:
    """List every uncertain term under `routing` natural or balanced."""
    return (BALANCED if routing == "balanced" else NATURAL, *OTHERS)


def best(routing: str) -> Case:
    """Return the best case: balanced routing has no fullest rank."""
    return evolve(BEST, imbalance=1.0) if routing == "balanced" else BEST


def least(routing: str) -> Case:
    """Return the low case of everything."""
    return changed(best(routing), *(u.least for u in unknowns(routing)))


def most(routing: str) -> Case:
    """Return the high case of everything."""
    return changed(best(routing), *(u.most for u in unknowns(routing)))


OF = {"high": most, "best": best, "low": least}
"""The cases by the words of `must_fit`."""


def changed(base: Case, *changes: Mapping[str, float | bool]) -> Case:
    """Return a copy with the named fields replaced."""
    return evolve(base, **{name: value for change in changes for name, value in change.items()})
