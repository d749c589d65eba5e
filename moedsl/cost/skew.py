"""Estimate how many tokens reach the fullest of the ranks that share a layer's experts."""

from __future__ import annotations

import numpy as np
from attrs import frozen

from moedsl.cost.rows import Floats, Table
from moedsl.facts.facts import Model


@frozen
class Skew:
    """How unevenly a router spreads the tokens over the ranks."""

    balanced: float
    """The tokens of the fullest rank over the mean, of a router that training balances; 1 is forced balance."""
    spread: float
    """The spread of the experts' tokens, of a router that nothing balances, over that of one that picks the same
    experts for every token."""
    capacity: float
    """`moe_expert_rank_capacity_factor` of a captured iteration."""

    def fullest(self, m: Model, t: Table) -> Floats:
        """Return the tokens of the fullest rank over the mean, by row.

        A router that always picks the same experts gives them experts / topk times the mean, and the others none. The
        tokens of n experts on a rank spread less by the root of n, and the fullest of r ranks is sqrt(2 ln r)
        deviations above the mean. A captured iteration with a fuller rank is run again without its graph (core
        transformer/moe/paged_stash.py:1150).
        """
        ranks, same = t["ep"] * 1.0, m.experts / max(m.topk, 1)
        one = self.spread * np.sqrt(max(same - 1, 0.0))
        free = 1 + one * np.sqrt(2 * np.log(ranks) * ranks / max(m.experts, 1))
        most = np.where(t["captured"] > 0, self.capacity, np.minimum(ranks, same))
        return np.maximum(np.minimum(free, most), self.balanced)
