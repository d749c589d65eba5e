"""Estimate the bytes on a rank, stage by stage, as torch.cuda.max_memory_allocated counts them: without the CUDA
context and the buffers of NCCL and DeepEP.

A stage's bytes are its profile (`parameters.memory`: counts of layers, tables, live microbatches) times a price for
each feature, so the peak over a whole column is a small matrix product for each pipeline shape.

`outside_torch` adds what a rank holds outside torch's allocator: the driver, the context, NCCL, and the buffers of
DeepEP or HybridEP. These are ranges in bytes, from the calibration. NCCL follows its documented defaults. DeepEP and
HybridEP follow the sizes of their buffers; Megatron-Core asks for them in `core transformer/moe/fused_a2a.py:35` and
`:339`.

`at_step` counts what a rank holds while the optimizer steps: no activation is alive, but gradients may exist twice.
From a BF16 gradient buffer Megatron-Core makes an FP32 copy of the shard that this rank updates (core
optimizer/distrib_optimizer.py:2782). The copy stays until the next step clears it. Only a precision-aware optimizer
without an FP8 recipe reads the buffer itself. Bridge's optimizers have such a recipe even in BF16 (see
`formats.master`), except those that offload. Megatron FSDP has buffers of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import ArrayLike, NDArray

from moedsl.cost import activations, adapters, blocks, formats, parameters
from moedsl.cost.blocks import kinds, products, routed_width, with_experts
from moedsl.cost.cases import CAPACITY, Case, Flag
from moedsl.cost.formats import BF16
from moedsl.cost.parameters import Parameters, of_memory
from moedsl.cost.rows import Floats, Table
from moedsl.facts.axes import BY_NAME, CUDA_GRAPH
from moedsl.facts.calibration import Constants
from moedsl.facts.facts import Hardware, Model
from moedsl.facts.fine_tuning import Adapter

Prices = Mapping[str, Floats]
"""Bytes by feature of `parameters.of_memory`."""
HELD = ("weights", "gradients", "optimizer")
KINDS = (*HELD, "activations", "buffers")
COLUMNS = (
    "tp", "cp", "etp", "ep", "micro_batch", "recompute", "offload", "offload_modules", "dispatcher", "cuda_graph",
    "ep_overlap", "precision", "fp8_weights", "sharding", "moments", "grad_reduce",
)  # fmt: skip
"""The axes that memory prices depend on; pp, vpp and the number of microbatches are in the profile instead."""

COVERS = (
    "peak memory is torch's max_memory_allocated on the most loaded rank: weights, gradients, optimizer state, saved "
    "activations, the working set of one layer and the logits. It leaves out the CUDA context, NCCL, the buffers of "
    "DeepEP and HybridEP, and fragmentation. Routed tokens are 10% above their mean on a layer's fullest "
    "rank, and less over many layers, whose fullest ranks differ; forced balance has none. A VLM's sample has one "
    "image. The lower and the upper figure take everything uncertain at its least and at its most; the verdict adds "
    "what lies outside torch."
)


@frozen
class StageMemory:
    """Bytes on one rank of a pipeline stage."""

    stage: int
    params: int
    expert_params: int
    weights: float
    gradients: float
    optimizer: float
    activations: float
    buffers: float
    layers: Mapping[str, int] = field(factory=dict)
    """The number of layers of each kind (`blocks.kinds`) and of MTP layers; kinds with no layer are left out."""

    @property
    def total(self) -> float:
        """Sum the five kinds of bytes."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.buffers


@frozen
class Trained:
    """The parts of the model that are trained."""

    language: bool = True
    tower: bool = True
    projection: bool = True
    adapter: Adapter | None = None
    """The adapter that is trained instead of all weights (bridge peft/base.py:98)."""
    span: float = 0
    """Mean number of tokens of the packed sample that a token attends to; 0 means the whole sequence."""
    rotates: bool = False
    """Whether one kernel rotates queries and keys."""
    fp8: tuple[bool, bool] = (False, False)
    """Whether the products of (attention itself, the output layer) run in 8 bits."""

    @property
    def passed(self) -> tuple[bool, bool]:
        """Whether the backward of (tower, projection) runs: for its weights, or for adapters in the tower."""
        inside = self.adapter is not None and not self.adapter.targets.isdisjoint(adapters.IN_TOWER)
        return self.tower or inside, self.projection or inside


