"""Price the empty weight gradients that Transformer Engine gives to autograd for products that add into Megatron's
buffer.

There is one tensor for each shape and format, made in the first backward and kept for good (te
pytorch/module/base.py:134). The linears request one (te pytorch/module/linear.py:1710, layernorm_linear.py:1172,
grouped_linear.py:1235), and so does the output layer (core tensor_parallel/layers.py:701-713), whose shape is the whole
table of the vocabulary. A frozen weight has none.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from moedsl.cost import mixers, parameters
from moedsl.cost.blocks import products, routed_width
from moedsl.cost.formats import BF16
from moedsl.cost.rows import Floats, Table
from moedsl.schema.facts import Model


def gradients(m: Model, t: Table, learns: bool) -> Mapping[str, Floats]:
    """Return the bytes by feature of `profiles.of_memory`, in BF16.

    A stage has the shapes of one attention, one Mamba mixer or gated delta net, one of its experts and its shared
    experts once, whatever its layers. The shapes of the dense layers are on the stage with these layers, by its share
    of them.
    """
    tp, etp = t["tp"] * 1.0, t["etp"] * 1.0
    linears = products(m) * (routed_width(m) * m.expert_hidden / etp + m.hidden * m.shared_expert_hidden / tp)
    block = parameters.attention(m, t["tp"]) + linears + 2 * m.hidden * m.moe_latent  # type: ignore[arg-type]
    if m.hybrid:
        block = block + parameters.mamba(m, t["tp"])  # type: ignore[arg-type]
    if m.linear:
        mixer = mixers.delta_net(m)
        block = block + m.hidden * (mixer.projected + mixer.inner) / tp
    dense = products(m) * m.hidden * m.ffn_hidden / tp / max(m.dense_layers, m.layer_pattern.count("-"), 1)
    shapes = {
        "one": block,
        "dense": dense,
        "mtp": 2 * m.hidden**2 / tp,
        "loss": parameters.table_size(m, t["tp"]) * 1.0,  # type: ignore[arg-type]
    }
    return {name: np.asarray(BF16 * learns * size) for name, size in shapes.items()}
