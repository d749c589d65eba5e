"""What each pipeline stage holds, as numbers that a price is linear in."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from moedsl.cost.pipeline import Chunk, Layout
from moedsl.cost.rows import Floats, Ints, undominated
from moedsl.facts import Model

HELD = ("dense", "moe", "mtp", "words", "norm", "vision")
"""Layers of each kind (an MTP layer is a MoE layer too), tables of the vocabulary, final norms, vision towers."""
FLOWING = ("dense_live", "moe_live", "moe_uneven", "chunk_live", "vision_live", "loss", "one")
"""Layers times the microbatches whose activations they keep; the same over the root of the MoE layers, which is how
uneven routing adds up; chunks times microbatches; the vision tower's microbatches; whether the loss is here; 1."""
MEMORY = (*HELD, *(f"{n}_shard" for n in HELD), *FLOWING)
"""Features of memory; a shard's is the count times pp, because data parallelism is the wider the fewer stages there
are."""
TIME = (*HELD, "loss")


def held(model: Model, chunks: tuple[Chunk, ...]) -> tuple[int, ...]:
    """The counts of `HELD` for the chunks of one stage."""
    embedded = [c.embedding or c.mtp > 0 for c in chunks]
    words = sum(embedded) + sum(
        c.loss and not (model.tied_embeddings and e) for c, e in zip(chunks, embedded, strict=True)
    )
    norm = sum(c.last_layer if model.mtp_layers else c.loss for c in chunks)
    mtp = sum(c.mtp for c in chunks)
    tower = sum(c.embedding for c in chunks) if model.vision else 0
    return sum(c.dense for c in chunks), sum(c.moe for c in chunks) + mtp, mtp, words, norm, tower


def live(pp: int, vpp: int, microbatches: int, stage: int) -> tuple[int, ...]:
    """Microbatches whose activations each chunk of a stage keeps when the most are kept.

    1F1B keeps pp - stage; the interleaved schedule warms up with 2 (pp - stage - 1) + (vpp - 1) pp forwards over all
    chunks, and then keeps one more (megatron/core/pipeline_parallel/schedules.py:927-943). Chunks take turns in
    groups of pp microbatches. Expert overlap warms up with that one more, and then frees a layer for each that it adds.
    """
    if vpp == 1:
        return (min(pp - stage, microbatches),)
    kept = min(2 * (pp - stage - 1) + (vpp - 1) * pp + 1, microbatches * vpp)
    group = min(pp, microbatches)
    rounds, rest = divmod(kept, group * vpp)
    return tuple(rounds * group + min(max(rest - c * group, 0), group) for c in range(vpp))


@lru_cache(maxsize=65536)
def memory(model: Model, layout: Layout, microbatches: int) -> Floats:
    """(pp, len(MEMORY)): every stage of a layout."""
    counts, layers, loss = _counts(model, layout)
    kept = np.array([live(layout.pp, layout.vpp, microbatches, s) for s in range(layout.pp)])
    dense, moe, vision = (kept * layers).sum(axis=2)
    uneven = moe / np.array([max(n, 1) ** 0.5 for n in layers[1].sum(axis=1).tolist()])
    flowing = np.stack([dense, moe, uneven, kept.sum(axis=1), vision, loss, np.ones(layout.pp)], axis=1)
    return np.concatenate([counts, counts * layout.pp, flowing], axis=1, dtype=float)


@lru_cache(maxsize=65536)
def _counts(model: Model, layout: Layout) -> tuple[Ints, Ints, Ints]:
    """What does not depend on the microbatches: `HELD` by stage, (dense, MoE, tower) by stage and chunk, losses."""
    stages = [layout.stage(s) for s in range(layout.pp)]
    counts = np.array([held(model, chunks) for chunks in stages])
    tower = model.vision is not None
    layers = [[(c.dense, c.moe + c.mtp, c.embedding and tower) for c in chunks] for chunks in stages]
    loss = np.array([sum(c.loss for c in chunks) for chunks in stages])
    return counts, np.moveaxis(np.array(layers, np.int64), 2, 0), loss


@lru_cache(maxsize=65536)
def time(model: Model, layout: Layout) -> Floats:
    """(pp, len(TIME)): what each stage computes for one microbatch."""
    counts, _, loss = _counts(model, layout)
    return np.column_stack([counts, loss]).astype(float)


@lru_cache(maxsize=65536)
def fullest(model: Model, layout: Layout, microbatches: int) -> Floats:
    """The stages of `memory` that can be the most loaded."""
    return undominated(memory(model, layout, microbatches))


@lru_cache(maxsize=65536)
def slowest(model: Model, layout: Layout) -> Floats:
    """The stages of `time` that can be the slowest."""
    return undominated(time(model, layout))
