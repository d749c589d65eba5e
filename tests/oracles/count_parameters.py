"""Parameters of a model from its facts, layer by layer: written for tests, from the published architectures alone."""

from moedsl.facts.facts import Model


def language(m: Model) -> int:
    """Parameters of the language model without MTP layers; vocabulary not padded."""
    if m.layer_pattern:
        return _blocks(m, m.layer_pattern) + m.hidden + m.vocab * m.hidden * (1 if m.tied_embeddings else 2)
    attention = sum(_delta_net(m) if _is_linear(m, i) else _attention(m) for i in range(1, m.layers + 1))
    if m.indexer_every > 1:  # "full" and "shared" of the configuration's indexer_types
        full = m.indexer_leading + (m.layers - m.indexer_leading) // m.indexer_every
        attention -= (m.layers - full) * _indexer(m)
    if m.window_query_groups:  # 1 of hybrid_layer_pattern: more key-value heads, and a sink for each head
        leading, every = m.window_leading, m.window_every
        windows = m.layers - leading - sum(i % every == 0 for i in range(leading + 1, m.layers + 1))
        more = (m.window_query_groups - m.query_groups) * (m.head_dim + m.v_head_dim) * m.hidden
        attention += windows * (more + m.heads * m.window_sinks)
    if (
        m.window_heads
    ):  # sliding_attention of layer_types, which begins with full_attention: more heads, each with its gate
        windows = m.layers - len(range(0, m.layers, m.window_every))
        attention += windows * (m.window_heads - m.heads) * m.head_dim * m.hidden * (2 + m.attention_gate)
    if m.full_query_groups:  # full_attention of layer_types: wider heads, and fewer that are both keys and values
        q, kv = m.heads * m.full_head_dim, m.full_query_groups * m.full_head_dim
        full = m.hidden * (2 * q + kv) + 2 * m.full_head_dim
        attention += m.layers // m.window_every * (full - _grouped(m))
    mlps = m.dense_layers * _mlp(m, m.ffn_hidden) + (m.layers - m.dense_layers) * _experts(m)
    return attention + mlps + m.hidden + m.vocab * m.hidden * (1 if m.tied_embeddings else 2)


def mtp(m: Model) -> int:
    """Parameters of the MTP layers: two norms, a projection of both inputs, one expert layer, a final norm.

    The expert layer may be a dense one. A hybrid's has the blocks of its own pattern; layers that are one repeated layer have its parameters once. Beside
    gated delta nets it has the full attention of the published checkpoint (`mtp.layers.0.self_attn`).
    """
    layer = _attention(m) + (_mlp(m, m.ffn_hidden) if m.mtp_dense else _experts(m))
    inner = _blocks(m, m.mtp_pattern) if m.layer_pattern else layer
    layers = min(m.mtp_layers, 1) if m.mtp_repeated else m.mtp_layers
    return layers * (2 * m.hidden + 2 * m.hidden * m.hidden + inner + m.hidden)


def megatron_only(m: Model) -> int:
    """Parameters that Megatron-Core has and the published model has not.

    Without a q_lora_rank, `linear_q_proj` has a norm of its own behind the layer's input norm
    (megatron/core/transformer/multi_latent_attention.py:505, _resolve_qk_norm_config). Gemma 4's projection of values
    stays in layers where the published model takes the keys (megatron/bridge/models/gemma/gemma4_bridge.py:423).
    """
    if m.family == "gemma4":
        return m.layers // m.window_every * m.full_query_groups * m.full_head_dim * m.hidden
    return m.layers * m.hidden if m.attention == "mla" and not m.q_lora_rank else 0


def vision(m: Model) -> int:
    """Parameters of the vision tower and its mergers; 0 without."""
    v = m.vision
    if v is None:
        return 0
    if v.pooled:  # norms q_norm, k_norm and four of a layer; gate_proj, up_proj and down_proj; no biases
        head = v.hidden // v.heads
        layer = 4 * v.hidden**2 + 2 * head + 3 * v.hidden * v.ffn_hidden + 4 * v.hidden
        patches = v.hidden * (v.in_channels * v.patch**2 + 2 * v.positions)
        return patches + v.layers * layer + v.hidden * v.out_hidden
    patches = v.in_channels * v.temporal_patch * v.patch**2 * v.hidden + v.hidden + v.positions * v.hidden
    attention = 3 * v.hidden * v.hidden + 3 * v.hidden + v.hidden * v.hidden + v.hidden
    mlp = 2 * v.hidden * v.ffn_hidden + v.ffn_hidden + v.hidden
    wide = v.hidden * v.merge**2
    merger = wide * wide + wide + wide * v.out_hidden + v.out_hidden
    return (
        patches
        + v.layers * (4 * v.hidden + attention + mlp)
        + merger
        + 2 * v.hidden * (1 + v.final_norm)
        + len(v.deepstack) * (merger + 2 * wide)
    )


