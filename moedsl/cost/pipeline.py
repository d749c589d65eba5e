"""Assign the layers of a model to the pp x vpp chunks of a pipeline.

A layout lists chunks in the order in which a token passes them: chunk `i` is on stage ``i % pp`` as its virtual stage
``i // pp`` (megatron/core/transformer/pipeline_parallel_layer_layout.py:46). Its text is Megatron's own: `E` embedding,
`t` transformer layer, `m` multi-token prediction, `L` loss, ``|`` between chunks, ``x*n`` and ``(xy|)*n`` repeats
(:279).

Without a layout Megatron splits evenly and refuses a remainder
(megatron/core/transformer/transformer_block.py:117-155). MTP and the loss go to the last chunk
(megatron/core/transformer/multi_token_prediction.py:mtp_on_this_rank). Qwen3-VL's provider accepts layouts too; its
vision tower is always on the first stage (bridge models/qwen_vl/modelling_qwen3_vl/model.py:287). It does not pass a
virtual stage on, so Megatron-Core refuses to build it with vpp > 1; a rule of the stdlib checks this, not the layout.

A hybrid's layout is its own pattern with ``|`` between the stages, ``MEMEM*|EMEM...`` (`split_pattern`). Megatron-Core
reads the stages from ``|`` in the pattern itself (core models/hybrid/hybrid_layer_allocation.py:331). MTP
and the loss are on the last stage. Bridge builds no virtual stages of a hybrid (bridge
models/hybrid/hybrid_provider.py:295).
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike, NDArray

from moedsl.cost import blocks
from moedsl.cost.blocks import LETTERS, products, routed_width
from moedsl.facts.facts import Model

PRODUCTS = 0.6
"""The share of a layer's time in its matrix products: 0.58 to 0.65 by the estimate in BF16. In 8 bits it is less, but
there the vocabulary's product, which stays in BF16, weighs more than its FLOPs."""
MAX_TEXT = 20_000
"""Maximum characters of an unrolled layout; longer text is refused before it is unrolled."""


@frozen
class Chunk:
    """The content of one virtual stage of one rank; its layers are counted by kind (`blocks.py`)."""

    dense: int
    moe: int
    embedding: bool = False
    mtp: int = 0
    loss: bool = False
    last_layer: bool = False
    """Whether the model's last transformer layer is here (the final norm of a model with MTP comes with it)."""
    mamba: int = 0
    attention: int = 0
    delta: int = 0
    reuse: int = 0
    window: int = 0
    dense_window: int = 0

    @property
    def layers(self) -> int:
        """Count the layers without MTP layers."""
        windows = self.window + self.dense_window
        return self.dense + self.moe + self.mamba + self.attention + self.delta + self.reuse + windows

    def of(self, kind: str) -> int:
        """Return the number of layers of one kind (without MTP layers), or of MTP layers if `kind` is mtp."""
        return getattr(self, kind)

    @property
    def text(self) -> str:
        """Format the chunk in Megatron's letters, not compressed: ``Etttt``."""
        return "E" * self.embedding + "t" * self.layers + "m" * self.mtp + "L" * self.loss


@frozen(cache_hash=True)
class Layout:
    """All chunks in Megatron's order, pp x vpp of them. `text` is None if Megatron needs no layout."""

    pp: int
    vpp: int
    chunks: tuple[Chunk, ...]
    text: str | None

    def stage(self, stage: int) -> tuple[Chunk, ...]:
        """Return the vpp chunks of one pipeline rank, in virtual-stage order."""
        return self.chunks[stage :: self.pp]

    def holds(self, stage: int) -> dict[str, int]:
        """Return the number of layers of one pipeline rank by kind, and of MTP layers; empty kinds are left out."""
        chunks = self.stage(stage)
        return {kind: n for kind in (*blocks.KINDS, "mtp") if (n := sum(c.of(kind) for c in chunks))}


