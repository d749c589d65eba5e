"""Shrink a plan and its model to a rehearsal: the same shape, small enough for a few processes of one machine.

A CPU runs some policies as planned; the others are off, with the reason in a `Note`. The model keeps its kinds of
layers and its router; widths become small, with the same ratios.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import gcd, lcm, prod
from typing import Any

from attrs import evolve, field, fields_dict, frozen

from moedsl.cost.pipeline import Chunk, Layout, layout_for, parse_layout
from moedsl.facts.axes import ATTENTION, BY_NAME, EXPERTS, LAYOUT
from moedsl.facts.facts import Model
from moedsl.planner.plan import Plan

KEPT, SHRUNK, LEFT_OUT = "kept", "shrunk", "not rehearsed"
KINDS = (KEPT, SHRUNK, LEFT_OUT)


@frozen
class Note:
    """One item of the plan; `kind` is kept, shrunk or not rehearsed, and `here` is its value in the rehearsal."""

    what: str
    kind: str
    plan: Any
    here: Any
    because: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"what": self.what, "plan": self.plan, "here": self.here, "because": self.because}


def sized(what: str, plan: Any, here: Any) -> Note:
    """Note a size: kept if it is equal, else shrunk."""
    return Note(what, KEPT if plan == here else SHRUNK, plan, here)


RANKS = 8
"""The most processes by default."""
SEQ = 64
"""Tokens of a sequence for each of the cp x tp ranks that share it."""
NOT_CARRIED = (
    "profiling.", "checkpoint.", "dataset.", "tokenizer.", "train.train_iters", "mixed_precision.",
    "scheduler.", "validation.",
)  # fmt: skip
"""Fields that a run file may set and a rehearsal drops: they name the cluster's files, or do not work on a CPU."""


@frozen
class Rehearsal:
    """A small run. All sizes are its own, not the plan's."""

    name: str
    """The plan's name."""
    model: Model
    hardware: str
    layout: Mapping[str, int]
    """The sizes of tp cp dp pp vpp ep etp edp."""
    pipeline_layout: str | None
    """The pipeline layout as Megatron writes it; None if the plan has none and layers divide evenly."""
    seq: int
    micro_batch: int
    num_microbatches: int
    policy: Mapping[str, Any]
    routing: str
    sets: Mapping[str, Any] = field(factory=dict)
    """Fields that the run file sets and the rehearsal keeps."""
    notes: tuple[Note, ...] = ()

    @property
    def ranks(self) -> int:
        """The number of processes: tp x cp x dp x pp."""
        return self.layout["tp"] * self.layout["cp"] * self.layout["dp"] * self.layout["pp"]

    @property
    def global_batch(self) -> int:
        """Sequences of a step."""
        return self.micro_batch * self.num_microbatches * self.layout["dp"]


def shrink(plan: Plan, model: Model, ranks: int = RANKS, hardware: str = "", on_gpus: bool = False) -> Rehearsal:
    """Return the rehearsal of a plan of `model` on at most `ranks` processes (docs/internals.md); a pure function.

    `hardware` replaces the plan's if that is not in the stdlib. The small model's `hf`, the folder of its config.json,
    is still empty.
    """
    big, batch = plan.layout, plan.batch
    mesh = smallest(big.to_json(), ranks)
    pp, vpp = mesh["pp"], 2 if big.vpp > 1 and mesh["pp"] > 1 else 1
    if model.hybrid:
        parts = segments((big.pipeline_layout or model.layer_pattern).split("|"), pp)
        pattern, layout = "".join(parts), "|".join(parts)
        layers = len(pattern)
    else:
        planned = layout_of(big.pipeline_layout, model, big.pp, big.vpp)
        chunks = shortened(planned, pp, vpp, int(model.dense_layers > 0 or model.linear))
        chunks = paired(chunks) if model.linear else keyed(chunks) if model.indexer_every > 1 else chunks
        layers, pattern, layout = sum(c.layers for c in chunks), "", "|".join(c.text for c in chunks)
    seq = SEQ * mesh["cp"] * mesh["tp"]
    # Microbatches: 1 stays 1, else at most two for each stage, a multiple of pp for an interleaved schedule
    most = min(batch.num_microbatches, 2 * pp)
    made = Rehearsal(
        name=plan.name, model=narrow(model, f"{model.name}_rehearsal", mesh, layers, seq, pattern),
        hardware=hardware or plan.hardware, layout={**mesh, "vpp": vpp},
        pipeline_layout=layout if big.pipeline_layout and pp > 1 else None, seq=seq,
        micro_batch=min(batch.micro_batch, 2),
        num_microbatches=1 if batch.num_microbatches == 1 else max(pp, most - most % pp),
        policy=pinned(plan.policy.to_json(), mesh["ep"]), routing=plan.policy.routing,
        sets={k: v for k, v in plan.set.items() if not k.startswith(NOT_CARRIED)},
    )  # fmt: skip
    return evolve(made, notes=tuple(_notes(made, plan, model, on_gpus)))


