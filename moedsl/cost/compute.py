"""Estimate a layer's compute seconds for one microbatch on a rank: matrix products, attention, passes over memory.

A matrix product runs at a calibrated share of its precision's dense peak; a grouped product reaches that share only
with enough tokens for each expert. Everything else streams through HBM. Backward takes twice as long as forward, 2.5
times for attention. The shares are calibrated for the GPU's generation (`facts/calibration.py`), at the clock that its
power limit sustains.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from attrs import astuple, evolve, frozen
from numpy.typing import ArrayLike, NDArray

from moedsl.cost import activations, adapters, blocks, formats
from moedsl.cost.activations import BIT
from moedsl.cost.blocks import Mixer, either, kinds, products, routed_width, with_experts, with_window, without_window
from moedsl.cost.rows import Floats, Ints, Table, picked
from moedsl.facts.axes import BY_NAME, CUDA_GRAPH, PRECISION
from moedsl.facts.calibration import Constants
from moedsl.facts.facts import Hardware, Model
from moedsl.facts.fine_tuning import Adapter

SHARE = {"bf16": "gemm", "fp8": "gemm8", "mxfp8": "gemm8", "nvfp4": "gemm4"}
"""Name of the constant for the share of dense peak that a large product reaches, by peak."""
READ = {"bf16": 2.0, "fp8_blockwise": 1.0, "fp8_current": 1.0, "mxfp8": 1.03, "nvfp4": 0.5625}
"""Bytes per element of a linear's weight when a product reads it."""
SPLIT_NORM = 36
"""Bytes per element that the kernels of a split norm of queries and keys read and write: copy in FP32 6, square 8, sum
4, product with the scale 8, copy in BF16 6, product with the weight 4 (bridge
models/minimax_m2/minimax_m2_provider.py:65-85)."""
EAGER_NORM = 46
"""Bytes per element that a norm's separate kernels read and write: two copies in FP32 12, square 8, mean 4, two
products 16, copy in BF16 6 (bridge models/gemma/modeling_gemma4.py:87-95)."""
VALUE_NORM = 32
"""Bytes per element that a norm of values reads and writes: copy in FP32 6, square 8, mean 4, quotient 8, copy in BF16
6 (bridge models/gemma/modeling_gemma4.py:1679-1681)."""
UNFUSED_SCORE = 8
"""Bytes per score that separate kernels of attention read and write: first product 2, softmax 4, second product 2."""
TANH = 12
"""Bytes per logit that a softcap reads and writes: a quotient, a tanh and a product (bridge
models/gemma/modeling_gemma4.py:1479-1482)."""
WIDE = 256.0
"""Query-key width plus value width of a head of 128, for which the constant `attention` is stated."""
FUSED = np.array([p in ("mxfp8", "nvfp4") for p in PRECISION])
"""Precisions in which one kernel runs the experts."""
WHOLE = CUDA_GRAPH.index("full_iteration")
ALLTOALL = BY_NAME["dispatcher"].words.index("alltoall")
DISPATCHER = BY_NAME["dispatcher"].words
IN_WINDOW = ("linear", "core", "rotary", "rotary_back", "quantise", "quantise_back", "adapt_attention")
"""The parts of `Work` that differ in layers whose window has another shape."""
ByKind = Mapping[str, Floats]
"""Seconds of a layer of each kind (`blocks.kinds`)."""


