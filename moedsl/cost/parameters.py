"""Count the parameters of a pipeline stage on one rank, as Megatron-Core 0.19.2 and Megatron Bridge 0.6.2 build it.

Counts are exact integers. Data parallelism over dp x cp reduces `dense`, and EDP reduces `expert` (parameters whose
`allreduce` is False). A column-parallel weight splits its output over TP, and a row-parallel one its input. Norms,
routers, biases of row-parallel linears and MLA's down projections are whole on every TP rank. Bridge's providers do not
pad the Hugging Face vocabulary (bridge models/gpt_provider.py:265, `should_pad_vocab` False); `padded_vocab` is for a
recipe that does.

With Megatron FSDP, `units` and `whole` count what a rank holds in addition to its shards: gathered layers, gradients in
flight, and what is not part of a unit. A unit is a transformer layer of the language model or of the vision tower.
Everything else (embedding, output layer, norms, patch embedding, mergers) is gathered once and stays whole on every
rank.

`memory` and `time` return the profile of each stage: counts of what it holds. Prices are linear in these counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from moedsl.cost import blocks, formats
from moedsl.cost.blocks import either, in_mtp, kinds, products, routed_width, with_experts, with_window, without_window
from moedsl.cost.pipeline import Chunk, Layout, layout_for
from moedsl.cost.rows import Floats, Ints, Table, undominated
from moedsl.facts.facts import Model, Vision


@frozen
class Parameters:
    """Parameters on one rank."""

    dense: int = 0
    expert: int = 0

    def __add__(self, other: Parameters) -> Parameters:
        return Parameters(self.dense + other.dense, self.expert + other.expert)

    def __mul__(self, n: int) -> Parameters:
        return Parameters(self.dense * n, self.expert * n)

    @property
    def total(self) -> int:
        """Sum dense and expert parameters."""
        return self.dense + self.expert


def padded_vocab(vocab: int, divisible_by: int, tp: int) -> int:
    """Round the vocabulary up to a multiple of divisible_by x tp (bridge
    utils/vocab_utils.py:calculate_padded_vocab_size)."""
    step = divisible_by * tp
    return -(-vocab // step) * step


def attention(m: Model, tp: int) -> int:
    """Count one attention block with its input norm."""
    return m.hidden * (1 + m.sandwich_norms) + (_mla(m, tp) if m.attention == "mla" else _gqa(m, tp))


def _gqa(m: Model, tp: int) -> int:
    width = (m.heads * (1 + m.attention_gate) + m.query_groups) * m.head_dim + m.query_groups * m.value_dim
    out = m.heads * m.value_dim * m.hidden // tp + m.hidden * m.attention_bias
    sinks = m.heads // tp * m.attention_sinks
    queries, keys = m.heads, m.query_groups
    # norms of queries and keys: ranks that share a query group each hold the group's part of a split norm (bridge
    # models/minimax_m2/minimax_m2_provider.py:122-139)
    each = {"each_head": 2, "all_heads": queries + keys, "split_heads": queries // tp + -(-keys // tp)}
    return width * (m.hidden + m.qkv_bias) // tp + out + (each[m.qk_norm_over] * m.head_dim) * m.qk_norm + sinks


def _mla(m: Model, tp: int) -> int:
    """Count MLA's parameters (megatron/core/transformer/multi_latent_attention.py:MLASelfAttention).

    Without a q_lora_rank, queries have no down projection; with QK norm, their projection is then a norm over the
    hidden state and a linear, in addition to the layer's norm. An indexer is whole on each rank.
    """
    qk = m.heads * (m.qk_nope_dim + m.qk_rope_dim) // tp
    whole = m.hidden * (qk + (m.qk_norm and m.query_norm))
    query = m.q_lora_rank * (m.hidden + qk + m.qk_norm) if m.q_lora_rank else whole
    down = m.hidden * (m.kv_lora_rank + m.qk_rope_dim) + m.kv_lora_rank * m.qk_norm
    up = m.kv_lora_rank * m.heads * (m.qk_nope_dim + m.v_head_dim) // tp
    return query + down + up + m.heads * m.v_head_dim * m.hidden // tp + blocks.parameters(m)


def mlp(m: Model, tp: int) -> int:
    """Count a dense layer's MLP with its norm."""
    return m.hidden + _linears(m, m.hidden, m.ffn_hidden, tp)


