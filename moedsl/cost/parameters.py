"""Parameters of a pipeline stage on one rank, as Megatron-Core 0.19.2 and Megatron Bridge 0.6.2 build it.

Counts are exact integers: `dense` is what data parallelism over dp x cp reduces, `expert` what EDP reduces (a parameter
whose `allreduce` is False). A column-parallel weight splits its output over TP and a row-parallel one its input; norms,
routers, biases of row-parallel linears and MLA's down projections are whole on every TP rank.
Bridge's providers take the Hugging Face vocabulary as it is and do not pad it (bridge models/gpt_provider.py:265,
`should_pad_vocab` False); `padded_vocab` is for a recipe that does.
"""

from __future__ import annotations

from functools import lru_cache

from attrs import frozen

from moedsl.cost.pipeline import Chunk, Layout
from moedsl.facts import Model, Vision


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
        """Dense and expert parameters together."""
        return self.dense + self.expert


def padded_vocab(vocab: int, divisible_by: int, tp: int) -> int:
    """The vocabulary padded to a multiple of divisible_by x tp (bridge
    utils/vocab_utils.py:calculate_padded_vocab_size)."""
    step = divisible_by * tp
    return -(-vocab // step) * step


def attention(m: Model, tp: int) -> int:
    """One attention block, its input norm included."""
    return m.hidden + (_mla(m, tp) if m.attention == "mla" else _gqa(m, tp))


def _gqa(m: Model, tp: int) -> int:
    width = (m.heads + 2 * m.query_groups) * m.head_dim
    out = m.heads * m.head_dim * m.hidden // tp + m.hidden * m.attention_bias
    sinks = m.heads // tp * m.attention_sinks
    return width * (m.hidden + m.qkv_bias) // tp + out + 2 * m.head_dim * m.qk_norm + sinks


def _mla(m: Model, tp: int) -> int:
    """megatron/core/transformer/multi_latent_attention.py:MLASelfAttention. Without a q_lora_rank queries have no
    down projection.

    With QK norm the query's projection is then a norm over the hidden state and a linear, beside the layer's own norm.
    """
    qk = m.heads * (m.qk_nope_dim + m.qk_rope_dim) // tp
    query = m.q_lora_rank * (m.hidden + qk + m.qk_norm) if m.q_lora_rank else m.hidden * (qk + m.qk_norm)
    down = m.hidden * (m.kv_lora_rank + m.qk_rope_dim) + m.kv_lora_rank * m.qk_norm
    up = m.kv_lora_rank * m.heads * (m.qk_nope_dim + m.v_head_dim) // tp
    return query + down + up + m.heads * m.v_head_dim * m.hidden // tp


def mlp(m: Model, tp: int) -> int:
    """A dense layer's gated MLP, its norm included."""
    return m.hidden + _gated(m, m.ffn_hidden, tp)


def _gated(m: Model, width: int, split: int) -> int:
    bias = (2 * width // split + m.hidden) * m.mlp_bias
    return 3 * m.hidden * width // split + bias


def moe(m: Model, tp: int, ep: int, etp: int) -> Parameters:
    """A MoE block: norm, router and shared experts are dense parameters, the routed experts of this rank are not."""
    router = m.experts * (m.hidden + m.router_bias)
    shared = _gated(m, m.shared_expert_hidden, tp) + m.hidden * m.shared_expert_gate if m.shared_expert_hidden else 0
    return Parameters(m.hidden + router + shared, m.experts // ep * _gated(m, m.expert_hidden, etp))


def vision(v: Vision, tp: int) -> int:
    """The vision tower with its mergers: patch and position embeddings whole on each rank, linears split over TP."""
    patches = v.hidden * (v.in_channels * v.temporal_patch * v.patch**2 + 1) + v.positions * v.hidden
    return patches + vision_layers(v, tp) + sum(mergers(v, tp))


def vision_layers(v: Vision, tp: int) -> int:
    """The transformer layers of the tower."""
    attention = v.hidden * 4 * (v.hidden + 1) // tp + v.hidden - v.hidden // tp
    mlp = v.ffn_hidden * (2 * v.hidden + 1) // tp + v.hidden
    return v.layers * (4 * v.hidden + attention + mlp)


def mergers(v: Vision, tp: int) -> tuple[int, ...]:
    """The patch merger, normed before its shuffle, and the deepstack mergers, normed after it."""
    wide = v.hidden * v.merge**2
    linears = wide * (wide + 1) // tp + wide * v.out_hidden // tp + v.out_hidden
    return (linears + 2 * v.hidden, *(linears + 2 * wide for _ in v.deepstack))


@lru_cache(maxsize=65536)
def chunk(m: Model, c: Chunk, tp: int, ep: int, etp: int) -> Parameters:
    """One virtual stage: layers, and whatever of embedding, vision tower, MTP, final norm and output layer it holds."""
    block = moe(m, tp, ep, etp)
    layers = Parameters(attention(m, tp)) + block
    total = layers * c.moe + Parameters(attention(m, tp) + mlp(m, tp)) * c.dense
    total += (layers + Parameters(3 * m.hidden + 2 * m.hidden**2 // tp)) * c.mtp
    norm = c.last_layer if m.mtp_layers else c.loss
    return total + Parameters(m.hidden * norm + _words(m, c, tp) + _tower(m, c, tp))


def _words(m: Model, c: Chunk, tp: int) -> int:
    """Embedding and output layer; MTP brings its own embedding (core models/gpt/gpt_model.py:167), tied ones share
    it."""
    table = table_size(m, tp)
    embedded = c.embedding or c.mtp > 0
    return table * embedded + table * (c.loss and not (m.tied_embeddings and embedded))


def table_size(m: Model, tp: int) -> int:
    """One table of the vocabulary, split over TP."""
    return -(-m.vocab // tp) * m.hidden


def _tower(m: Model, c: Chunk, tp: int) -> int:
    return vision(m.vision, tp) if m.vision and c.embedding else 0


def stage(m: Model, layout: Layout, rank: int, tp: int, ep: int, etp: int) -> Parameters:
    """All chunks of pipeline rank `rank`."""
    return sum((chunk(m, c, tp, ep, etp) for c in layout.stage(rank)), Parameters())


def unique(m: Model) -> int:
    """Parameters of the whole model, each counted once; MTP layers included, their copy of the embedding not."""
    whole = Chunk(m.dense_layers, m.layers - m.dense_layers, True, m.mtp_layers, True, True)
    return chunk(m, whole, 1, 1, 1).total