def _blocks(m: Model, letters: str) -> int:
    """Blocks of one kind each, and the one norm before each."""
    kinds = {"M": _mamba(m), "*": _grouped(m), "E": _experts(m), "-": _mlp(m, m.ffn_hidden)}
    return sum(m.hidden + kinds[letter] for letter in letters)


def _mamba(m: Model) -> int:
    """Mamba-2: what makes z, x, B, C and dt, a convolution of four taps over x, B and C, three numbers a head, a norm
    and the projection back."""
    inner, shared = m.mamba_heads * m.mamba_head_dim, m.mamba_groups * m.mamba_state
    into = m.hidden * (2 * inner + 2 * shared + m.mamba_heads)
    return into + (4 + 1) * (inner + 2 * shared) + 3 * m.mamba_heads + inner + inner * m.hidden


def _attention(m: Model) -> int:
    """Attention of one layer and the layer's two norms."""
    return (2 + m.sandwich_norms) * m.hidden + (_latent(m) if m.attention == "mla" else _grouped(m))


def _is_linear(m: Model, layer: int) -> bool:
    """Whether a layer, counted from 1, has a gated delta net."""
    return m.linear_every > 0 and layer % m.linear_every > 0


def _delta_net(m: Model) -> int:
    """A gated delta net and the layer's two norms: what makes q, k, v, the gate z, b and a, a convolution of four taps
    over q, k and v, two numbers a value head, a norm as wide as one, and the projection back."""
    q, v = m.linear_key_heads * m.linear_key_dim, m.linear_value_heads * m.linear_value_dim
    into = m.hidden * (2 * q + 2 * v + 2 * m.linear_value_heads)
    return 2 * m.hidden + into + 4 * (2 * q + v) + 2 * m.linear_value_heads + m.linear_value_dim + v * m.hidden


def _grouped(m: Model) -> int:
    width = m.v_head_dim or m.head_dim
    q, kv = m.heads * m.head_dim, m.query_groups * (m.head_dim + width)
    extra = (
        (q + kv) * m.qkv_bias
        + m.hidden * m.attention_bias
        + _qk_norms(m)
        + m.heads * m.attention_sinks
        + m.hidden * q * m.attention_gate
    )
    return m.hidden * (q + kv) + m.heads * width * m.hidden + extra


def _qk_norms(m: Model) -> int:
    """One norm of a head's width for queries and one for keys, or norms as wide as all of them."""
    if m.qk_norm_over == "each_head":
        return 2 * m.head_dim * m.qk_norm
    return (m.heads + m.query_groups) * m.head_dim


def _latent(m: Model) -> int:
    q, rank = m.heads * (m.qk_nope_dim + m.qk_rope_dim), m.q_lora_rank
    query = m.hidden * rank + rank + rank * q if rank else m.hidden * q
    latent = m.hidden * (m.kv_lora_rank + m.qk_rope_dim) + m.kv_lora_rank
    out = m.kv_lora_rank * m.heads * (m.qk_nope_dim + m.v_head_dim) + m.heads * m.v_head_dim * m.hidden
    return query + latent + out + _indexer(m)


def _indexer(m: Model) -> int:
    """The indexer of sparse attention: `wq_b`, `wk`, `k_norm` with a bias, and `weights_proj`."""
    queries, key = m.q_lora_rank * m.indexer_heads * m.indexer_dim, m.hidden * m.indexer_dim + 2 * m.indexer_dim
    return queries + key + m.hidden * m.indexer_heads


def _mlp(m: Model, width: int, hidden: int = 0) -> int:
    """Two products, three with a gate; `hidden` is what it reads where that is not the model's width."""
    products = 3 if m.gated else 2
    return products * (hidden or m.hidden) * width + (2 * width + m.hidden) * m.mlp_bias


def _experts(m: Model) -> int:
    router = m.hidden * m.experts + m.experts * m.router_bias
    shared = _mlp(m, m.shared_expert_hidden) if m.shared_expert_hidden else 0
    latent = 2 * m.hidden * m.moe_latent
    if m.sandwich_norms:  # the four `feedforward_layernorm` next to the layer's own, `router.scale`, `per_expert_scale`
        router += 4 * m.hidden + m.hidden + m.experts
    routed = m.experts * _mlp(m, m.expert_hidden, m.moe_latent)
    return router + routed + latent + shared + m.hidden * m.shared_expert_gate
