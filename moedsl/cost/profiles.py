"""Count what each pipeline stage holds, as numbers in which a price is linear."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from moedsl.cost.blocks import in_mtp, kinds, with_experts
from moedsl.cost.parameters import built
from moedsl.cost.pipeline import Layout
from moedsl.cost.rows import Floats, Ints, undominated
from moedsl.facts.facts import Model


@lru_cache(maxsize=256)
def held(model: Model) -> tuple[str, ...]:
    """List a stage's features: layers of each kind, MTP layers, vocabulary tables, final norms, vision towers."""
    return (*kinds(model), "mtp", "words", "norm", "vision")


@lru_cache(maxsize=256)
def of_memory(model: Model) -> tuple[str, ...]:
    """Return the features of memory: what is held; the same as a shard, which is the count times pp, because data
    parallelism is wider with fewer stages; layers of each kind times the microbatches whose activations they keep; the
    same over the root of the MoE layers, which is how uneven routing adds up; chunks times microbatches; the vision
    tower's microbatches; whether the loss is here; depths of MTP, each with its own loss; 1."""
    alive = (
        *(f"{kind}_live" for kind in kinds(model)),
        "moe_uneven",
        "chunk_live",
        "vision_live",
        "loss",
        "ahead",
        "one",
    )
    return (*held(model), *(f"{name}_shard" for name in held(model)), *alive)


@lru_cache(maxsize=256)
def is_shard(model: Model) -> NDArray[np.bool_]:
    """Tell which features of memory are shards, of which a rank of twice the GPUs holds half as much."""
    return np.array([name.endswith("_shard") for name in of_memory(model)])


@lru_cache(maxsize=256)
def of_time(model: Model) -> tuple[str, ...]:
    """Return the features of time: what is held, with each depth of MTP, and the loss."""
    return (*held(model), "loss")


def live(pp: int, vpp: int, microbatches: int, stage: int) -> tuple[int, ...]:
    """Count the microbatches whose activations each chunk of a stage keeps at the maximum.

    1F1B keeps pp - stage. The interleaved schedule warms up with 2 (pp - stage - 1) + (vpp - 1) pp forwards over all
    chunks, and then keeps one more (megatron/core/pipeline_parallel/schedules.py:927-943). Chunks take turns in groups
    of pp microbatches. Expert overlap warms up with that one more, and then frees a layer for each that it adds.
    """
    if vpp == 1:
        return (min(pp - stage, microbatches),)
    kept = min(2 * (pp - stage - 1) + (vpp - 1) * pp + 1, microbatches * vpp)
    group = min(pp, microbatches)
    rounds, rest = divmod(kept, group * vpp)
    return tuple(rounds * group + min(max(rest - c * group, 0), group) for c in range(vpp))


@lru_cache(maxsize=65536)
def memory(model: Model, layout: Layout, microbatches: int) -> Floats:
    """Return (pp, features of memory): every stage of a layout."""
    counts, passed, layers, loss = _counts(model, layout)
    ahead = passed[:, len(kinds(model))]
    kept = np.array([live(layout.pp, layout.vpp, microbatches, s) for s in range(layout.pp)])
    *alive, vision = (kept * layers).sum(axis=2)
    routed = [kinds(model).index(kind) for kind in with_experts(model)]
    number = sum(layers[i].sum(axis=1) for i in routed)
    uneven = sum(alive[i] for i in routed) / np.sqrt(np.maximum(number, 1))
    flowing = np.stack([*alive, uneven, kept.sum(axis=1), vision, loss, ahead, np.ones(layout.pp)], axis=1)
    return np.concatenate([counts, counts * layout.pp, flowing], axis=1, dtype=float)


@lru_cache(maxsize=65536)
def _counts(model: Model, layout: Layout) -> tuple[Ints, Ints, Ints, Ints]:
    """Count what does not depend on microbatches: held parts by stage; layers, towers and losses by stage and chunk."""
    ahead = np.array([in_mtp(model)[kind] for kind in kinds(model)])
    each = _by_chunk(layout, [[c.of(kind) for kind in kinds(model)] for c in layout.chunks])
    mtp, embedding, loss, final = np.moveaxis(
        _by_chunk(layout, [[c.mtp, c.embedding, c.loss, c.last_layer] for c in layout.chunks]), 2, 0
    )
    embedded, tower = (embedding > 0) | (mtp > 0), embedding * (model.vision is not None)
    words = embedded + loss * ~(embedded & model.tied_embeddings)
    ends = [column.sum(axis=1) for column in (words, final if model.mtp_layers else loss, tower)]
    depths = mtp.sum(axis=1)
    whole = np.array([built(model, int(n)) for n in depths])
    counts, passed = (np.column_stack([each.sum(axis=1) + np.outer(n, ahead), n, *ends]) for n in (whole, depths))
    layers = [*np.moveaxis(each + mtp[:, :, np.newaxis] * ahead, 2, 0), tower]
    return counts, passed, np.array(layers), loss.sum(axis=1)


def _by_chunk(layout: Layout, rows: list[list[int]]) -> Ints:
    """Arrange rows of chunks as (stage, chunk, column)."""
    return np.array(rows, np.int64).reshape(layout.vpp, layout.pp, -1).swapaxes(0, 1)


@lru_cache(maxsize=65536)
def time(model: Model, layout: Layout) -> Floats:
    """Return (pp, features of time): the compute of each stage for one microbatch."""
    _, passed, _, loss = _counts(model, layout)
    return np.column_stack([passed, loss]).astype(float)


@lru_cache(maxsize=65536)
def fullest(model: Model, layout: Layout, microbatches: int) -> Floats:
    """Return the stages of `memory` that can be the most loaded."""
    return undominated(memory(model, layout, microbatches))


@lru_cache(maxsize=65536)
def heaviest(model: Model, layout: Layout) -> Floats:
    """Return the stages of `memory` that can be the most loaded while no activation is alive."""
    counts, passed, _, loss = _counts(model, layout)
    ahead, nothing = passed[:, len(kinds(model))], np.zeros((layout.pp, len(kinds(model)) + 3))
    always = np.column_stack([nothing, loss, ahead, np.ones(layout.pp)])
    return undominated(np.concatenate([counts, counts * layout.pp, always], axis=1, dtype=float))


@lru_cache(maxsize=65536)
def slowest(model: Model, layout: Layout) -> Floats:
    """Return the stages of `time` that can be the slowest."""
    return undominated(time(model, layout))
