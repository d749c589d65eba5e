"""Estimate step time: the slowest stage's microbatches, the bubble, exposed data parallelism, and the optimizer.

`split_tower` separates a VLM's encoder and projector from its decoder: bytes and seconds on the rank that holds both.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from attrs import evolve, fields, frozen
from numpy.typing import NDArray

from moedsl.cost import activations, adapters, blocks, communication, compute, formats, memory, parameters
from moedsl.cost.activations import BIT
from moedsl.cost.blocks import ORDINARY, counted, either, kinds, with_experts, with_window
from moedsl.cost.communication import SPREAD_TOKENS, Skew
from moedsl.cost.compute import Work
from moedsl.cost.memory import Counts, Prices, StageMemory, Trained
from moedsl.cost.parameters import Parameters, of_time
from moedsl.cost.rows import Floats, Ints, Table
from moedsl.facts.axes import BY_NAME
from moedsl.facts.calibration import Constants
from moedsl.facts.facts import Hardware, Model, Vision
from moedsl.facts.fine_tuning import Adapter

MICROBATCH = (
    "compute", "recompute", "expert_communication", "tensor_communication", "context_communication",
    "activation_offload", "launch",
)  # fmt: skip
"""The parts of a stage's time in each microbatch."""
ALONE = "alone"
"""Extra time of a microbatch that runs alone although expert overlap is on."""
STEP = ("data_communication", "optimizer")
"""The parts of a stage's time once per step."""
PARTS = (*MICROBATCH, "pipeline_communication", "bubble", "stragglers", "step_overhead", *STEP)
SHAPE = ("tp", "cp", "etp", "ep", "micro_batch", "dispatcher", "precision", "captured", "grad_reduce")
"""The axes of a layer's work and messages; policies decide which of them are repeated, hidden or launched."""
LAYER = (*SHAPE, "recompute", "offload_modules", "cuda_graph", "ep_overlap", "delay_wgrad")
ONCE = ("pp", "vpp", "tp", "etp", "ep", "precision", "fp8_weights", "sharding", "moments", "grad_reduce", "offload")
"""The axes that once-per-step times depend on."""
COVERS = (
    "step time is a roofline with stated efficiencies: matrix products, attention and memory passes of the slowest "
    "stage, recompute, expert, tensor and context communication, launches where no CUDA graph holds them, the bubble, "
    "data parallelism after overlap, stragglers of natural routing, and the optimizer. It leaves out data loading, "
    "checkpoints and slow nodes."
)

StepPrices = dict[str, Floats]


def microbatch(m: Model, hw: Hardware, t: Table, seq: int, learns: Trained, skew: Skew) -> dict[str, StepPrices]:
    """Return seconds by part (`MICROBATCH` and `ALONE`) and feature of `parameters.of_time`, for each row of a `LAYER`
    table."""
    shape = t.narrow(SHAPE)
    fullest = skew.fullest(m, shape, seq)
    w = compute.work(m, hw, shape, seq, fullest, learns.adapter, learns.span, learns.rotates, learns.fp8)
    busy = computed(m, hw.constants, shape, w, learns)
    # what is recomputed is priced once for each shape and recompute set
    keyed = Table({"shape": shape.inverse, "recompute": t["recompute"]}, shape.inverse).narrow(("shape", "recompute"))
    again = compute.recomputed(m, w.take(keyed["shape"]), keyed)
    repeated = {name: seconds[..., keyed.inverse] for name, seconds in again.items()}
    out: dict[str, StepPrices] = {part: {} for part in (*MICROBATCH, ALONE)} | {"compute": dict(busy)}
    moved, at = _moved(m, hw, t, seq, learns, busy), shape.inverse
    transfer, block, normed, across = _wires(m, hw, shape, seq, w, fullest, skew.wire)
    transfer, block = transfer[..., at], block[..., at]
    normed = normed[..., at] * (1.0 + t.has("recompute", BIT["full"]))
    launch, idle = compute.host(m, hw, t, learns.adapter), compute.idle(m, hw, t)
    split, none = _split_blocks(m, learns.adapter), np.zeros(len(at))
    twice = _repeated_blocks(m, t, split)
    for name in kinds(m):
        sent = alone = none
        if name in with_experts(m):
            sent, alone = communication.exposed(hw, t, transfer, busy[name])
        over_tp = block * (split[name] + 2 / 5 * twice[name]) + normed
        others, copies = (over_tp, across[name][..., at]), moved.get(name, none)
        paired, single = (
            (busy[name], repeated[name], exposed, *others, np.maximum(copies - exposed, 0.0))
            for exposed in (sent, alone)
        )
        waits, own = (np.maximum(launch[name] - sum(parts), idle[name]) for parts in (paired, single))
        out[ALONE][name] = sum(single) + own - sum(paired) - waits
        for part, seconds in zip(MICROBATCH, (*paired, waits), strict=True):
            out[part][name] = seconds
    passed, _ = learns.passed
    covered = 0.0 if m.vision is None else activations.again(m.vision, t)
    out["recompute"]["vision"] = repeated_vision = passed * w.vision[..., shape.inverse] * covered
    busy = (1 + learns.tower + passed) * w.vision[..., shape.inverse] + repeated_vision
    out["launch"]["vision"] = np.maximum(compute.host_tower(m, hw, t, passed) - busy, 0.0)
    return out