@frozen
class Work:
    """Forward seconds by part of a layer, for one microbatch on a rank."""

    linear: Floats
    """Attention's linears."""
    up: Floats
    """MLA's up-projections; `linear` contains them too."""
    core: Floats
    indexer: Floats
    """The indexer of sparse attention: its linears, its scores, and the choice of the best keys."""
    indexer_back: Floats
    """The indexer's whole backward: its loss and gradients, which are not a multiple of its forward."""
    norm: Floats
    """One norm with its residual."""
    residual: Floats
    """Adding the output of a block."""
    rotary: Floats
    """Rotary embedding, changes of the layout of queries, keys and values, and the output's gate."""
    rotary_back: Floats
    router: Floats
    """The router, and the norms that sandwich norms add around it and the experts."""
    mixer: Floats
    """The two projections of a mixer: Mamba-2, or a gated delta net."""
    scan: Floats
    """The mixer's convolution, scan and norm."""
    quantise_mixer: Floats
    """Quantising the inputs of the mixer's projections, in forward."""
    quantise_mixer_back: Floats
    """Quantising the gradients of those projections' outputs."""
    latent: Floats
    """The projections to the latent width and back."""
    dense: Floats
    experts: Floats
    activation: Floats
    """The routed experts' activation function."""
    quantise: Floats
    """Quantising, in forward, the inputs of attention's linears and of a dense layer's first linear."""
    quantise_back: Floats
    """Quantising the gradients of those linears' outputs."""
    cast: Floats
    """Quantising the inputs of the routed experts' products, in forward."""
    cast_back: Floats
    """Quantising the gradients of those products' outputs."""
    permute: Floats
    shared: Floats
    mtp: Floats
    loss: Floats
    adapt_attention: Floats
    """The adapters of attention's linears."""
    adapt_mlp: Floats
    adapt_moe: Floats
    """The adapters of experts, shared experts, router and latent projections."""
    adapt_mixer: Floats
    window_linear: Floats
    """This and the other `window_` parts: attention in layers whose window has another shape."""
    window_core: Floats
    window_rotary: Floats
    window_rotary_back: Floats
    window_quantise: Floats
    window_quantise_back: Floats
    window_adapt_attention: Floats
    vision: Floats
    """The encoder of the vision tower."""
    merger: Floats
    """The mergers of the vision tower: the projector."""

    @property
    def windowed(self) -> Work:
        """Return the work of layers whose window has another shape."""
        return evolve(self, **{name: getattr(self, f"window_{name}") for name in IN_WINDOW})

    def take(self, at: Ints) -> Work:
        """Select the rows `at`."""
        return Work(*(seconds[..., at] for seconds in astuple(self, recurse=False)))


def clock(hw: Hardware) -> float:
    """Return the sustained clock relative to that of a GPU with the power for which its peaks were first stated.

    Passes over memory follow the clock too: they reach half of the HBM bandwidth, and wait for the SMs, not for HBM. If
    they did not follow it, the same configurations would come out 5% too slow on GB300 and 3% too fast on GB200.
    """
    return (hw.watts / hw.rated_watts) ** hw.constants.power if hw.watts and hw.rated_watts else 1.0


def flops_rate(hw: Hardware, t: Table) -> Floats:
    """Return the FLOP/s of a large matrix product by row."""
    rates = [hw.rate_of(p) for p in PRECISION]
    each = [getattr(hw.constants, SHARE[r]) * hw.tflops[r] for r in rates]
    return picked(each, t["precision"]) * 1e12 * clock(hw)


def fused(t: Table) -> NDArray[np.bool_]:
    """Whether, by row, one kernel runs the experts' products, activation and quantisation.

    Transformer Engine has it for MXFP8 and NVFP4 (te pytorch/ops/fused/grouped_mlp.py:408). It needs static shapes, so
    it is used with the captured iteration (bridge perf_recipes/deepseek/gb200/deepseek_v3.py:163).
    """
    return FUSED[t["precision"]] & (t["captured"] > 0)


def stream(hw: Hardware) -> float:
    """Return the bytes/s of a pass over memory."""
    return hw.hbm * hw.constants.stream * clock(hw)


def weights_moved(hw: Hardware, t: Table) -> Floats:
    """Return the seconds to move one of a rank's weights in a microbatch, divided by three.

    Forward and the gradient of the input read the weight; the weight's gradient is read from, and written to,
    Megatron's buffer (te pytorch/module/grouped_linear.py:963; core extensions/transformer_engine.py:2230), in FP32 or
    BF16. What products hide of this time, they lose by waiting.
    """
    moved = 2 * formats.by_precision(READ, t) + 2 * formats.gradient(t)
    return moved / 3 / hw.hbm