def trained(freeze: frozenset[str], adapter: Adapter | None = None, span: float = 0, rotates: bool = False) -> Trained:
    """Return what is trained, from the frozen parts of a run's `vlm` or from its adapter."""
    if adapter is not None:
        return Trained(language=False, tower=False, projection=False, adapter=adapter, span=span, rotates=rotates)
    learns = ("freeze_language" not in freeze, "freeze_vision" not in freeze, "freeze_projection" not in freeze)
    return Trained(*learns, span=span, rotates=rotates)


@frozen
class Counts:
    """A rank's parameters by feature of `parameters.held`: all, and the trained ones."""

    all: Mapping[str, Parameters]
    learning: Mapping[str, Parameters]


def counts(m: Model, t: Table, learns: Trained) -> Counts:
    """Count a rank's parameters for one instance of each feature; the counts are columns, one value per row of `t`."""
    tp = t["tp"]
    none = Parameters()
    every = {
        **parameters.layers(m, tp, t["ep"], t["etp"]),  # type: ignore[arg-type]
        "mtp": parameters.mtp(m, tp),  # type: ignore[arg-type]
        "words": Parameters(parameters.table_size(m, tp)),  # type: ignore[arg-type]
        "norm": Parameters(m.hidden),
        "vision": none,
    }
    if m.vision is not None:
        every |= {"vision": Parameters(parameters.vision(m.vision, tp))}  # type: ignore[arg-type]
    if learns.adapter is not None:
        added = {f: adapters.count(m, learns.adapter, f, tp, t["ep"], t["etp"]) for f in every}  # type: ignore[arg-type]
        return Counts({f: n + added[f] for f, n in every.items()}, added)
    learning = every if learns.language else dict.fromkeys(every, none)
    if m.vision is None:
        return Counts(every, learning)
    mergers = sum(parameters.mergers(m.vision, tp))  # type: ignore[arg-type]
    tower = every["vision"].dense
    learnt = (tower - mergers) * learns.tower + mergers * learns.projection
    return Counts(every, {**learning, "vision": Parameters(learnt)})


def prices(m: Model, hw: Hardware, t: Table, gpus: int, seq: int, learns: Trained, case: Case) -> dict[str, Prices]:
    """Return the bytes by kind and feature, for every row of `t`, in one `case` of the uncertain terms."""
    n = counts(m, t, learns)
    size = activations.sizes(m, t, seq, learns.language, learns.adapter)
    size = evolve(size, unfused=case.unfused, scores=case.scores)
    saved = activations.layers(m, size)
    return {
        **held(n, t, gpus, hw.transposes if case.transposes is None else case.transposes),
        "activations": _kept(m, t, size, saved, learns, case),
        "buffers": added(_buffers(m, t, gpus, size, saved, n, case), always(m, hw, t, learns, case)),
    }


def added(*priced: Prices) -> Prices:
    """Sum several prices feature by feature."""
    out: dict[str, Floats] = {}
    for each in priced:
        for name, column in each.items():
            out[name] = out[name] + column if name in out else column
    return out


def held(n: Counts, t: Table, gpus: int, transposes: Flag) -> Mapping[str, Prices]:
    """Price weights, gradients and optimizer state, whole or sharded over data parallelism.

    Transformer Engine keeps a BF16 parameter's quantised copy, unsharded, from one microbatch to the next (core
    extensions/transformer_engine.py:1082).
    """
    grad, fsdp, quantised = formats.gradient(t), formats.fsdp(t), formats.quantised(t, transposes)
    shard = np.where(formats.kept(t), quantised, formats.BF16)
    copy = np.where(formats.kept(t), 0.0, quantised)
    state = formats.master(t) + formats.moments(t) * (t["offload"] != BY_NAME["offload"].words.index("optimizer"))
    dense, expert = t["tp"] / gpus, t["etp"] * t["ep"] / gpus
    out: dict[str, dict[str, Floats]] = {"weights": {}, "gradients": {}, "optimizer": {}}
    for name, every in n.all.items():
        learns, blocks = n.learning[name], name not in ("words", "norm", "vision")
        kept, part = (copy + shard * (1 - fsdp), shard) if blocks else (formats.BF16 * (1 - fsdp), formats.BF16)
        out["weights"][name] = kept * every.total
        out["weights"][f"{name}_shard"] = part * (every.dense * dense + every.expert * expert) * fsdp
        out["gradients"][name] = grad * learns.total * (1 - fsdp)
        out["gradients"][f"{name}_shard"] = grad * (learns.dense * dense + learns.expert * expert) * fsdp
        out["optimizer"][f"{name}_shard"] = state * (learns.dense * dense + learns.expert * expert)
    return out


