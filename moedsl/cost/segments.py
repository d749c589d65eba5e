"""Assign a hybrid's layers to pipeline stages: segments of its pattern, ``MEMEM*|EMEM...``.

Megatron-Core reads the stages from ``|`` in the pattern itself (core models/hybrid/hybrid_layer_allocation.py:331). MTP
and the loss are on the last stage. Bridge builds no virtual stages of a hybrid (bridge
models/hybrid/hybrid_provider.py:295).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from moedsl.cost import mixers
from moedsl.cost.blocks import LETTERS, products, routed_width
from moedsl.facts.facts import Model

Floats = NDArray[np.float64]


@lru_cache(maxsize=1024)
def split(m: Model, pp: int) -> tuple[str, ...]:
    """Split the pattern into pp segments: the lightest possible heaviest stage, then all as even as possible."""
    load = _loads(m)
    heaviest = _best(load, pp, np.maximum)[1]
    even = np.where(load <= heaviest * (1 + 1e-9), load**2, np.inf)
    cuts = _best(even, pp, np.add)[0]
    return tuple(m.layer_pattern[a:b] for a, b in zip([0, *cuts], [*cuts, m.layers], strict=True))


def weights(m: Model) -> dict[str, float]:
    """Weigh a layer of each letter, and the loss with MTP, for the balance: by the weights that multiply a token,
    because products take most of a layer's time."""
    h, mixer = m.hidden, mixers.mamba(m)
    of = {
        "M": h * (mixer.projected + mixer.inner),
        "*": 2 * h * (m.heads + m.query_groups) * m.head_dim,
        "E": products(m) * (routed_width(m) * m.topk * m.expert_hidden + h * m.shared_expert_hidden)
        + 2 * h * m.moe_latent,
        "-": products(m) * h * m.ffn_hidden,
    }
    loss = h * m.vocab
    mtp = sum(of[letter] for letter in m.mtp_pattern) + 2 * h * h + loss
    return {**{k: float(v) for k, v in of.items()}, "last": float(loss + m.mtp_layers * mtp)}


def _loads(m: Model) -> Floats:
    """Return (layers + 1, layers + 1): the weight of layers i to j - 1 as a stage, infinite without layers."""
    each = weights(m)
    upto = np.concatenate([[0.0], np.cumsum([each[letter] for letter in m.layer_pattern])])
    load = upto[None, :] - upto[:, None]
    load[:, -1] += each["last"]
    i, j = np.indices(load.shape)
    return np.where(j > i, load, np.inf)


def _best(load: Floats, pp: int, joined: np.ufunc) -> tuple[list[int], float]:
    """Return (cuts, cost) of the cheapest split into pp stages, whose costs are `joined`."""
    cost, chosen = load[0], list[NDArray[np.intp]]()
    for _ in range(pp - 1):
        each = joined(cost[:, None], load)
        chosen.append(each.argmin(axis=0))
        cost = each.min(axis=0)
    cuts = [len(load) - 1]
    for before in reversed(chosen):
        cuts.append(int(before[cuts[-1]]))
    return cuts[:0:-1], float(cost[-1])


def reasons(text: str, m: Model, pp: int, vpp: int) -> tuple[str, ...]:
    """Return Megatron's refusals of a user's segments."""
    parts, odd = text.split("|"), sorted(set(text) - set(LETTERS) - {"|"})
    if odd:
        letters = "M Mamba, * attention, E experts, - MLP, | between stages; MTP is not written"
        return (f"{odd[0]!r} is not a letter of a hybrid's layers: {letters}",)
    whole = "".join(parts)
    pairs = enumerate(zip(whole, m.layer_pattern, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(whole), m.layers))
    differs = f"its {len(whole)} layers differ from the {m.layers} of {m.name} from layer {at + 1} on"
    asked = (
        (len(parts) == pp * vpp, f"{len(parts)} segments, and pp x vpp is {pp} x {vpp} = {pp * vpp}"),
        (whole == m.layer_pattern, f"{differs}: {m.layer_pattern}"),
        (all(parts), "a stage without a layer"),
    )
    return tuple(why for fine, why in asked if not fine)