def computed(m: Model, k: Constants, shape: Table, w: compute.Work, learns: Trained) -> StepPrices:
    """Return the seconds of forward and backward by feature, for every row that `shape` leads to; linear in the work.

    Each MTP layer has its own projection, logits and loss (core transformer/multi_token_prediction.py:841-855).
    """
    layers = compute.forward(m, w)
    (tower, merger), passed = learns.passed, learns.language or any(learns.passed) or learns.adapter is not None
    if passed:
        backward = compute.backward(m, k, w)
        layers = {kind: seconds + backward[kind] for kind, seconds in layers.items()}
    if passed and not learns.language:
        layers = {kind: layers[kind] - seconds for kind, seconds in compute.of_weights(m, w).items()}
    both = 1 + passed + (passed and learns.language)
    vision = w.vision * (1 + tower + learns.tower) + w.merger * (1 + learns.projection + (merger or tower))
    extra = {"mtp": both * (w.mtp + w.loss), "loss": both * w.loss, "vision": vision}
    each = {**layers, **extra}
    return {name: seconds[..., shape.inverse] for name, seconds in each.items()}


def once(hw: Hardware, t: Table, gpus: int, n: Counts) -> dict[str, StepPrices]:
    """Return the seconds by part of `STEP` and feature, for every row of an `ONCE` table.

    Data parallelism gathers all parameters with FSDP, else those that the optimizer updates (core
    distributed/distributed_data_parallel.py). Adam streams its state through HBM; with offloaded moments the host does
    the step.
    """
    fsdp, pairs = formats.fsdp(t), {name: (every, n.learning[name]) for name, every in n.all.items()}
    gathered = {
        name: Parameters(fsdp * a.dense + (1 - fsdp) * b.dense, fsdp * a.expert + (1 - fsdp) * b.expert)  # type: ignore[arg-type]
        for name, (a, b) in pairs.items()
    }
    each = (10.0 + 2 * (formats.master(t) + formats.moments(t))) / compute.stream(hw)
    offloaded = t["offload"] == BY_NAME["offload"].words.index("optimizer")
    each = np.where(offloaded, each + 1 / hw.constants.host_adam, each)
    dense, expert = t["tp"] * t["pp"] / gpus, t["etp"] * t["ep"] * t["pp"] / gpus
    return {
        "data_communication": communication.data(hw, t, gpus, gathered, n.learning),
        "optimizer": {name: each * (p.dense * dense + p.expert * expert) for name, p in n.learning.items()},
    }


Wires = tuple[Floats, Floats, Floats, StepPrices]
"""Seconds by shape: an expert transfer, a block's TP, TP of a norm over all heads, and by kind of layer exposed CP with
the joining of its steps."""


def _wires(m: Model, hw: Hardware, shape: Table, seq: int, w: compute.Work, fullest: Floats, wire: float) -> Wires:
    hidden = _around(m, hw, shape, seq, w.core)
    if m.hybrid:
        none = np.zeros_like(hidden)
        across = {"attention": hidden, "mamba": communication.scanned(m, hw, shape, seq), "dense": none, "moe": none}
    else:
        across = dict.fromkeys(kinds(m), hidden)
        across |= {"delta": communication.delta_net(m, hw, shape, seq)} if m.linear else {}
        if m.windowed:
            across = either(m, across, dict.fromkeys(ORDINARY, _around(with_window(m), hw, shape, seq, w.window_core)))
    over_tp = communication.tensor(m, hw, shape, seq), communication.normed(m, hw, shape, seq)
    return fullest * communication.expert(m, hw, shape, seq, wire), *over_tp, across