def attention_weights(m: Model) -> tuple[int, int]:
    """Count the weights of one layer's attention linears, without TP, as (all, MLA's up-projections)."""
    if m.attention != "mla":
        width = (m.heads + m.query_groups) * (m.head_dim + m.value_dim) + m.heads * m.attention_gate * m.head_dim
        return m.hidden * width, 0
    qk, v = m.heads * (m.qk_nope_dim + m.qk_rope_dim), m.heads * m.v_head_dim
    up = (m.q_lora_rank or m.hidden) * qk + m.kv_lora_rank * (m.heads * m.qk_nope_dim + v)
    return up + m.hidden * (m.q_lora_rank + m.kv_lora_rank + m.qk_rope_dim + v), up


def context(m: Model, seq: float) -> float:
    """Return the mean number of keys that a query attends to, over all layers: half the sequence, or less in
    windows."""
    full = seq / 2
    window = min(full, m.window - m.window * (m.window - 1) / (2 * seq)) if m.window else full
    return (full + (m.window_every - 1) * window) / m.window_every if m.window_every else window


def split_width(k: Constants, width: ArrayLike) -> Floats:
    """Return how much slower a linear's products are on a rank's part of the split dimension than large ones.

    One of the three products (forward and two in backward) sums over that dimension.
    """
    return 1.0 + k.shallow / np.asarray(width, float) / 3