@lru_cache(maxsize=4096)
def layout_for(model: Model, pp: int, vpp: int) -> Layout | None:
    """Return the layout for pp stages of vpp chunks: Megatron's even split, else the most balanced one; None if there
    is none.

    Every chunk needs a transformer layer except the last, which may hold only the loss (and MTP), as in NVIDIA's
    ``Et|(tt|)*30mL``. With the MTP of some models the last one needs a layer too (`may_be_empty`). Virtual stages need
    a pipeline.
    """
    if not _exists(model, pp, vpp):
        return None
    if model.hybrid:
        return _segmented(model, split_pattern(model, pp), "|".join(split_pattern(model, pp)) if pp > 1 else None)
    chunks = pp * vpp
    even = [model.layers // chunks] * chunks
    if model.layers % chunks == 0 and _with_their_keys(model, even) == even:
        return _layout(model, pp, vpp, even, explicit=False)
    return _layout(model, pp, vpp, _balanced(model, pp, chunks), explicit=True)


def balanced(model: Model, pp: int, vpp: int) -> str | None:
    """Return the most balanced layout as text, even if the layers divide evenly; None for a hybrid or if there is no
    layout."""
    if model.hybrid or not _exists(model, pp, vpp):
        return None
    return _layout(model, pp, vpp, _balanced(model, pp, pp * vpp), explicit=True).text


def layout_string(model: Model, pp: int, vpp: int) -> str | None:
    """Return Megatron's pipeline_model_parallel_layout; None if the even split needs no text or there is no layout."""
    layout = layout_for(model, pp, vpp)
    return None if layout is None else layout.text


def has_layout(model: Model, pp: ArrayLike, vpp: ArrayLike) -> NDArray[np.bool_]:
    """Whether a layout exists, by row; `pp` and `vpp` are columns (or numbers) of the same length."""
    p, v = np.broadcast_arrays(np.asarray(pp, np.int64), np.asarray(vpp, np.int64))
    return _exists(model, p, v)


def _exists(model: Model, pp: Any, vpp: Any) -> Any:
    """Whether a layout exists, for numbers or for columns."""
    if model.hybrid:
        return (pp >= 1) & (vpp == 1) & (pp <= model.layers)
    most = model.layers if model.indexer_every == 1 else len(starts(model))
    return (pp >= 1) & (vpp >= 1) & ((pp > 1) | (vpp == 1)) & (pp * vpp <= most + may_be_empty(model))


def may_be_empty(model: Model, mtp: bool = True) -> bool:
    """Whether a chunk, with MTP or without it (`mtp`), may have no transformer layer.

    MTP takes the last layer of its chunk. If there is none, Bridge looks for the model's last layer, even for a chunk
    without MTP. The code that looks supports neither delta nets nor sparse attention, and gives a dense MTP layer
    experts (bridge models/gpt_provider.py:mtp_block_spec, core models/gpt/gpt_layer_specs.py:572).
    """
    return not ((model.linear or model.sparse or (model.mtp_dense and mtp)) and model.mtp_layers)


def weights(model: Model) -> tuple[float, float]:
    """Return (MTP layer, loss): their weights for the balance, in transformer layers, by the time per token.

    A layer, dense or MoE (DeepSeek chose them alike), weighs 1, of which its matrix products are `PRODUCTS`. The
    embedding is a look-up and weighs nothing. The loss is one product with the vocabulary. An MTP layer is a layer, a
    projection of two hidden states to one, and a loss.
    """
    h = model.hidden
    if model.attention == "mla":
        qk, v = model.qk_nope_dim + model.qk_rope_dim, model.v_head_dim
        query = model.q_lora_rank * (h + model.heads * qk) if model.q_lora_rank else h * model.heads * qk
        attention = query + h * (model.kv_lora_rank + model.qk_rope_dim) + model.heads * v * h
        attention += model.kv_lora_rank * model.heads * (model.qk_nope_dim + v)
    else:
        gated = model.heads * model.attention_gate
        attention = h * (
            (model.heads + model.query_groups) * (model.head_dim + model.value_dim) + gated * model.head_dim
        )
    if model.linear:
        mixer, every = blocks.delta_net(model), model.linear_every
        attention = (attention + (every - 1) * h * (mixer.projected + mixer.inner)) / every
    layer = attention + 3 * h * (model.topk * model.expert_hidden + model.shared_expert_hidden)
    loss = PRODUCTS * h * model.vocab / layer
    return 1 + PRODUCTS * 2 * h * h / layer + loss, loss


def starts(model: Model) -> list[int]:
    """List the layers, from 0, that may start a chunk: those that need no keys of an earlier layer (core
    models/gpt/experimental_attention_variant_module_specs.py:339)."""
    return [layer for layer in range(model.layers) if blocks.indexed(model, layer)]


def _with_their_keys(model: Model, counts: list[int]) -> list[int]:
    """Return the layers by chunk after moving each chunk's first layer to the nearest one that may start a chunk; every
    chunk keeps a layer."""
    free, first, out = starts(model), 0, list[int]()
    wanted = np.cumsum(counts)[:-1]
    for i, layer in enumerate(wanted):
        open_to = range(first + 1, len(free) - (len(wanted) - 1 - i))
        chosen = min(open_to, key=lambda at: abs(free[at] - layer))
        out.append(free[chosen] - free[first])
        first = chosen
    return [*out, model.layers - free[first]]


def _balanced(model: Model, pp: int, chunks: int) -> list[int]:
    """Return the transformer layers by chunk, as balanced as the layers that share keys permit: the lightest possible
    heaviest chunk, then stages as even as possible."""
    tail, tops = _tops(model)
    least = tail + (not may_be_empty(model))
    top, last = next((t, n) for t, n in tops if t >= least and int(t) * (chunks - 1) + n >= model.layers)
    most = -(-model.layers // max(chunks - chunks // pp, 1)) + 1  # more of them would only be given away again
    counts = [min(int(top), most)] * (chunks - 1) + [min(last, most if pp > 1 else model.layers)]
    load = [sum(counts[s::pp]) + (tail if s == pp - 1 else 0.0) for s in range(pp)]
    full = len(counts) - may_be_empty(model)
    stages = [_fullest(counts, load[s], s, pp, full) for s in range(pp)]
    heapq.heapify(stages)
    for _ in range(sum(counts) - model.layers):
        chunk = stages[0][-1]
        counts[chunk] -= 1
        load[chunk % pp] -= 1
        heapq.heapreplace(stages, _fullest(counts, load[chunk % pp], chunk % pp, pp, full))
    return counts if model.indexer_every == 1 else _with_their_keys(model, counts)


@lru_cache(maxsize=256)
def _tops(model: Model) -> tuple[float, tuple[tuple[float, int], ...]]:
    """Return the weight of what ends the last chunk, and all weights that a chunk may have, each with the number of
    layers that gives a last chunk that weight."""
    mtp, loss = weights(model)
    tail = loss + mtp * model.mtp_layers
    tops = sorted({float(n) for n in range(1, model.layers + 1)} | {n + tail for n in range(model.layers + 1)})
    return tail, tuple((t, int(round(t - tail, 9))) for t in tops)  # n + tail - tail may be a little less than n


def _fullest(counts: list[int], load: float, stage: int, pp: int, full: int) -> tuple[float, int, int]:
    """Return (-load, -layers, chunk) for the largest chunk of a stage that can give a layer away.

    The smallest tuple gives first. Chunks from `full` on may give away all layers.
    """
    free = [(-load, -counts[i], i) for i in range(stage, len(counts), pp) if counts[i] > (i < full)]
    return min(free, default=(np.inf, 0, stage))


def _layout(model: Model, pp: int, vpp: int, counts: Sequence[int], explicit: bool) -> Layout:
    last = len(counts) - 1
    rows = [(i == 0, n, model.mtp_layers if i == last else 0, i == last) for i, n in enumerate(counts)]
    chunks = _chunks(model, rows)
    return Layout(pp, vpp, chunks, compressed([c.text for c in chunks]) if explicit else None)


def _chunks(model: Model, rows: Sequence[tuple[bool, int, int, bool]]) -> tuple[Chunk, ...]:
    """Build chunks from (embedding, layers, mtp, loss); a model's leading layers are dense, delta nets repeat."""
    out, done, made = list[Chunk](), 0, dict[tuple[int, ...], Chunk]()
    alike = not (model.linear or model.windowed or model.indexer_every > 1)
    for embedding, layers, mtp, loss in rows:
        dense = max(0, min(model.dense_layers - done, layers))
        dense_window = delta = reuse = window = 0
        if not alike:
            dense_window = blocks.windows(model, done, done + dense)
            delta = blocks.deltas(model, done, done + layers)
            reuse = blocks.sharing(model, done, done + layers)
            window = blocks.windows(model, done + dense, done + layers)
        done += layers
        final = layers > 0 and done == model.layers
        of = dense_window, delta, reuse, window
        key = embedding, layers, mtp, loss, final, dense, *of
        if key not in made:
            moe, full = layers - dense - delta - reuse - window, dense - dense_window
            others = {"dense_window": dense_window, "delta": delta, "reuse": reuse, "window": window}
            made[key] = Chunk(full, moe, embedding, mtp, loss, final, **others)
        out.append(made[key])
    return tuple(out)


def _segmented(model: Model, parts: Sequence[str], text: str | None) -> Layout:
    """Return a hybrid's layout, with one segment of its pattern on each stage."""
    last = len(parts) - 1
    chunks = tuple(
        Chunk(
            embedding=i == 0,
            mtp=model.mtp_layers if i == last else 0,
            loss=i == last,
            last_layer=i == last,
            **blocks.counted(part),
        )
        for i, part in enumerate(parts)
    )
    return Layout(len(parts), 1, chunks, text)


def compressed(chunks: Sequence[str]) -> str:
    """Format chunks of letters as Megatron's text: ``Et*4|(t*4|)*14tmL``."""
    words = [re.sub(r"t{2,}", lambda m: f"t*{len(m[0])}", c) for c in chunks]
    out, i = "", 0
    while i < len(words) - 1:
        n = 1
        while i + n < len(words) - 1 and words[i + n] == words[i]:
            n += 1
        out += f"({words[i]}|)*{n}" if n > 1 else f"{words[i]}|"
        i += n
    return out + words[-1]


@lru_cache(maxsize=4096)
def parse_layout(text: str, model: Model, pp: int, vpp: int) -> tuple[Layout | None, tuple[str, ...]]:
    """Parse a user's layout for `model` into (layout, ()), or (None, Megatron's refusals in the order of its
    checks)."""
    if model.hybrid:
        parts, reasons = text.split("|"), segment_refusals(text, model, pp, vpp)
        return (None, reasons) if reasons else (_segmented(model, parts, text), ())
    words, wrong = unroll(text)
    if wrong:
        return None, (wrong,)
    reasons = tuple(_reasons(words, model, pp, vpp))
    if reasons:
        return None, reasons
    rows = [("E" in w, w.count("t"), w.count("m"), "L" in w) for w in words]
    return Layout(pp, vpp, _chunks(model, rows), text), ()


def pieces(text: str, model: Model) -> tuple[list[str], str]:
    """Return the chunks of a user's layout for `model`, and the error in its text ("" if there is none)."""
    return (text.split("|"), "") if model.hybrid else unroll(text)


def unroll(text: str) -> tuple[list[str], str]:
    """Return the chunks of a layout's text with all repeats unrolled, and the error in it ("" if there is none)."""
    text = text.replace(",", "")
    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        size = sum(len(m[1]) * int(m[2]) if len(m[2]) < 6 else MAX_TEXT + 1 for m in re.finditer(pattern, text))
        if size > MAX_TEXT:
            return [], f"a layout of more than {MAX_TEXT} letters"
        text = re.sub(pattern, lambda m: m[1] * int(m[2]), text)
    odd = sorted(set(text) - set("EtmL|"))
    if odd:
        return [], f"{odd[0]!r} is not a letter of a layout: E embedding, t layer, m MTP, L loss, | between chunks"
    return text.split("|"), ""


def _reasons(words: Sequence[str], model: Model, pp: int, vpp: int) -> list[str]:
    """List the refusals of PipelineParallelLayerLayout.validate_layer_layout
    (pipeline_parallel_layer_layout.py:90-157)."""
    flat = "".join(words)
    mtp = [i for i, w in enumerate(words) if "m" in w]
    ends = np.cumsum([w.count("t") for w in words])
    firsts = (int(end) - w.count("t") for w, end in zip(words, ends, strict=True) if "t" in w)
    keyed = all(blocks.indexed(model, first) for first in firsts)  # each chunk with layers chooses its own keys
    asked = (
        (len(words) == pp * vpp, f"{len(words)} chunks, and pp x vpp is {pp} x {vpp} = {pp * vpp}"),
        (flat.startswith("E"), "E, the embedding, has to come first"),
        (flat.endswith("L"), "L, the loss, has to come last"),
        (flat.count("E") == 1, f"{flat.count('E')} times E; there is one embedding"),
        (flat.count("L") == 1, f"{flat.count('L')} times L; there is one loss"),
        (flat.count("t") == model.layers, f"{flat.count('t')} layers t; {model.name} has {model.layers}"),
        (flat.count("m") == model.mtp_layers, f"{flat.count('m')} MTP layers m; {model.name} has {model.mtp_layers}"),
        ("t" not in flat[flat.find("m") :] or "m" not in flat, "layers t have to come before MTP layers m"),
        (len(mtp) < 2, "all MTP layers m belong in one chunk"),
        (
            all("t" in w or may_be_empty(model, "m" in w) for w in words),
            "a chunk without a layer t, which the MTP of this model does not permit",
        ),
        (
            all(i // pp == vpp - 1 for i in mtp),
            f"MTP layers m belong in a rank's last virtual stage, one of the last {pp} chunks",
        ),
        (keyed, "a chunk starts with a layer that attends to the keys of a layer before it"),
    )
    return [why for fine, why in asked if not fine]


Floats = NDArray[np.float64]


@lru_cache(maxsize=1024)
def split_pattern(m: Model, pp: int) -> tuple[str, ...]:
    """Split the pattern into pp segments: the heaviest stage as light as possible, then all stages as even as
    possible."""
    # load[i, j] is the weight of a stage with layers i to j - 1; infinite if it has none
    each = layer_weights(m)
    upto = np.concatenate([[0.0], np.cumsum([each[letter] for letter in m.layer_pattern])])
    load = upto[None, :] - upto[:, None]
    load[:, -1] += each["last"]
    i, j = np.indices(load.shape)
    load = np.where(j > i, load, np.inf)
    heaviest = _best(load, pp, np.maximum)[1]
    even = np.where(load <= heaviest * (1 + 1e-9), load**2, np.inf)
    cuts = _best(even, pp, np.add)[0]
    return tuple(m.layer_pattern[a:b] for a, b in zip([0, *cuts], [*cuts, m.layers], strict=True))


def layer_weights(m: Model) -> dict[str, float]:
    """Return the weight of each letter's layer, and of the loss with MTP, for the balance.

    It is the number of weights that multiply a token, because products take most of a layer's time.
    """
    h, mixer = m.hidden, blocks.mamba(m)
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


def _best(load: Floats, pp: int, joined: np.ufunc) -> tuple[list[int], float]:
    """Return (cuts, cost) of the cheapest split into pp stages; `joined` combines the stages' costs."""
    cost, chosen = load[0], list[NDArray[np.intp]]()
    for _ in range(pp - 1):
        each = joined(cost[:, None], load)
        chosen.append(each.argmin(axis=0))
        cost = each.min(axis=0)
    cuts = [len(load) - 1]
    for before in reversed(chosen):
        cuts.append(int(before[cuts[-1]]))
    return cuts[:0:-1], float(cost[-1])


def segment_refusals(text: str, m: Model, pp: int, vpp: int) -> tuple[str, ...]:
    """Return Megatron's reasons to refuse a user's segments; empty if it accepts them."""
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