def _around(m: Model, hw: Hardware, shape: Table, seq: int, core: Floats) -> Floats:
    """Return the seconds of CP that attention does not hide, and of joining its steps' results."""
    ring = communication.context(m, hw, shape, seq)
    hides = 0.0 if m.sparse else 3 * core
    return np.maximum(ring - hides, hw.constants.cp_exposed * ring) + compute.joined(m, hw, shape, seq)


def _split_blocks(m: Model, a: Adapter | None) -> Mapping[str, float]:
    """Count the blocks whose linears TP splits, by kind of layer.

    A block stands for five transfers of the hidden state (`communication.tensor`); an indexer adds a fraction of a
    block for what it gathers. An adapter gathers its output in forward, and its gradient in backward, if TP splits its
    linear by inputs (bridge peft/utils.py:1044 and :1238); if TP splits it by outputs, it only reduces a gradient.
    """
    shared = 1.0 if m.shared_expert_hidden else 0.0
    if m.hybrid:
        out = {"dense": 1.0, "moe": shared, "mamba": 1.0, "attention": 1.0}
    else:
        indexed = blocks.gathered(m) / m.hidden / 5 if m.sparse else 0.0
        out = {"dense": 2.0 + indexed, "moe": 1.0 + shared + indexed, "delta": 1.0 + shared}
        out |= {"reuse": 1.0 + shared} if m.indexer_every > 1 else {}
        out = either(m, out, out)
    if a is None:
        return out
    each = {"inputs": 0.5, "outputs": 0.25, "neither": 0.0}
    alone = {
        kind: sum(each[linear.split] for linear, _ in adapters.adapted(m, a, kind) if linear.at != "experts")
        for kind in out
    }
    return {kind: blocks + alone[kind] for kind, blocks in out.items()}


def _repeated_blocks(m: Model, t: Table, split: Mapping[str, float]) -> Mapping[str, Floats]:
    """Count the TP-split blocks whose forward is recomputed, by kind of layer; a shared expert counts twice if its own
    checkpoint is inside the MoE layer's (`compute.recomputed`)."""
    on = {word: t.has("recompute", bit) * 1.0 for word, bit in BIT.items()}
    shared = (on["moe"] + on["shared_experts"]) * bool(m.shared_expert_hidden)
    part = {kind: shared if kind in with_experts(m) else np.zeros(t.rows) for kind in split} | {"dense": on["mlp"]}
    return {kind: np.where(on["full"] > 0, blocks, part[kind]) for kind, blocks in split.items()}


def _moved(m: Model, hw: Hardware, t: Table, seq: int, learns: Trained, busy: StepPrices) -> StepPrices:
    """Return the seconds of offloading that compute does not hide, by kind of layer: copies to the host in forward,
    back in backward.

    A third of the compute is forward. In a hybrid, all layers up to the next layer of experts hide its copies. Copies
    and expert communication use different links, so what remains of both runs at the same time.
    """
    if not t["offload_modules"].any():
        return {}
    sent = activations.offloaded(m, activations.sizes(m, t, seq, learns.language, learns.adapter))
    hides = dict(busy)
    if m.hybrid:
        number = counted(m.layer_pattern)
        hides["moe"] = np.asarray(sum(n * busy[name] for name, n in number.items()) / number["moe"])
    window = hw.constants.window_layer
    each = {name: size / (hw.constants.host_copies * hw.host_link) for name, size in sent.items()}
    return {
        name: np.maximum(s - window * hides[name] / 3, 0.0) + np.maximum(s - window * hides[name] * 2 / 3, 0.0)
        for name, s in each.items()
    }


def matrix(m: Model, prices: Mapping[str, StepPrices], parts: tuple[str, ...], rows: int) -> Floats:
    """Sum the named parts into (features, rows), or (machines, features, rows) for several machines."""
    names, columns = of_time(m), [pair for part in parts for pair in prices[part].items()]
    machines = np.broadcast_shapes(*(np.shape(column)[:-1] for _, column in columns))
    out = np.zeros((*machines, len(names), rows))
    for name, column in columns:
        out[..., names.index(name), :] += column
    return out