def _kept(m: Model, t: Table, s: activations.Sizes, saved: activations.ByKind, learns: Trained, case: Case) -> Prices:
    """Price the tensors that wait for backward.

    A graph reads a layer's input from its own buffer, which is then the saved input; the schedule also keeps each
    chunk's input. The mask of captured attention is such a buffer too. A layer's buffers serve a later forward once its
    backward is complete, so there are layers x live microbatches of them (core transformer/cuda_graphs.py:2427-2443).
    Inputs of graphs stay allocated.
    """
    masked = ("attention",) if m.hybrid else kinds(m)
    each, over_root = activations.uneven(m, s, _whole(t), case)
    out = {f"{kind}_live": size + s.mask if kind in masked else size for kind, size in saved.items()}
    out |= {f"{kind}_live": out[f"{kind}_live"] + each for kind in with_experts(m)}
    # Price the input of a chunk's first layer, where a graph holds it
    first = t.has("cuda_graph", CUDA_GRAPH.index("attn"))
    if m.hybrid:
        first = first | t.has("cuda_graph", CUDA_GRAPH.index("mamba"))
    out |= {"moe_uneven": over_root, "chunk_live": (first * s.split * m.hidden * formats.BF16)}
    if m.vision is not None:
        out["vision_live"] = activations.vision(m.vision, t, learns.passed) + activations.image_mask(m, m.vision, s)
    return out


def _whole(t: Table) -> Floats:
    """Return 1 where one graph captures the whole iteration, else 0."""
    return 1.0 * t.has("cuda_graph", CUDA_GRAPH.index("full_iteration"))


def _buffers(
    m: Model, t: Table, gpus: int, s: activations.Sizes, saved: activations.ByKind, n: Counts, case: Case
) -> Prices:
    """Price a layer's working set, or the logits if they are larger; a whole-iteration graph's pool keeps both.

    Expert overlap runs one layer's forward together with another's backward. Graphs are then captured layer by layer in
    that order, and a layer's buffers serve the next forward when its backward is captured (core
    transformer/cuda_graphs.py:2898-2917 and :2427-2443; te pytorch/graph.py:900-937). They therefore hold only one
    layer more, mask included. FSDP adds what it gathers and reduces (`parameters.units` and `whole`). A replay makes
    its graph's mask again, in zeros, and frees it once it is copied into the graph's own (core
    transformer/transformer_layer.py:1364-1377, :1394-1402; te pytorch/graph.py:1079-1084): one at a time, in a forward,
    while no layer's backward is at its working set. With offloading, one layer is on its way to the host, and the next
    is back before its backward (core pipeline_parallel/fine_grained_activation_offload.py:1131).
    """
    whole, moved = _whole(t), activations.offloaded(m, s)
    back = {kind: size + moved[kind] for kind, size in saved.items()} if moved else saved
    travelling = 2.0 * np.maximum.reduce([*moved.values()]) if moved else 0.0
    layer = np.maximum(activations.working_set(m, s, back, whole, case), s.mask)
    work = travelling + layer + t["ep_overlap"] * np.maximum.reduce([saved[kind] for kind in with_experts(m)])
    loss = (case.loss + BF16 * m.softcap) * s.split * m.vocab
    twice = case.captured * t["ep_overlap"]
    again = {kind: twice * size for kind, size in activations.captured(m, s, t).items()}
    fsdp = formats.fsdp(t)
    most = with_experts(m)[-1]
    unit = fsdp * parameters.units(m, t, gpus, (n.all[most], n.learning[most]), saved[most])
    roots = {name: fsdp * held for name, held in parameters.whole(m, t, gpus).items()}
    at_loss = np.where((whole > 0) | case.together, loss, np.maximum(loss - work, 0.0))
    static = t["ep_overlap"] * s.mask
    return {"one": work + static + unit, "loss": at_loss, "ahead": loss} | again | roots


