"""Low, best and high cases of the uncertain terms of the memory estimate.

Each uncertainty is physical, with a reason for its range; none is specific to a model, a GPU or a run. The numbers come
from the calibration: `value` is the best case, `low` and `high` are the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import ArrayLike, NDArray

from moedsl.cost.rows import Floats
from moedsl.facts.calibration import Constants

STASH = 1.2
"""Size of a whole-iteration graph's paged stash relative to what the experts save at the mean, whatever the routing
(core transformer/moe/paged_stash.py:599)."""
CAPACITY = {"balanced": 1.5, "natural": 4.0}
"""Size of the experts' buffers in such a graph relative to their size at the mean, by routing: that of NVIDIA's recipes
(bridge perf_recipes/qwen/common.py:36), and of MLPerf's runs under natural routing."""
LOSSES = ("te", "native", "unfused")
"""Cross-entropy implementations: Transformer Engine's, Megatron-Core's fused one, and Megatron-Core's unfused one."""

Amount = float | Floats
Flag = bool | NDArray[np.bool_]


@frozen
class Case:
    """One value for each uncertain term (or a column with one per row), and the kernels that a recipe sets."""

    imbalance: Amount
    """Routed tokens on a layer's fullest expert rank relative to the mean."""
    other: Amount
    """Bytes in torch's allocator outside the model and the known workspaces."""
    copies: Amount
    """Full-width copies of the routed tokens that are alive at once, besides the saved ones."""
    loss: Amount
    """Bytes for each logit: the logit itself and the loss's intermediates."""
    same_rank: Flag = False
    """Whether a rank has the same share in every layer; otherwise the excess over n layers grows with sqrt(n)."""
    transposes: Flag | None = None
    """Whether a per-tensor FP8 weight keeps its transpose; None means the GPU's default."""
    together: Flag = False
    """Whether the logits' gradient is alive at the same time as a layer's working set."""
    captured: Amount = 0.0
    """Share of the layers not at work whose graphs hold two microbatches under expert overlap."""
    stash: float = STASH
    capacity: float = CAPACITY["balanced"]
    unfused: bool = False
    """Whether gated activation functions run as separate kernels (`bias_activation_fusion` off)."""
    scores: float = 0.0
    """Bytes that attention keeps for each score; fused kernels keep none."""
    accumulates: bool = True
    """Whether weight gradients are accumulated into Megatron's gradient buffer (`gradient_accumulation_fusion`)."""


@frozen
class Drops:
    """What an expert keeps of its tokens."""

    factor: float = np.inf
    """`moe_expert_capacity_factor`: tokens beyond this share of an expert's mean are dropped."""
    pads: bool = False
    """`moe_pad_expert_input_to_capacity`: each expert's tokens are padded to `factor`."""

    def kept(self, share: ArrayLike) -> Floats:
        """Return the tokens that a rank's experts keep or pad, relative to the mean; `share` without a factor."""
        return np.minimum(np.inf if self.pads else share, self.factor)

    @property
    def least(self) -> float:
        """The least of `kept` under natural routing: if tokens are spread over the experts exponentially."""
        return float(self.kept(1 - np.exp(-self.factor)))


DROPLESS = Drops()

Change = Mapping[str, float | bool]


@frozen
class Unknown:
    """An uncertain term: its changes to the best case in the low and the high case, and the reason."""

    name: str
    least: Change
    most: Change
    because: str