def work(
    m: Model,
    hw: Hardware,
    t: Table,
    seq: int,
    skew: Floats | float,
    adapter: Adapter | None = None,
    span: float = 0,
    rotates: bool = False,
    fp8: tuple[bool, bool] = (False, False),
) -> Work:
    """Return the forward seconds of every part.

    `skew` is the fullest rank's routed tokens relative to the mean, `span` the tokens of a packed sample (0 for the
    whole sequence), `rotates` whether one kernel rotates queries and keys, and `fp8` whether the products of (attention
    itself, the output layer) run in 8 bits. Attention's exponentials are as many in 8 bits.
    """
    if m.windowed:
        other = work(with_window(m), hw, t, seq, skew, adapter, span, rotates, fp8)
        changed = {f"window_{name}": getattr(other, name) for name in IN_WINDOW}
        return evolve(work(without_window(m), hw, t, seq, skew, adapter, span, rotates, fp8), **changed)
    split = t["micro_batch"] * (seq / t["cp"]) / t["tp"]
    k, rate, bf16, hbm = hw.constants, flops_rate(hw, t), hw.tflops["bf16"] * 1e12 * clock(hw), stream(hw)
    attention, up = attention_weights(m)
    attended = k.attention * (k.attention_mla if m.attention == "mla" else 1.0)
    exponential = k.softmax * 16 / hw.exponentials
    routed = split * m.topk * t["etp"] * skew
    cast = picked(k.by("cast", PRECISION, 0.0), t["precision"])
    loose = np.where(fused(t), 1.0, k.unfused) * routed
    narrow = split_width(k, m.heads * m.value_dim / t["tp"])
    dense, shared = split_width(k, m.ffn_hidden / t["tp"]), split_width(k, max(m.shared_expert_hidden, 1) / t["tp"])
    encoder, projector = vision(m, t, hw)
    entering, leaving = quantised(m)
    moved, tp, block = weights_moved(hw, t), t["tp"], products(m) * m.hidden
    acted = 2.0 * products(m)
    mixer = next(iter(blocks.of(m).values()), None)
    mixed = _mixed(m, hw, t, mixer, split, rate, cast) if mixer else _NOTHING
    widened, attends = 1 + k.softmax / WIDE, bf16 * attended
    # a token's products in attention itself, with exponentials counted as products; an indexer's seconds, forward and
    # backward with its loss, for all tokens on each TP rank
    if m.sparse:
        pairs, tokens = blocks.attention(m, t["tp"] * 1.0, span or seq, exponential), split * t["tp"]
        found = 2 * blocks.projections(m) / rate + 2 * blocks.scores(m, seq) / attends + blocks.SCORED * seq / hbm
        chosen, learned = tokens * found, tokens * 2 * blocks.losses(m, t["tp"] * 1.0, seq) / attends
    else:
        width = m.qk_nope_dim + m.qk_rope_dim + m.v_head_dim if m.attention == "mla" else m.head_dim + m.value_dim
        keys = (span or seq) if m.wide_heads else context(m, span or seq)  # separate kernels do not skip what is masked
        width = width * hw.tflops["bf16"] / hw.tflops[hw.rate_of("fp8_current")] if fp8[0] else width
        pairs = np.zeros(t.rows) + keys * m.heads * (width + exponential)
        chosen = learned = np.zeros(t.rows)
    turned, turned_back = rotary(m, rotates)
    scores = UNFUSED_SCORE * m.heads * seq * m.wide_heads
    return Work(
        **{name: np.broadcast_arrays(seconds, split)[0] for name, seconds in mixed.items()},
        **dict.fromkeys((f"window_{name}" for name in IN_WINDOW), np.zeros(t.rows)),
        **{f"adapt_{name}": _adapters(m, hw, t, seq, adapter, parts) for name, parts in _ADAPTED.items()},
        linear=2 * split * attention / rate * narrow + moved * attention / tp,
        up=2 * split * up / rate * narrow,
        core=2 * split * pairs / widened / attends + split * scores / hbm,
        indexer=chosen,
        indexer_back=learned,
        norm=split * m.hidden * 6 / hbm,
        residual=split * m.hidden * 4 / hbm,
        rotary=split * turned / hbm,
        rotary_back=split * turned_back / hbm,
        router=split * (m.experts * 12 + m.sandwich_norms * (6 * EAGER_NORM - 6) * m.hidden) / hbm,
        latent=split
        * (4 * m.hidden * m.moe_latent / rate + (m.hidden + m.moe_latent) * cast * (m.moe_latent > 0) / hbm)
        + moved * 2 * m.hidden * m.moe_latent,
        dense=split * (2 * block * m.ffn_hidden * dense / rate + m.ffn_hidden * (acted + cast) / hbm)
        + moved * block * m.ffn_hidden / tp,
        experts=_experts(m, hw, t, routed, rate),
        activation=loose * (m.expert_hidden * (acted + 8 * m.mlp_bias) / t["etp"] + m.hidden * 4 * m.mlp_bias) / hbm,
        quantise=split * (m.hidden + entering) * cast / hbm,
        quantise_back=split * (m.hidden + leaving) * cast / hbm,
        cast=loose * (routed_width(m) + m.expert_hidden / t["etp"]) * cast / hbm,
        cast_back=loose * (routed_width(m) + (products(m) - 1) * m.expert_hidden / t["etp"]) * cast / hbm,
        permute=routed * routed_width(m) * 2 * picked(k.by("permute", DISPATCHER), t["dispatcher"]) / hbm,
        shared=split * m.shared_expert_hidden * (2 * block * shared / rate + (acted + cast) / hbm)
        + moved * block * m.shared_expert_hidden / tp,
        mtp=4 * split * m.hidden**2 / rate,
        loss=split * m.vocab * (2 * m.hidden / (rate if fp8[1] else bf16 * k.gemm) + (8 + TANH * m.softcap) / hbm),
        vision=encoder,
        merger=projector,
    )