def matrix(m: Model, priced: Mapping[str, Prices], rows: int) -> Floats:
    """Sum all kinds of bytes into (features, rows)."""
    names = of_memory(m)
    out = np.zeros((len(names), rows))
    for prices in priced.values():
        for name, column in prices.items():
            out[names.index(name)] += column
    return out


def always(m: Model, hw: Hardware, t: Table, learns: Trained, case: Case) -> Prices:
    """Price what torch's allocator always holds during a step besides the model."""
    c = hw.constants
    workspaces = c.te_workspace * (1 + c.te_streams) + c.torch_workspace * c.torch_threads
    fixed = {"one": np.full(t.rows, workspaces + case.other)}
    return added(fixed, empty_gradients(m, t, learns.language)) if case.accumulates else fixed


def always_held(m: Model, hw: Hardware, t: Table, gpus: int, learns: Trained, case: Case) -> dict[str, Prices]:
    """Price what is held whatever is recomputed, and for any number of tokens: of `prices`, what reads no CP, no micro
    batch and no policy of activations. FSDP then frees the activations of any gradient that it has in flight."""
    n, most, fsdp = counts(m, t, learns), with_experts(m)[-1], formats.fsdp(t)
    unit = parameters.units(m, t, gpus, (n.all[most], n.learning[most]), np.full(t.rows, np.finfo(float).max))
    roots = {name: fsdp * whole for name, whole in parameters.whole(m, t, gpus).items()}
    return {
        **held(n, t, gpus, bool(case.transposes)),
        "buffers": added({"one": fsdp * unit}, roots, always(m, hw, t, learns, case)),
    }


def empty_gradients(m: Model, t: Table, learns: bool) -> Mapping[str, Floats]:
    """Return the bytes of placeholder weight gradients, in BF16, by feature of `parameters.of_memory`.

    There is one for each shape: a stage has the shapes of one attention, one Mamba mixer or gated delta net, one expert
    and the shared experts, however many layers it has. Dense layers' shapes count on the stages with dense layers, in
    proportion to their number.
    """
    tp, etp = t["tp"] * 1.0, t["etp"] * 1.0
    linears = products(m) * (routed_width(m) * m.expert_hidden / etp + m.hidden * m.shared_expert_hidden / tp)
    block = parameters.attention(m, t["tp"]) + linears + 2 * m.hidden * m.moe_latent  # type: ignore[arg-type]
    if m.hybrid:
        block = block + parameters.mamba(m, t["tp"])  # type: ignore[arg-type]
    if m.linear:
        mixer = blocks.delta_net(m)
        block = block + m.hidden * (mixer.projected + mixer.inner) / tp
    dense = products(m) * m.hidden * m.ffn_hidden / tp / max(m.dense_layers, m.layer_pattern.count("-"), 1)
    shapes = {
        "one": block,
        "dense": dense,
        "mtp": 2 * m.hidden**2 / tp,
        "loss": parameters.table_size(m, t["tp"]) * 1.0,  # type: ignore[arg-type]
    }
    return {name: np.asarray(BF16 * learns * size) for name, size in shapes.items()}


OUTSIDE = ("tp", "cp", "pp", "ep", "etp", "micro_batch", "dispatcher")
"""The axes that memory outside torch depends on."""
ALLTOALL, DEEPEP, HYBRIDEP, NCCLEP = map(BY_NAME["dispatcher"].encode, ("alltoall", "deepep", "hybridep", "ncclep"))
NVLINK_RANKS = 8
"""Ranks that DeepEP reaches over NVLink."""
HYBRIDEP_BECAUSE = (
    "HybridEP registers buffers in which every token of the expert group has a place: one for dispatch, and one for "
    "combine unless they share it"
)


@frozen
class OutsidePart:
    """One user of memory outside torch; bytes."""

    name: str
    least: float
    most: float
    because: str