def _notes(r: Rehearsal, plan: Plan, model: Model, on_gpus: bool) -> Iterator[Note]:
    """Note what the rehearsal of a plan keeps, shrinks and leaves out."""
    big, batch = plan.layout, plan.batch
    yield from axis_notes(big.to_json(), {a: r.layout[a] for a in AXES})
    if big.vpp > 1 and r.layout["vpp"] == 1:
        yield Note("vpp", LEFT_OUT, big.vpp, 1, "virtual stages need a pipeline")
    else:
        yield sized("vpp", big.vpp, r.layout["vpp"])
    yield sized("pipeline layout", big.pipeline_layout or "even", r.pipeline_layout or "even")
    yield sized("sequence_parallel", big.sequence_parallel, r.layout["tp"] > 1)
    yield from (sized(n, getattr(batch, n), getattr(r, n)) for n in BATCH)
    yield from fact_notes(model, r.model)
    for k, v in plan.set.items():
        because = "files, lengths and formats of the cluster's run"
        yield Note(f"set {k}", KEPT, v, r.sets[k]) if k in r.sets else Note(f"set {k}", LEFT_OUT, v, None, because)
    if r.hardware != plan.hardware:
        yield Note("hardware", LEFT_OUT, plan.hardware, r.hardware, "its declaration is in the run file")
    if model.linear and not on_gpus:
        yield DELTA_NETS
    if model.sparse and not on_gpus:
        yield SPARSE
    yield from policy_notes(plan, r.policy, on_gpus)


BATCH = ("seq", "micro_batch", "num_microbatches", "global_batch")
OFF: Mapping[str, str] = {
    "precision": "lower formats are Transformer Engine's kernels, which need a GPU",
    "dispatcher": "the same tokens reach the same experts, by gloo's all-to-all: the kernels of {} need GPUs",
    "cuda_graph": "there are no graphs on a CPU",
    "delay_wgrad": "Transformer Engine's linears delay them",
    "offload": "all memory is host memory",
    "offload_modules": "all memory is host memory",
    "sharding": "Megatron FSDP needs CUDA streams: the distributed optimizer runs in its place",
    "moments": "lower formats need Transformer Engine's fused Adam",
}
"""Policies that a rehearsal turns off, with the reason on a CPU; {} is the plan's value."""
AS_PLANNED = ("recompute", "ep_overlap", "grad_reduce")
ALWAYS: tuple[Note, ...] = (
    Note("kernels", LEFT_OUT, "Transformer Engine, cuDNN, fused kernels", "PyTorch on the CPU", "there is no GPU"),
    Note("core attention", LEFT_OUT, "Transformer Engine's, with its context-parallel ring or all-to-all",
         "softmax(QK)V over keys gathered from the context-parallel group", "Megatron-Core's own has neither"),
    Note("communication", LEFT_OUT, "NCCL, overlapped with the computation", "gloo, one operation after the other",
         "overlapped schedules run as planned, but hide nothing"),
    Note("memory and speed", LEFT_OUT, "as estimated", None, "a small model on a CPU shows neither"),
)  # fmt: skip
"""Parts of every plan that no rehearsal on a CPU has."""
DELTA_NETS = Note(
    "gated delta nets", LEFT_OUT, "fla's convolution, scan and norm of queries and keys",
    "Megatron-Core's own convolution and scan in PyTorch, and moedsl's own norm", "fla's kernels need a GPU",
)  # fmt: skip
SPARSE = Note(
    "sparse attention", LEFT_OUT, "cuDNN's and FlashMLA's kernels", "Megatron-Core's own path in PyTorch",
    "these kernels need a GPU",
)  # fmt: skip
"""Parts of a model that a rehearsal on a CPU does not have."""
ON_GPUS: tuple[Note, ...] = (
    Note("memory and speed", LEFT_OUT, "as estimated", None, "a small model shows neither"),
    Note("between nodes", LEFT_OUT, "the cluster's network", None, "every rank is on this machine"),
)
"""Parts of every plan that no rehearsal on this machine's GPUs has."""
_PLAIN = "a rehearsal on GPUs uses the option that needs no other package"