def rotary(m: Model, fused: bool) -> tuple[float, float]:
    """Return the bytes of memory traffic per token of the small kernels around attention, as (forward, backward).

    They are the rotary embedding, copies of queries, keys and values to another layout, norms that other kernels do not
    contain, and the gate. MLA's fused kernels rotate queries in place, split keys from values and add the rotary part
    to the keys; backward moves as much (core fusions/fused_mla_yarn_rope_apply.py:68 and :379). Separate kernels copy
    each of them several times (core transformer/multi_latent_attention.py:924-964).
    """
    if m.attention == "mla" and fused and not m.sparse:
        keys, values_ = m.qk_nope_dim + m.qk_rope_dim, m.v_head_dim
        once = 2.0 * m.heads * (2 * m.qk_rope_dim + m.qk_nope_dim + values_ + keys + values_)
        return once, once
    width = m.qk_nope_dim + m.qk_rope_dim + m.v_head_dim if m.attention == "mla" else m.head_dim + m.value_dim
    gate = 6 * m.heads * m.head_dim * m.attention_gate
    normed = SPLIT_NORM * (m.heads + m.query_groups) * m.head_dim * (m.qk_norm_over == "split_heads")
    normed += m.sandwich_norms * (VALUE_NORM * m.query_groups * m.value_dim + 6 * m.hidden)
    moved = m.heads * width * (2 if m.position_embedding_type == "none" else 10) + gate + normed
    return moved, 2.0 * moved


_ADAPTED = {"attention": ("attention",), "mlp": ("mlp",), "moe": activations.OF_MOE, "mixer": ("mixer",)}
"""The parts of a block whose adapters are priced together, by name in `Work`."""


def _adapters(m: Model, hw: Hardware, t: Table, seq: int, a: Adapter | None, parts: tuple[str, ...]) -> Floats:
    """Return the forward seconds of adapters.

    They are two narrow products, which stream their input and output, a scaling, and the addition to the linear's
    output (bridge peft/utils.py:1181, lora_layers.py). In every forward, DoRA also multiplies the adapter's two
    matrices, adds the weight, and takes the length of each row (bridge peft/dora_layers.py:116).
    """
    total = np.zeros(t.rows)
    if a is None:
        return total
    rate, hbm = hw.tflops["bf16"] * 1e12 * clock(hw) * hw.constants.gemm, stream(hw)
    every = t["micro_batch"] * (seq / t["cp"])
    found = {linear: o for f in activations.linear_features(m) for linear, o in adapters.adapted(m, a, f)}
    for linear, outputs in found.items():
        if linear.at not in parts:
            continue
        experts = linear.at == "experts"
        tokens, width = (every / t["tp"] * m.topk * t["etp"], t["etp"]) if experts else (every, t["tp"])
        rank, reads = adapters.rank_of(m, a, linear, t["etp"]), len(outputs) * linear.inputs  # type: ignore[arg-type]
        total = total + tokens / width * 2 * rank * (reads + sum(outputs)) / rate
        total = (
            total
            + tokens * (2 * reads / np.where(linear.split == "inputs", width, 1) + 12 * sum(outputs) / width) / hbm
        )
        if a.method == "dora":
            total = total + linear.inputs * linear.outputs / width * (2 * rank / rate + 10 / hbm)
    return total


def quantised(m: Model) -> tuple[int, int]:
    """Count the elements per token that are quantised for attention's linears, as (forward, backward).

    They are the inputs of all linears but the first, and the output gradients of all but the last; the hidden state and
    its gradient are not counted.
    """
    if m.attention != "mla":
        outputs = (m.heads * (1 + m.attention_gate) + m.query_groups) * m.head_dim + m.query_groups * m.value_dim
        return m.heads * m.value_dim, outputs
    latents = m.q_lora_rank + m.kv_lora_rank
    queries, keys = m.heads * (m.qk_nope_dim + m.qk_rope_dim), m.heads * (m.qk_nope_dim + m.v_head_dim)
    return m.heads * m.v_head_dim + latents, queries + keys + latents + m.qk_rope_dim