def outside_parts(
    hw: Hardware, m: Model, row: Mapping[str, int], gpus: int, seq: int, capacity: float = CAPACITY["balanced"]
) -> list[OutsidePart]:
    """Return each part of the memory outside torch on a rank of a layout (axis to code); empty parts are left out."""
    # Count Megatron-Core's groups with more than one rank, and the peers of those that send from rank to rank
    sizes = process_groups(row, gpus)
    wide, peers = sum(n > 1 for n in sizes.values()), _peers(row)
    group, peer = hw.constants.ends("nccl_group"), hw.constants.ends("nccl_peer")
    names = ", ".join(f"{name} {n}" for name, n in sizes.items() if n > 1)
    because = f"{wide} groups of more than one rank ({names}) and {peers} peers, by NCCL's defaults"
    found = [
        _outside(
            "driver", reserved(hw), "what nvidia-smi shows and no program gets: torch's total_memory is less by it"
        ),
        _outside("CUDA context", hw.constants.ends("context"), "kernels as they are loaded, stacks and the heap"),
        _outside("NCCL", {case: group[case] * wide + peer[case] * peers for case in group}, because),
        _dispatcher(hw.constants, m, row, seq, capacity),
    ]
    return [p for p in found if p.most > 0]


def _outside(name: str, ends: Mapping[str, float], because: str) -> OutsidePart:
    return OutsidePart(name, ends["low"], ends["high"], because)


def reserved(hw: Hardware) -> dict[str, float]:
    """Return the bytes that the driver keeps of the memory in which a layout must fit, by case.

    A data sheet's memory, if nothing else is known, is less than a program gets.
    """
    if hw.visible and not hw.torch_total:
        return hw.constants.ends("driver")
    return dict.fromkeys(("low", "best", "high"), hw.shown - hw.total)


def outside_torch(
    hw: Hardware, m: Model, cols: Mapping[str, ArrayLike], gpus: int, seq: int, case: str, capacity: float
) -> NDArray[np.floating[Any]]:
    """Return the bytes of all parts outside torch in one case, by row of columns of axes."""
    c = {n: np.asarray(cols[n]) for n in OUTSIDE}
    sizes, (hybridep, deepep) = process_groups(c, gpus), _dispatch_buffers(hw.constants, m, c, seq)
    wide = sum((np.asarray(n) > 1) * 1.0 for n in sizes.values())
    names = ("context", "nccl_group", "nccl_peer", "hybridep_copies", "deepep_chunks")
    context, group, peer, hybrid, deep = (hw.constants.ends(name)[case] for name in names)
    buffers = hybrid * hybridep + deep * deepep + _receive_buffers(m, c, seq, capacity)
    return reserved(hw)[case] + context + group * wide + peer * _peers(c) + buffers


def _peers(c: Mapping[str, Any]) -> Any:
    """Count the peers that a rank sends to directly: the expert group's with all-to-all, and two in a pipeline."""
    return (c["ep"] * c["etp"] - 1) * (c["dispatcher"] == ALLTOALL) + 2 * (c["pp"] > 1)