def pinned(policy: Mapping[str, Any], ep: int) -> dict[str, Any]:
    """Return the policies of the small run, by axis: as planned, or off if a CPU cannot run them.

    If there are too few ranks for expert parallelism, its overlap is off too.
    """
    same = {name: policy[name] for name in AS_PLANNED}
    overlap = bool(policy["ep_overlap"] and ep > 1)
    return {**same, "ep_overlap": overlap, **{name: BY_NAME[name].decode(BY_NAME[name].off) for name in OFF}}


def policy_notes(plan: Plan, here: Mapping[str, Any], on_gpus: bool = False) -> list[Note]:
    """Note each policy, the task and the data; then what no rehearsal has. `here` are the policies of the small run."""
    policy = plan.policy.to_json()
    reasons = {**dict.fromkeys(AS_PLANNED, "there is no expert parallelism to overlap"), **OFF}
    out = list[Note]()
    for name, why in reasons.items():
        planned, because = policy[name], _PLAIN if on_gpus else why.format(policy[name])
        same = planned == here[name]
        out.append(Note(name, KEPT, planned, planned) if same else Note(name, LEFT_OUT, planned, here[name], because))
    out.append(Note("routing", KEPT, policy["routing"], policy["routing"]))
    if plan.task != "pretrain":
        out.append(Note("task", LEFT_OUT, plan.task, "pretrain", "fine-tuning starts from weights of the real sizes"))
    if plan.adapter:
        on = f"{plan.adapter.method} of rank {plan.adapter.rank} on {', '.join(plan.adapter.targets)}"
        out.append(Note("adapter", LEFT_OUT, on, "none", "Bridge adds it to weights of a checkpoint"))
    if policy["data"] != "mock":
        out.append(Note("data", LEFT_OUT, policy["data"], "mock", "the data and its tokenizer are on the cluster"))
    return [*out, *(ON_GPUS if on_gpus else ALWAYS)]


def in_place_of(task: str) -> str:
    """Say what runs instead of a fine-tuning task; empty for pretraining."""
    what = {"sft": "the weights that it starts from", "peft": "its adapters and the weights that they are added to"}
    without = what.get(task)
    trains = "a rehearsal trains every weight of the small model, from random values"
    return f"{trains}: `task {task}`, with {without}, is not rehearsed" if without else ""


TWO = 2
"""Layers of a model without a pipeline, so that one passes its output to the next."""


def layout_of(written: str | None, m: Model, pp: int, vpp: int) -> Layout:
    """Return a model's pipeline layout, as `written` in Megatron's letters, or even if that is None."""
    found = parse_layout(written, m, pp, vpp)[0] if written else layout_for(m, pp, vpp)
    assert found is not None, f"no layout: {written}"
    return found