def joined(m: Model, hw: Hardware, t: Table, seq: int) -> Floats:
    """Return the seconds, forward and backward, of joining attention's results of the CP ring's steps.

    The first step's output and gradients are copied (4 bytes per element). Each later step's are added (6 bytes), on
    average over three quarters of the tokens, because a causal mask leaves half of the steps only their second half (te
    pytorch/attention/dot_product_attention/context_parallel.py:2159-2233, :2902-3031). Sparse attention has no ring.
    """
    qk, v = m.qk_nope_dim + m.qk_rope_dim if m.attention == "mla" else m.head_dim, m.value_dim
    kv = m.heads if m.attention == "mla" else m.query_groups
    if m.sparse:
        return np.zeros(t.rows)
    numbers = t["micro_batch"] * (seq / t["cp"]) / t["tp"] * (m.heads * (qk + v) + kv * (qk + v))
    return np.where(t["cp"] > 1, numbers * (4.0 + 0.75 * 6.0 * (t["cp"] - 1)) / stream(hw), 0.0)


def _experts(m: Model, hw: Hardware, t: Table, routed: Floats, rate: Floats) -> Floats:
    """Return the seconds of grouped products. With few tokens for each expert they are slow but still move all
    weights."""
    local = m.experts / t["ep"]
    filled = routed / local / (routed / local + hw.constants.half_full)
    width = m.expert_hidden / t["etp"]
    weights = products(m) * routed_width(m) * width
    return (
        2 * routed * weights * split_width(hw.constants, width) / (rate * filled)
        + weights_moved(hw, t) * local * weights
    )


_NOTHING: ByKind = dict.fromkeys(("mixer", "scan", "quantise_mixer", "quantise_mixer_back"), np.zeros(1))


def _mixed(m: Model, hw: Hardware, t: Table, mixer: Mixer, split: Floats, rate: Floats, cast: Floats) -> ByKind:
    """Return a Mamba-2 mixer's or a gated delta net's parts of `Work`."""
    projected, inner, moved = mixer.projected, mixer.inner, weights_moved(hw, t)
    weights = m.hidden * (projected + inner)
    k = hw.constants
    rate_, stream_ = (k.delta_rate, k.delta_stream) if m.linear else (k.scan_rate, k.scan_stream)
    return {
        "mixer": 2 * split * weights / rate * split_width(hw.constants, inner / t["tp"]) + moved * weights / t["tp"],
        "scan": split * (mixer.flops / rate_ + 2 * mixer.streamed / (hw.hbm * stream_)),
        "quantise_mixer": split * (m.hidden + inner) * cast / stream(hw),
        "quantise_mixer_back": split * (m.hidden + projected) * cast / stream(hw),
    }


def vision(m: Model, t: Table, hw: Hardware) -> tuple[Floats, Floats]:
    """Return the forward seconds of the vision tower as (encoder, projector): one image per sample, BF16, split over TP
    unless it is replicated, and the same on every CP rank."""
    v = m.vision
    if v is None:
        return np.zeros(t.rows), np.zeros(t.rows)
    patches = v.image_tokens * v.merge**2
    layer = 2 * (4 * v.hidden**2 + (2 + v.pooled) * v.hidden * v.ffn_hidden) + 4 * patches * v.hidden
    wide = v.hidden * v.merge**2
    merge = 2 * wide * (wide + v.out_hidden) * (1 + len(v.deepstack)) / v.merge**2
    if v.pooled:
        merge = 2 * v.hidden * v.out_hidden / v.merge**2
    split = t["micro_batch"] * patches / (1.0 if v.replicated else t["tp"])
    each = split / (hw.tflops["bf16"] * 1e12 * clock(hw) * hw.constants.attention)
    return each * layer * v.layers, each * merge