def _linears(m: Model, around: int, width: int, split: int) -> int:
    """Count an MLP or expert between hidden states of width `around`."""
    bias = ((products(m) - 1) * width // split + around) * m.mlp_bias
    return products(m) * around * width // split + bias


def mamba(m: Model, tp: int) -> int:
    """Count a Mamba-2 layer with its norm (core ssm/mamba_mixer.py:263-409): one projection to z, x, B, C and the time
    steps, a convolution of width 4 over x, B and C, three numbers per head, a norm, and the projection back."""
    inner, shared = m.mamba_heads * m.mamba_head_dim // tp, 2 * m.mamba_groups * m.mamba_state // tp
    heads = m.mamba_heads // tp
    entering = m.hidden + m.hidden * (2 * inner + shared + heads)
    return entering + 5 * (inner + shared) + 3 * heads + inner + inner * m.hidden


def delta_net(m: Model, tp: int) -> int:
    """Count a gated delta net with its input norm (core ssm/gated_delta_net/common.py:225-320): one projection to
    queries, keys, values, the gate and two numbers per head, a convolution of width 4 over queries, keys and values, a
    decay and a bias per head, a norm of one head's width that is whole on each rank, and the projection back."""
    mixer, qk = blocks.delta_net(m), m.linear_key_heads * m.linear_key_dim
    split = m.hidden * mixer.projected + 4 * (2 * qk + mixer.inner) + 2 * m.linear_value_heads + mixer.inner * m.hidden
    return m.hidden + split // tp + m.linear_value_dim


def moe(m: Model, tp: int, ep: int, etp: int) -> Parameters:
    """Count a MoE block: norm, router, latent projections (whole on each rank: core transformer/moe/moe_layer.py:273)
    and shared experts are dense parameters; this rank's routed experts are expert parameters."""
    router = m.experts * (m.hidden + m.router_bias) + 2 * m.hidden * m.moe_latent
    wide = m.shared_expert_hidden
    shared = _linears(m, m.hidden, wide, tp) + m.hidden * m.shared_expert_gate if wide else 0
    routed = m.experts // ep * _linears(m, routed_width(m), m.expert_hidden, etp)
    around = (5 * m.hidden + m.experts) * m.sandwich_norms
    return Parameters(m.hidden + router + shared + around, routed)


def layers(m: Model, tp: int, ep: int, etp: int) -> dict[str, Parameters]:
    """Count one layer of each kind (`blocks.kinds`)."""
    if m.windowed:
        return either(m, layers(without_window(m), tp, ep, etp), layers(with_window(m), tp, ep, etp))
    block = moe(m, tp, ep, etp)
    if m.hybrid:
        alone = {"dense": mlp(m, tp), "mamba": mamba(m, tp), "attention": attention(m, tp)}
        return {"moe": block, **{kind: Parameters(n) for kind, n in alone.items()}}
    around = attention(m, tp)
    out = {"dense": Parameters(around + mlp(m, tp)), "moe": Parameters(around) + block}
    if m.indexer_every > 1:
        out["reuse"] = Parameters(around - blocks.parameters(m)) + block
    return {**out, "delta": Parameters(delta_net(m, tp)) + block} if m.linear else out


def mtp(m: Model, tp: int) -> Parameters:
    """Count an MTP layer's parts outside its blocks: three norms, and the projection of two hidden states to one."""
    return Parameters(3 * m.hidden + 2 * m.hidden**2 // tp)


def vision(v: Vision, tp: int) -> int:
    """Count the vision tower with its mergers: patch and position embeddings are whole; linears are split over TP
    unless the tower is replicated."""
    table = v.positions * (1 + v.pooled)
    patches = v.hidden * (v.in_channels * v.temporal_patch * v.patch**2 + (not v.pooled) + table)
    return patches + vision_layers(v, tp) + 2 * v.hidden * v.final_norm + sum(mergers(v, tp))


def vision_layers(v: Vision, tp: int) -> int:
    """Count the transformer layers of the tower."""
    if v.pooled:
        heads = 2 * v.hidden // v.heads
        return v.layers * (4 * v.hidden + heads + 4 * v.hidden**2 + 3 * v.hidden * v.ffn_hidden)
    tp = 1 if v.replicated else tp
    attention = v.hidden * 4 * (v.hidden + 1) // tp + v.hidden - v.hidden // tp
    mlp = v.ffn_hidden * (2 * v.hidden + 1) // tp + v.hidden
    return v.layers * (4 * v.hidden + attention + mlp)


def mergers(v: Vision, tp: int) -> tuple[int, ...]:
    """Count the patch merger (its norm is before the shuffle) and the deepstack mergers (after it), or the projection
    of pooled patches."""
    if v.pooled:
        return (v.hidden * v.out_hidden,)
    tp = 1 if v.replicated else tp
    wide = v.hidden * v.merge**2
    linears = wide * (wide + 1) // tp + wide * v.out_hidden // tp + v.out_hidden
    return (linears + 2 * v.hidden, *(linears + 2 * wide for _ in v.deepstack))


@lru_cache(maxsize=65536)
def chunk(m: Model, c: Chunk, tp: int, ep: int, etp: int) -> Parameters:
    """Count one virtual stage: its layers, and the embedding, vision tower, MTP, final norm and output layer that it
    has."""
    each, ahead, depths = layers(m, tp, ep, etp), in_mtp(m), built(m, c.mtp)
    total = mtp(m, tp) * depths
    for kind in kinds(m):
        total += each[kind] * (c.of(kind) + depths * ahead[kind])
    norm = c.last_layer if m.mtp_layers else c.loss
    # Count embedding and output layer. MTP has its own embedding (core models/gpt/gpt_model.py:167), shared with a tied
    # output layer
    table = table_size(m, tp)
    embedded = c.embedding or c.mtp > 0
    return total + Parameters(
        m.hidden * norm
        + (table * embedded + table * (c.loss and not (m.tied_embeddings and embedded)))
        + (vision(m.vision, tp) if m.vision and c.embedding else 0)
    )


def built(m: Model, depths: int) -> int:
    """Count the MTP layers that have their own weights."""
    return min(depths, 1) if m.mtp_repeated else depths


def table_size(m: Model, tp: int) -> int:
    """Count one vocabulary table, split over TP."""
    return -(-m.vocab // tp) * m.hidden


def stage(m: Model, layout: Layout, rank: int, tp: int, ep: int, etp: int) -> Parameters:
    """Count all chunks of pipeline rank `rank`."""
    return sum((chunk(m, c, tp, ep, etp) for c in layout.stage(rank)), Parameters())


def unique(m: Model) -> int:
    """Count each parameter of the whole model once, with MTP layers but without their copy of the embedding."""
    whole = layout_for(m, 1, 1)
    return stage(m, whole, 0, 1, 1, 1).total if whole else 0


QUEUE = 1e9
"""Gradient elements that wait for their reduce-scatter before the oldest is freed; half as many are gathered ahead.
Both are larger if two units are (core distributed/fsdp/src/megatron_fsdp/megatron_fsdp.py:432-444)."""


def split(t: Table, gpus: int, of: Parameters) -> Floats:
    """Count a rank's parameters that are sharded over other ranks: dense over dp x cp, experts over EDP. PP is 1."""
    dense, expert = gpus > t["tp"], gpus > t["etp"] * t["ep"]
    return 1.0 * of.dense * dense + 1.0 * of.expert * expert


def units(m: Model, t: Table, gpus: int, layers: tuple[Parameters, Parameters], kept: Floats) -> Floats:
    """Return the bytes besides the shards at the peak, early in backward.

    `layers` are the parameters of a layer with experts, as (all, trained); `kept` are the bytes of activations that its
    backward frees. Gathered are the layer at work and the next ones, up to half of QUEUE. Gradients grow to QUEUE while
    the activations of the same layers are freed, so only their excess counts.
    """
    every, learning = layers
    n = m.layers + m.mtp_layers
    size = np.maximum(every.total, 1.0)
    ahead = np.ceil(np.maximum(QUEUE / 2, size) / size)
    gathered = np.minimum(1.0 + ahead, n) * split(t, gpus, every) * formats.sent(t)
    grown, learnt = split(t, gpus, learning), np.maximum(learning.total, 1.0)
    each = grown * formats.gradient(t)
    queued = np.minimum(np.maximum(QUEUE, 2 * size) / learnt, n)
    return gathered + each + queued * np.maximum(each - kept * (grown > 0), 0.0)


def whole(m: Model, t: Table, gpus: int) -> Mapping[str, Floats]:
    """Return the bytes of what is not in a unit and stays gathered, by feature of `held`."""
    tp, some = t["tp"], (gpus > t["tp"]) * formats.BF16
    out = {"words": table_size(m, tp) * some}  # type: ignore[arg-type]
    if m.vision is not None:
        out["vision"] = (vision(m.vision, tp) - vision_layers(m.vision, tp)) * some  # type: ignore[arg-type]
    return out


@lru_cache(maxsize=256)
def held(model: Model) -> tuple[str, ...]:
    """List the features that a stage holds: layers of each kind, MTP layers, vocabulary tables, final norms, vision
    towers."""
    return (*kinds(model), "mtp", "words", "norm", "vision")


@lru_cache(maxsize=256)
def of_memory(model: Model) -> tuple[str, ...]:
    """List the features of memory.

    They are what is held; the same as a shard (the count times pp, because data parallelism is wider with fewer
    stages); layers of each kind times the microbatches whose activations they keep; the same over the square root of
    the number of MoE layers (which is how uneven routing adds up); chunks times microbatches; the vision tower's
    microbatches; whether the stage has the loss; depths of MTP, each with its own loss; and 1.
    """
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
    """List the features of time: what is held, with each depth of MTP, and the loss."""
    return (*held(model), "loss")


def live(pp: int, vpp: int, microbatches: int, stage: int) -> tuple[int, ...]:
    """Count the microbatches whose activations each chunk of a stage keeps at the peak.

    1F1B keeps pp - stage. The interleaved schedule warms up with 2 (pp - stage - 1) + (vpp - 1) pp forwards over all
    chunks, and then keeps one more (megatron/core/pipeline_parallel/schedules.py:927-943). Chunks take turns in groups
    of pp microbatches. Expert overlap includes that one more in its warm-up, and then frees a layer for each that it
    adds.
    """
    if vpp == 1:
        return (min(pp - stage, microbatches),)
    kept = min(2 * (pp - stage - 1) + (vpp - 1) * pp + 1, microbatches * vpp)
    group = min(pp, microbatches)
    rounds, rest = divmod(kept, group * vpp)
    return tuple(rounds * group + min(max(rest - c * group, 0), group) for c in range(vpp))


@lru_cache(maxsize=65536)
def memory(model: Model, layout: Layout, microbatches: int) -> Floats:
    """Return the memory features of every stage of a layout, (pp, features)."""
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
    """Return the counts that do not depend on microbatches.

    By stage: held parts, with MTP weights and with MTP depths; by stage and chunk: layers and towers; by stage: losses.
    """
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
    """Return the time features of every stage for one microbatch, (pp, features)."""
    _, passed, _, loss = _counts(model, layout)
    return np.column_stack([passed, loss]).astype(float)


@lru_cache(maxsize=65536)
def fullest(model: Model, layout: Layout, microbatches: int) -> Floats:
    """Return the stages in `memory` that can be the most loaded."""
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
    """Return the stages in `time` that can be the slowest."""
    return undominated(time(model, layout))