def shortened(layout: Layout, pp: int, vpp: int, more: int) -> list[Chunk]:
    """Return the chunks of pp x vpp virtual stages, in a token's order, picked from the plan's `layout`.

    Chunks with the fewest layers (but not none) keep 1, fuller ones 2, so that an uneven layout stays uneven. Chunks
    with layers get `more` for models with two kinds of layers: dense ones before MoE, or different attention.
    """
    of, last, count = layout.chunks, len(layout.chunks) - 1, pp * vpp
    mtp = sum(c.mtp for c in of)
    if count == 1:  # a single chunk has both ends
        chunks = [evolve(of[last], embedding=True, mtp=mtp)]
    else:  # evenly spaced, with the first and the last, and with a fullest one if there is room between them
        chunks = [of[round(i * last / (count - 1))] for i in range(count)]
        fullest = max(of, key=lambda c: c.layers)
        if count > 2 and not any(c.layers == fullest.layers for c in chunks):
            chunks[count // 2] = evolve(fullest, embedding=False, mtp=0, loss=False)
        chunks[-1] = evolve(chunks[-1], mtp=mtp)
    fewest = min((c.layers for c in of if c.layers), default=1)
    counts = [0 if not c.layers else 1 + more + (c.layers > fewest) for c in chunks]
    if count == 1:
        counts = [TWO + more]
    return [
        evolve(c, dense=0, moe=n, delta=0, reuse=0, window=0, dense_window=0)
        for c, n in zip(chunks, counts, strict=True)
    ]


def paired(chunks: list[Chunk]) -> list[Chunk]:
    """Make the number of layers even, by one more in a fullest chunk, because every other layer has full attention."""
    odd, fullest = sum(c.layers for c in chunks) % 2, max(chunks, key=lambda c: c.layers)
    return [evolve(c, moe=c.moe + odd) if c is fullest else c for c in chunks]


def keyed(chunks: list[Chunk]) -> list[Chunk]:
    """Make each chunk's number of layers even, because every other layer attends to the keys of the layer before it."""
    return [evolve(c, moe=c.moe + c.moe % 2) for c in chunks]


def segments(parts: list[str], pp: int) -> list[str]:
    """Return the stages of a hybrid, each with one layer of each of its kinds, in their order; no kind is lost.

    `parts` are the plan's stages in the letters of its pattern.
    """
    last = len(parts) - 1
    picked = [parts[round(i * last / (pp - 1))] for i in range(pp)] if pp > 1 else ["".join(parts)]
    short = ["".join(dict.fromkeys(part)) for part in picked]
    lost = set("".join(parts)) - set("".join(short))
    return [*short[:-1], short[-1] + "".join(sorted(lost))]


AXES = ("pp", "ep", "tp", "cp", "etp", "dp", "edp")
"""The axes, the most important first: with too few ranks, the last ones are dropped."""
MOST = 64
"""The most ranks that are tried to find how many all axes need."""

Sizes = dict[str, int]


def smallest(plan: Mapping[str, int], ranks: int) -> Sizes:
    """Return the sizes of all AXES on at most `ranks` ranks: they drop the least important axes, then use the fewest
    ranks.

    Both meshes have the same ranks: tp x cp x dp = etp x ep x edp on each of pp stages. A size of 1 stays 1, and no
    size is larger than the plan's.
    """

    def meshes(axes: Sequence[str], ranks: int) -> Iterator[Sizes]:
        named = [n for n in LAYOUT if n in axes and n != "pp"]
        for sizes in product(*(range(1, min(plan[a], ranks) + 1) for a in named)):
            if prod(sizes) <= ranks:
                yield dict(zip(named, sizes, strict=True))

    pairs = (
        {"pp": pp, **a, **b}
        for pp in {1, min(plan["pp"], 2)}
        for a, b in product(meshes(ATTENTION, ranks // pp), meshes(EXPERTS, ranks // pp))
        if prod(a.values()) == prod(b.values())
    )
    return min(pairs, key=lambda s: (_lost(plan, s), prod(s[a] for a in ATTENTION), *s.values()))


def _lost(plan: Mapping[str, int], sizes: Sizes) -> int:
    """Return the penalty of axes that became 1, larger for more important axes."""
    return sum(1 << (len(AXES) - i) for i, a in enumerate(AXES) if plan[a] > 1 and sizes[a] == 1)


def axis_notes(plan: Mapping[str, int], sizes: Sizes) -> list[Note]:
    """Note each axis; the note of a dropped axis says how many ranks would keep all axes."""
    enough = ""
    if _lost(plan, sizes):
        ranks = next((n for n in (2, 4, 8, 16, 32, MOST) if not _lost(plan, smallest(plan, n))), None)
        enough = f"--ranks {ranks} keeps every axis" if ranks else f"{MOST} ranks do not keep every axis"
    return [
        Note(axis, LEFT_OUT, plan[axis], sizes[axis], enough)
        if plan[axis] > 1 and sizes[axis] == 1
        else sized(axis, plan[axis], sizes[axis])
        for axis in AXES
    ]


HIDDEN, HEAD, EXPERT, DENSE, RANK, VOCAB = 64, 16, 32, 128, 32, 512
MAMBA_HEADS = 16
"""Heads of a group, so that the width of a mixer's input projection is a multiple of 16, as kernels and FP8 need."""
LANGUAGE = {"qwen3_vl_moe": "qwen3_moe", "qwen3_5_moe": "qwen3_next", "kimi_k25": "kimi_k2", "gemma4": "gemma4_text"}
"""The family of the language model in each vision-language family."""
SHRUNK_FACTS = (
    "layers", "hidden", "vocab", "heads", "query_groups", "head_dim", "ffn_hidden", "experts", "expert_hidden",
    "shared_expert_hidden", "dense_layers", "mtp_layers", "q_lora_rank", "kv_lora_rank", "qk_nope_dim", "qk_rope_dim",
    "v_head_dim", "window", "window_every", "window_leading", "window_heads", "window_query_groups",
    "full_query_groups", "full_head_dim", "layer_pattern", "mamba_heads", "mamba_head_dim", "mamba_state",
    "mamba_groups", "linear_every", "linear_key_heads", "linear_value_heads", "linear_key_dim", "linear_value_dim",
    "moe_latent", "indexer_heads", "indexer_dim", "indexer_topk", "indexer_every", "indexer_leading",
)  # fmt: skip
"""Facts that may become smaller; `notes` lists each that the model has."""
KEPT_FACTS = (
    "topk", "routing_groups", "topk_groups", "attention", "qk_norm", "qkv_bias", "attention_bias", "mlp_bias",
    "attention_sinks", "router_bias", "router_balanced", "tied_embeddings", "shared_expert_gate", "gated",
    "mtp_pattern", "mtp_repeated", "attention_gate", "qk_norm_over", "mtp_dense", "window_sinks", "window_first",
    "sandwich_norms", "softcap",
)  # fmt: skip
"""Facts that stay as they are."""


def narrow(m: Model, name: str, sizes: Mapping[str, int], layers: int, seq: int, pattern: str = "") -> Model:
    """Return a model with small widths that its meshes divide.

    `layers` does not count MTP, and `pattern` is a hybrid's layer pattern. `hf` is empty, because there is no folder.
    """
    ranks, mla = sizes["tp"] * sizes["cp"], m.attention == "mla"  # the ranks that share heads
    groups = lcm(ranks, 2) if m.query_groups > 1 else 1
    heads = groups * (1 if mla or m.heads == m.query_groups else 2)
    expert = EXPERT * sizes["etp"]
    leading = min(m.window_leading, 1)
    more: dict[str, int] = {"v_head_dim": HEAD // 2} if m.v_head_dim else {}
    if mla:
        more = {"kv_lora_rank": RANK, "qk_nope_dim": HEAD, "qk_rope_dim": HEAD, "v_head_dim": HEAD}
    if m.mamba_heads:  # equally many heads in each group
        shared = lcm(ranks, 2) if m.mamba_groups > 1 else 1
        more |= {"mamba_heads": MAMBA_HEADS * shared, "mamba_groups": shared}
        more |= {"mamba_head_dim": HEAD, "mamba_state": HEAD}
    if m.linear:  # a gated delta net in every other layer (`paired`)
        keys, values = lcm(ranks, 2), 2 if m.linear_value_heads > m.linear_key_heads else 1
        more |= {"linear_every": 2, "linear_key_heads": keys, "linear_value_heads": values * keys}
        more |= {"linear_key_dim": HEAD, "linear_value_dim": HEAD}
    if m.sparse:  # few enough keys to leave some out; every other layer shares keys (`keyed`)
        more |= {"indexer_heads": 2, "indexer_dim": 2 * HEAD, "indexer_topk": seq // 2}
        more |= {"indexer_every": min(m.indexer_every, 2), "indexer_leading": min(m.indexer_leading, 1)}
    shared_expert = 0
    if m.shared_expert_hidden:  # as many shared experts as before, or one if their width is no multiple
        count, rest = divmod(m.shared_expert_hidden, m.expert_hidden)
        shared_expert = _split(expert, sizes["tp"]) * (1 if rest else count)
    # the dense width stays equal to the width of experts or shared experts: one field may state both
    same = {m.expert_hidden: expert, m.shared_expert_hidden: shared_expert}
    return evolve(
        m,
        name=name,
        hf="",
        revision="",
        family=LANGUAGE.get(m.family, m.family),
        layers=layers,
        layer_pattern=pattern,
        hidden=HIDDEN,
        vocab=_split(VOCAB, sizes["tp"]),
        heads=max(heads, ranks),
        query_groups=max(heads, ranks) if mla else groups,
        head_dim=HEAD,
        ffn_hidden=same.get(m.ffn_hidden, _split(DENSE, sizes["tp"])),
        experts=experts(m, sizes["ep"]),
        expert_hidden=expert,
        shared_expert_hidden=shared_expert,
        dense_layers=min(m.dense_layers, 1),
        mtp_layers=min(m.mtp_layers, 1),
        q_lora_rank=RANK if m.q_lora_rank else 0,
        window=seq // 2 if m.window else 0,
        window_every=min(m.window_every, 2 + leading),  # a windowed layer between the leading and the next full one
        window_leading=leading,
        window_heads=2 * heads if m.window_heads else 0,
        window_query_groups=heads if m.window_query_groups else 0,
        full_query_groups=groups if m.full_query_groups else 0,
        full_head_dim=2 * HEAD if m.full_head_dim else 0,
        position_embedding_type="rope" if m.family in LANGUAGE else m.position_embedding_type,
        moe_latent=HIDDEN // 2 if m.moe_latent else 0,
        vision=None,
        **more,
    )


def experts(m: Model, ep: int) -> int:
    """Return the number of experts: the router has a choice in each group, and every rank has equally many."""
    wanted = max(2 * m.topk * m.routing_groups // m.topk_groups, 2 * ep)
    step = m.routing_groups * ep // gcd(m.routing_groups, ep)
    return min(-(-wanted // step) * step, m.experts)


def _split(width: int, tp: int) -> int:
    """Return `width`, or tp times it if tp does not divide it."""
    return width if width % tp == 0 else width * tp


def fact_notes(m: Model, small: Model) -> list[Note]:
    """Note each fact, and the vision tower."""
    default = {n: fact.default for n, fact in fields_dict(Model).items()}
    out = [sized(n, getattr(m, n), getattr(small, n)) for n in SHRUNK_FACTS if getattr(m, n) not in (0, "", default[n])]
    plain = {n: default[n] for n in KEPT_FACTS if n != "attention"}
    out += [Note(n, KEPT, getattr(m, n), getattr(small, n)) for n in KEPT_FACTS if getattr(m, n) != plain.get(n)]
    if m.vision is not None:
        why = (
            "its layers are Transformer Engine's, its images need the model's processor: the language model alone runs"
        )
        out.append(Note("vision tower", LEFT_OUT, f"{m.vision.layers} layers", None, why))
    return out