def forward(m: Model, w: Work) -> ByKind:
    """Return the forward seconds by kind of layer."""
    if m.windowed:
        return either(m, forward(without_window(m), w), forward(with_window(m), w.windowed))
    routed = w.latent + w.experts + w.activation + w.cast + w.permute + w.shared
    routed, dense = routed + w.adapt_moe, w.dense + w.adapt_mlp
    attention = w.linear + w.core + w.indexer + w.rotary + w.quantise + w.adapt_attention
    mixed = w.mixer + w.scan + w.quantise_mixer + w.adapt_mixer
    if not m.hybrid:
        every = 2 * (w.norm + w.residual) + w.router
        out = {"dense": every + attention + dense, "moe": every + attention + routed}
        out |= {"reuse": out["moe"] - w.indexer} if m.indexer_every > 1 else {}
        return {**out, "delta": every + mixed + routed} if m.linear else out
    around = w.norm + w.residual
    return {
        "dense": around + dense,
        "moe": around + w.router + routed,
        "mamba": around + mixed,
        "attention": around + attention,
    }


def of_weights(m: Model, w: Work) -> ByKind:
    """Return the seconds of weight gradients by kind of layer: one product for each forward product; frozen weights
    have none."""
    if m.windowed:
        return either(m, of_weights(without_window(m), w), of_weights(with_window(m), w.windowed))
    routed, mixed = w.latent + w.experts + w.shared, w.mixer
    if m.hybrid:
        return {"dense": w.dense, "moe": routed, "mamba": mixed, "attention": w.linear}
    out = {"dense": w.linear + w.dense, "moe": w.linear + routed}
    out |= {"reuse": out["moe"]} if m.indexer_every > 1 else {}
    return {**out, "delta": mixed + routed} if m.linear else out


def backward(m: Model, k: Constants, w: Work) -> ByKind:
    """Return the backward seconds by kind of layer: twice forward, except that a gradient is quantised once, and that
    attention and the scan take about 2.5 times forward."""
    if m.windowed:
        return either(m, backward(without_window(m), k, w), backward(with_window(m), k, w.windowed))
    back = {kind: 2 * seconds for kind, seconds in forward(m, w).items()}
    for kind in with_experts(m):
        back[kind] = back[kind] - 2 * w.cast + w.cast_back
    core = k.attention_mla_back if m.attention == "mla" else k.attention_back
    kept = w.quantise_back - 2 * w.quantise + w.rotary_back - 2 * w.rotary + (core - 2) * w.core
    attended = kept + w.indexer_back - 2 * w.indexer
    mixed = w.quantise_mixer_back - 2 * w.quantise_mixer + (k.scan_back - 2) * w.scan
    if m.hybrid:
        more = {"attention": attended, "mamba": mixed}
    else:
        more = {"dense": attended, "moe": attended, "delta": mixed, "reuse": kept}
    return {kind: seconds + more.get(kind, 0.0) for kind, seconds in back.items()}


def recomputed(m: Model, w: Work, t: Table) -> ByKind:
    """Return the forward seconds repeated in backward, by kind of layer; recomputing more never costs less.

    Checkpoints nest: while the MoE layer is recomputed, the inner checkpoints of its activation and its shared expert
    keep nothing again, so both are computed a third time (core transformer/moe/moe_layer.py:510 and :694,
    transformer/moe/experts.py:882). The checkpoint of MLA's up-projection contains the rotary embedding (core
    transformer/multi_latent_attention.py:975).
    """
    if m.windowed:
        return either(m, recomputed(without_window(m), w, t), recomputed(with_window(m), w.windowed, t))
    on = {word: t.has("recompute", bit) * 1.0 for word, bit in BIT.items()}
    up = w.up + w.rotary * (m.attention == "mla")
    shared = up * on["mla_up_proj"] + w.core * on["core_attn"]
    attended = shared + w.indexer * on["core_attn"]
    inner = w.activation * on["moe_act"] + w.shared * on["shared_experts"]
    routed = w.latent + w.experts + w.activation + w.cast + w.permute + w.shared
    moe = w.norm * on["layernorm"] + routed * on["moe"] + inner
    dense = w.dense * on["mlp"]
    if m.hybrid:
        parts = {"dense": dense, "moe": moe, "mamba": 0.0 * moe, "attention": attended}
    else:
        parts = {"dense": attended + w.norm * on["layernorm"] + dense, "moe": attended + moe, "delta": moe}
        parts |= {"reuse": shared + moe}
    return {
        kind: np.where(on["full"] > 0, np.maximum(seconds, parts[kind]), parts[kind])
        for kind, seconds in forward(m, w).items()
    }