BALANCED = "forced balancing draws experts at random: tens of thousands of tokens a rank stay within 5% of their mean"
NATURAL = (
    "1.0 to 1.5 times the mean on the fullest rank: in a published run with an untrained router (H100, EP 8), hot "
    "ranks held 72.9 GiB and rank 0 peaked at 66.3 GB; the difference is about half of what its experts save"
)
DROPPED = (
    "an expert keeps at most moe_expert_capacity_factor times its mean, padded or not; without padding it keeps less "
    "if others are chosen more often"
)
WORKSPACES = (
    "cuBLAS has a workspace for each handle and stream, and Transformer Engine one for each stream of grouped "
    "products; the number of streams depends on the overlap"
)
COPIES = (
    "permuted, sent, received and combined tokens are freed one after another on one stream; with separate "
    "streams for communication, all can be alive together"
)
TRANSPOSES = "a per-tensor FP8 weight also keeps its transpose if the GPU or keep_fp8_transpose_cache requires one"
LOGITS = (
    "Transformer Engine's cross entropy saves a copy of the logits and writes their gradient over it, or works in "
    "place if configured so; in the high case two copies are alive with the working set of a layer, for example "
    "if another microbatch's forward overlaps"
)
POOLS = (
    "under expert overlap, graphs are captured in the order of the schedule, and a layer's buffers serve the next "
    "microbatch after its backward; in the high case all layers hold two microbatches"
)


@frozen(slots=False)
class Cases:
    """The cases of one run."""

    constants: Constants
    routing: str
    """natural or balanced."""
    loss: str
    """One of `LOSSES`."""
    drops: Drops = DROPLESS

    @cached_property
    def best(self) -> Case:
        """Return the best case."""
        c = self.constants
        uneven, loss = getattr(c, f"uneven_{self.routing}"), getattr(c, f"loss_{self.loss}")
        return Case(self.drops.kept(uneven), c.torch_other, c.dispatch_copies, loss, same_rank=self.drops.pads)

    @property
    def unknowns(self) -> tuple[Unknown, ...]:
        """List every uncertain term."""
        balanced = self.routing == "balanced"
        names = (f"uneven_{self.routing}", "torch_other", "dispatch_copies", f"loss_{self.loss}")
        uneven, other, copies, loss = map(self.constants.ends, names)
        low = uneven["low"] if balanced else min(uneven["low"], self.drops.least)
        least = {"imbalance": float(self.drops.kept(low)), "same_rank": self.drops.pads or low < 1}
        fullest = {"imbalance": float(self.drops.kept(uneven["high"])), "same_rank": self.drops.pads or not balanced}
        routing = BALANCED if balanced else NATURAL if self.drops == DROPLESS else DROPPED
        return (
            Unknown("routing", least, fullest, routing),
            Unknown("workspaces", {"other": other["low"]}, {"other": other["high"]}, WORKSPACES),
            Unknown("dispatch copies", {"copies": copies["low"]}, {"copies": copies["high"]}, COPIES),
            Unknown("FP8 transposes", {"transposes": False}, {"transposes": True}, TRANSPOSES),
            Unknown("logits", {"loss": loss["low"]}, {"loss": loss["high"], "together": True}, LOGITS),
            Unknown("graph pools", {"captured": 0.0}, {"captured": 1.0}, POOLS),
        )

    @cached_property
    def least(self) -> Case:
        """Return the case with every term low."""
        return changed(self.best, *(u.least for u in self.unknowns))

    @cached_property
    def most(self) -> Case:
        """Return the case with every term high."""
        return changed(self.best, *(u.most for u in self.unknowns))

    def of(self, word: str) -> Case:
        """Return the case for a value of `must_fit`: high, best or low."""
        return {"high": self.most, "best": self.best, "low": self.least}[word]


def changed(base: Case, *changes: Change) -> Case:
    """Return a copy with the named fields replaced."""
    return evolve(base, **{name: value for change in changes for name, value in change.items()})


def joined(ways: Sequence[Case], transposes: bool) -> Case:
    """Merge cases that differ only in uncertain terms into one case whose terms are arrays, with one element per case.

    `transposes` is the GPU's default, for cases in which the term is None.
    """
    terms = ("imbalance", "other", "copies", "loss", "same_rank", "together", "captured")
    columns: dict[str, Any] = {term: np.array([getattr(way, term) for way in ways]) for term in terms}
    kept = [transposes if way.transposes is None else way.transposes for way in ways]
    return evolve(ways[0], transposes=np.array(kept), **columns)