def unpaired(pp: Ints, microbatches: Floats) -> Floats:
    """Count the microbatches of a step whose forward and backward run alone: pp of them, or all if there are fewer.

    Without a pipeline the first forward and the last backward run alone (core pipeline_parallel/combined_1f1b.py:51-56,
    :66). The interleaved schedule warms up with 2 (pp - stage - 1) + (vpp - 1) pp + 1 forwards over vpp chunks, on
    average pp vpp per stage, and ends with as many backwards (core pipeline_parallel/schedules.py:927-943).
    """
    return np.minimum(pp, microbatches)


def after_overlap(
    k: Constants,
    wire: Floats,
    microbatch: Floats,
    fsdp: NDArray[np.bool_],
    microbatches: Floats,
    overlapped: Floats | float = 1.0,
) -> Floats:
    """Return the exposed seconds of data parallelism: once per step, or with FSDP for every microbatch.

    `overlapped` is the share of the transfers that can overlap with compute.
    """
    hidden = overlapped * wire
    left = np.maximum(hidden - k.window_microbatch * microbatch, k.dp_exposed * hidden) + (wire - hidden)
    return np.where(fsdp, left * microbatches, left)


def between_stages(k: Constants, hop: Floats, microbatch: Floats, pp: Ints, vpp: Ints, microbatches: Floats) -> Floats:
    """Return the seconds per step of sends between stages that compute does not hide.

    With virtual stages Bridge overlaps them with the compute of other chunks (bridge training/comm_overlap.py:453-457),
    except a share that is never hidden, and while the pipeline fills and drains. Without virtual stages, each
    microbatch waits for both of its sends.
    """
    each = 2.0 * vpp * hop
    left = np.maximum(each - k.window_microbatch * microbatch, k.p2p_exposed * each)
    return np.where(vpp > 1, left, each) * microbatches + 2.0 * (pp - 1) * hop


def transfers(stage: int, pp: int, vpp: int) -> int:
    """Count a microbatch's transfers between a stage and others: each chunk receives its input and sends its output,
    and the same for their gradients, except at the ends of the model (core pipeline_parallel/p2p_communication.py)."""
    return 4 * vpp - 2 * (stage == 0) - 2 * (stage == pp - 1)


def stragglers(hw: Hardware, microbatch: Floats, tokens: Floats, groups: Floats, microbatches: Floats) -> Floats:
    """Return the seconds that a step waits for the slowest of a stage's expert groups, which get different tokens.

    A group's time is the sum over its microbatches of `tokens` each. Their spread is a share of their mean, and falls
    with the square root of the tokens. The slowest of n groups is sqrt(2 ln n) deviations above the mean.
    """
    spread = hw.constants.straggling * np.sqrt(SPREAD_TOKENS / tokens)
    return spread * microbatch * np.sqrt(2 * np.log(np.maximum(groups, 1.0)) * microbatches)


def bubble(microbatch: Floats, pp: Ints, vpp: Ints) -> Floats:
    """Return the bubble's seconds: (pp - 1) / vpp microbatches of the slowest stage, warm-up and cool-down together."""
    return microbatch * ((pp - 1) / vpp)


KINDS = {
    "matrix": ("linear", "window_linear", "mixer", "latent", "dense", "experts", "shared", "mtp", "loss"),
    "attention": ("core", "window_core", "indexer", "indexer_back"),
    "scan": ("scan",),
    "passes": (
        "norm", "residual", "rotary", "rotary_back", "router", "quantise", "quantise_back", "quantise_mixer",
        "quantise_mixer_back",
        "activation", "cast", "cast_back", "permute", "adapt_attention", "adapt_mlp", "adapt_moe", "adapt_mixer",
        "window_rotary", "window_rotary_back", "window_quantise_back", "window_adapt_attention",
    ),
    "vision": ("vision", "merger"),
}  # fmt: skip
"""The parts of `compute.Work` by kind of work. `linear` already contains `up`; a product contains the casts fused with
it."""