def process_groups(row: Mapping[str, Any], gpus: int) -> dict[str, Any]:
    """Count the ranks of each Megatron-Core process group in which a layout communicates; columns give columns."""
    tp, cp, pp, ep, etp = (row[name] for name in ("tp", "cp", "pp", "ep", "etp"))
    dp, expert = np.maximum(gpus // (tp * cp * pp), 1), np.maximum(gpus // (etp * ep * pp), 1)
    return {"world": gpus, "tp": tp, "cp": cp, "dp x cp": dp * cp, "pp": pp, "ep": ep, "etp": etp, "edp": expert}


def _dispatch_buffers(k: Constants, m: Model, c: Mapping[str, Any], seq: int) -> tuple[Any, Any]:
    """Return bytes by row as (HybridEP, DeepEP): one buffer for every token of the expert group, and all chunks.

    DeepEP over NVLink has a chunk for each channel and local rank. Over the network it has sent and received chunks for
    each channel and node.
    """
    ranks, tokens = c["ep"] * c["etp"], c["micro_batch"] * seq / (c["cp"] * c["tp"])
    local, nodes = np.minimum(ranks, NVLINK_RANKS), -(-ranks // NVLINK_RANKS)
    token = k.deepep_channels * (routed_width(m) * 2.0 + k.deepep_token)
    nvlink = local * k.deepep_tokens * token
    network = nodes * 2 * k.deepep_network_tokens * token * (nodes > 1)
    whole = tokens * ranks * routed_width(m) * 2.0
    return whole * ((c["dispatcher"] == HYBRIDEP) & (ranks > 1)), (nvlink + network) * (
        (c["dispatcher"] == DEEPEP) & (ranks > 1)
    )


def _receive_buffers(m: Model, c: Mapping[str, Any], seq: int, capacity: float) -> Any:
    """Return the bytes of NCCL EP's two buffers by row, one that dispatch fills and one that combine reads: `capacity`
    times a rank's routed tokens, in chunks of 64 tokens (core transformer/moe/token_dispatcher.py:1598)."""
    tokens = -(-(c["micro_batch"] * (seq // c["cp"]) // c["tp"]) // 64) * 64
    rows = capacity * tokens * m.topk * c["etp"] * ((c["dispatcher"] == NCCLEP) & (c["ep"] * c["etp"] > 1))
    return 2.0 * rows * routed_width(m) * 2.0


def _dispatcher(k: Constants, m: Model, row: Mapping[str, int], seq: int, capacity: float) -> OutsidePart:
    ranks, (hybridep, deepep) = row["ep"] * row["etp"], map(float, _dispatch_buffers(k, m, row, seq))
    if hybridep:
        ends = k.ends("hybridep_copies")
        return _outside("HybridEP buffers", {case: n * hybridep for case, n in ends.items()}, HYBRIDEP_BECAUSE)
    if deepep:
        local, nodes = min(ranks, NVLINK_RANKS), -(-ranks // NVLINK_RANKS)
        each = f"{k.deepep_channels:g} channels each"
        because = f"DeepEP's chunks for {local} ranks over NVLink and {nodes} nodes, {each}"
        return _outside("DeepEP buffers", {case: n * deepep for case, n in k.ends("deepep_chunks").items()}, because)
    if received := float(_receive_buffers(m, row, seq, capacity)):
        because = f"what dispatch fills and combine reads: {capacity:g} times a rank's tokens"
        return OutsidePart("NCCL EP buffers", received, received, because)
    return OutsidePart("dispatcher", 0.0, 0.0, "an all-to-all by NCCL has no buffers of its own")


AT_STEP = ("tp", "etp", "ep", "precision", "fp8_weights", "sharding", "moments", "grad_reduce", "offload")
"""The axes that memory at the optimizer step depends on, besides those of the profile."""
GRADIENT_COPY = 4.0


def copied(t: Table) -> Floats:
    """Return the bytes of the FP32 gradient copy per parameter that this rank updates; 0 if there is none."""
    narrow = (formats.gradient(t) < GRADIENT_COPY) & (formats.fsdp(t) == 0)
    return GRADIENT_COPY * (narrow & (t["offload"] != BY_NAME["offload"].words.index("optimizer")))


def copies(n: Counts, t: Table, gpus: int) -> Prices:
    """Return the bytes of gradient copies by feature of `parameters.of_memory`."""
    each, dense, expert = copied(t), t["tp"] / gpus, t["etp"] * t["ep"] / gpus
    return {f"{name}_shard": each * (of.dense * dense + of.expert * expert) for name, of in n.learning.items()}


def at_step(
    m: Model, hw: Hardware, t: Table, gpus: int, learns: Trained, case: Case, before: Mapping[str, Prices] | None = None
) -> dict[str, Prices]:
    """Return the bytes held at the optimizer step, by kind and feature, for every row of `t`.

    The step's temporary copies count as buffers. If `before`, the rows' `memory.prices`, is given, weights, gradients
    and optimizer state are taken from it.
    """
    n = counts(m, t, learns)
    transposes = hw.transposes if case.transposes is None else case.transposes
    same = {kind: before[kind] for kind in HELD} if before else held(n, t, gpus, transposes)
    return {**same, "buffers": added(copies(n, t, gpus), always(m, hw, t, learns, case))}