def host_tower(m: Model, hw: Hardware, t: Table, learns: bool) -> Floats:
    """Return the seconds that the host needs to launch the vision tower: forward, backward if it is trained, and
    recompute. Only a whole-iteration graph captures them."""
    if m.vision is None:
        return np.zeros(t.rows)
    each = (hw.constants.host_attention + hw.constants.host_dense) * slower(hw) * (1.0 - t.has("cuda_graph", WHOLE))
    passes = 3.0 + activations.again(m.vision, t) if learns else 1.0
    return m.vision.layers * each * passes / 3


def slower(hw: Hardware) -> float:
    """Return the host's time per launch relative to the host for which launches are stated."""
    return (hw.constants.host_grace if hw.host == "grace" else 1.0) / hw.host_speed


def idle(m: Model, hw: Hardware, t: Table) -> ByKind:
    """Return the seconds for which the GPU is always idle, by kind of layer: between kernels, and with experts until
    the host knows the token counts."""
    k = hw.constants
    wait = k.host_wait * slower(hw) * (1.0 - t.has("cuda_graph", WHOLE))
    return {kind: k.gaps + wait * (kind in with_experts(m)) for kind in kinds(m)}


def host(m: Model, hw: Hardware, t: Table, adapter: Adapter | None = None) -> ByKind:
    """Return the seconds that the host needs for launches outside graphs, forward and backward, by kind of layer."""
    k, free = hw.constants, {word: 1.0 - t.has("cuda_graph", i) for i, word in enumerate(CUDA_GRAPH)}
    launches = picked(k.by("launches", PRECISION), t["precision"])
    all_again = t.has("recompute", BIT["full"])
    once = slower(hw) * free["full_iteration"]
    repeated = once * (1 + k.host_again * all_again)
    each = repeated * launches
    lists = k.host_expert * m.experts / t["ep"] * (t["dispatcher"] == ALLTOALL)
    router = k.host_router * free["moe_router"] + k.host_preprocess * free["moe_preprocess"]
    moe = (router + k.host_experts) * launches + lists
    moe = once * moe * (1 + k.host_again * (all_again | t.has("recompute", BIT["moe"])))
    attention = k.host_attention * free["attn"] * each
    if m.hybrid:
        mamba = (k.host_mamba * each + k.host_scan * repeated) * free["mamba"]
        out = {"dense": k.host_dense * each, "moe": moe, "mamba": mamba, "attention": attention}
    else:
        out = {"dense": attention + k.host_dense * each, "moe": attention + moe}
        out |= {"reuse": out["moe"], "window": out["moe"], "dense_window": out["dense"]}
        out |= {"delta": k.host_delta * free["attn"] * each + moe} if m.linear else {}
    if adapter is None:
        return out
    # the collectives of an adapter in a microbatch
    of_experts, over_tp = adapters.SUMMED[adapter.experts] * (t["ep"] > 1), t["tp"] > 1
    added = {
        kind: sum(
            len(outputs)
            * (
                k.host_adapter
                + k.host_collective
                * (of_experts if linear.at == "experts" else adapters.COLLECTIVES[linear.split] * over_tp)
            )
            for linear, outputs in adapters.adapted(m, adapter, kind)
        )
        for kind in out
    }
    return {kind: seconds + once * added[kind] for kind, seconds in out.items()}