def by_kind(
    m: Model,
    hw: Hardware,
    shape: Table,
    seq: int,
    learns: Trained,
    skew: Skew,
    kinds: Mapping[str, tuple[str, ...]] = KINDS,
) -> dict[str, StepPrices]:
    """Return one microbatch's seconds by kind of work and feature; those of `KINDS` sum to the compute of
    `microbatch`."""
    whole = compute.work(
        m, hw, shape, seq, skew.fullest(m, shape, seq), learns.adapter, learns.span, learns.rotates, learns.fp8
    )
    every = [part for parts in KINDS.values() for part in parts]
    nothing = {part: np.zeros(shape.rows) for part in every}
    return {
        kind: computed(
            m, hw.constants, shape, evolve(whole, **(nothing | {p: getattr(whole, p) for p in parts})), learns
        )
        for kind, parts in kinds.items()
        if m.hybrid or m.linear or kind != "scan"
    }


TOWER_PARTS = ("encoder", "projector", "decoder")


@frozen
class TowerPart:
    """One part of a VLM on a rank of the first pipeline stage: bytes by kind of `memory.KINDS`, and seconds per
    step."""

    name: str
    params: int
    bytes: Mapping[str, float]
    seconds: float

    @property
    def total(self) -> float:
        """Sum all bytes."""
        return sum(self.bytes.values())


def tower_counts(v: Vision, tp: int) -> tuple[int, int]:
    """Return a rank's parameters as (encoder, projector)."""
    projector = sum(parameters.mergers(v, tp))
    return parameters.vision(v, tp) - projector, projector


def tower_prices(v: Vision, hw: Hardware, t: Table, gpus: int, learns: Trained) -> tuple[dict[str, Prices], ...]:
    """Return the bytes of each kind by feature of `parameters.of_memory` as (encoder, projector), for a table of one
    row."""
    tp = int(t["tp"][0])
    kept = activations.vision_parts(v, t, learns.passed)
    encoder, projector = tower_counts(v, tp)
    roots = (encoder - parameters.vision_layers(v, tp), projector)
    out: list[dict[str, Prices]] = []
    for i, (count, learnt) in enumerate(((encoder, learns.tower), (projector, learns.projection))):
        n = Counts({"vision": Parameters(count)}, {"vision": Parameters(count * learnt)})
        gathered = formats.fsdp(t) * roots[i] * (gpus > tp) * formats.BF16
        flowing: dict[str, Prices] = {"activations": {"vision_live": kept[i]}, "buffers": {"vision": gathered}}
        out.append({**memory.held(n, t, gpus, hw.transposes), **flowing})
    return tuple(out)


def tower_seconds(m: Model, hw: Hardware, t: Table, seq: int, learns: Trained) -> tuple[Floats, Floats]:
    """Return one microbatch's seconds by row, with recompute, as (encoder, projector); launches count as the
    encoder's."""
    shape = t.narrow(SHAPE)
    whole = compute.work(m, hw, shape, seq, skew=1.0)
    nothing = Work(*(np.zeros(shape.rows) for _ in fields(Work)))
    encoder = computed(m, hw.constants, shape, evolve(nothing, vision=whole.vision), learns)["vision"]
    projector = computed(m, hw.constants, shape, evolve(nothing, merger=whole.merger), learns)["vision"]
    again = learns.tower * (0.0 if m.vision is None else activations.again(m.vision, t))
    encoder = encoder + again * whole.vision[shape.inverse]
    return np.maximum(compute.host_tower(m, hw, t, learns.tower), encoder), projector


def split_tower(
    m: Model, v: Vision, tp: int, profile: Floats, priced: tuple[dict[str, Prices], ...], times: tuple[float, float]
) -> tuple[TowerPart, TowerPart]:
    """Return encoder and projector of the stage whose row of `parameters.memory` is `profile`."""
    sizes = [{k: float(profile @ memory.matrix(m, {k: p}, 1)[:, 0]) for k, p in kinds.items()} for kinds in priced]
    first, second = (
        TowerPart(name, *of)
        for name, of in zip(TOWER_PARTS, zip(tower_counts(v, tp), sizes, times, strict=True), strict=False)
    )
    return first, second


def decoder_part(stage: StageMemory, seconds: float, others: tuple[TowerPart, ...]) -> TowerPart:
    """Return the decoder: everything else that the stage holds and computes, with its share of buffers and logits."""
    left = {k: float(getattr(stage, k)) - sum(o.bytes[k] for o in others) for k in memory.KINDS}
    params = stage.params + stage.expert_params - sum(o.params for o in others)
    return TowerPart("decoder", params, left, seconds - sum(o.seconds for o in others))
