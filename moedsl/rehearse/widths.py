"""Make the model narrow: small widths with the same ratios, the same router, the same kinds of layers."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd, lcm

from attrs import evolve, fields_dict

from moedsl.facts.facts import Model
from moedsl.rehearse.notes import KEPT, LEFT_OUT, Note, sized

HIDDEN, HEAD, EXPERT, DENSE, RANK, VOCAB = 64, 16, 32, 128, 32, 512
MAMBA_HEADS = 16
"""Width of a group, so that a projection of a mixer's input is a multiple of 16, as kernels and FP8 need."""
LANGUAGE = {"qwen3_vl_moe": "qwen3_moe", "qwen3_5_moe": "qwen3_next", "kimi_k25": "kimi_k2", "gemma4": "gemma4_text"}
"""The family of a vision-language model's language model."""
SHRUNK = (
    "layers", "hidden", "vocab", "heads", "query_groups", "head_dim", "ffn_hidden", "experts", "expert_hidden",
    "shared_expert_hidden", "dense_layers", "mtp_layers", "q_lora_rank", "kv_lora_rank", "qk_nope_dim", "qk_rope_dim",
    "v_head_dim", "window", "window_every", "window_leading", "window_heads", "window_query_groups",
    "full_query_groups", "full_head_dim", "layer_pattern", "mamba_heads", "mamba_head_dim", "mamba_state",
    "mamba_groups", "linear_every", "linear_key_heads", "linear_value_heads", "linear_key_dim", "linear_value_dim",
    "moe_latent", "indexer_heads", "indexer_dim", "indexer_topk", "indexer_every", "indexer_leading",
)  # fmt: skip
"""Facts that may become smaller; `notes` lists each that the model has."""
SAME = (
    "topk", "routing_groups", "topk_groups", "attention", "qk_norm", "qkv_bias", "attention_bias", "mlp_bias",
    "attention_sinks", "router_bias", "router_balanced", "tied_embeddings", "shared_expert_gate", "gated",
    "mtp_pattern", "mtp_repeated", "attention_gate", "qk_norm_over", "mtp_dense", "window_sinks", "window_first",
    "sandwich_norms", "softcap",
)  # fmt: skip
"""Facts that stay."""


def narrow(m: Model, name: str, sizes: Mapping[str, int], layers: int, seq: int, pattern: str = "") -> Model:
    """Narrow a model to small widths that its meshes divide; `layers` are without MTP, `pattern` is a hybrid's. Its
    `hf` is empty: it has no folder."""
    groups = lcm(sizes["tp"] * sizes["cp"], 2) if m.query_groups > 1 else 1
    mla = m.attention == "mla"
    heads = groups * (1 if mla or m.heads == m.query_groups else 2)
    latent = {"kv_lora_rank": RANK, "qk_nope_dim": HEAD, "qk_rope_dim": HEAD, "v_head_dim": HEAD} if mla else {}
    latent |= {"v_head_dim": HEAD // 2} if m.v_head_dim and not mla else {}
    expert = EXPERT * sizes["etp"]
    leading = min(m.window_leading, 1)
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
        heads=max(heads, sizes["tp"] * sizes["cp"]),
        query_groups=max(heads, sizes["tp"] * sizes["cp"]) if mla else groups,
        head_dim=HEAD,
        ffn_hidden=_dense(m, expert, sizes["tp"]),
        experts=experts(m, sizes["ep"]),
        expert_hidden=expert,
        shared_expert_hidden=_shared(m, expert, sizes["tp"]),
        dense_layers=min(m.dense_layers, 1),
        mtp_layers=min(m.mtp_layers, 1),
        q_lora_rank=RANK if m.q_lora_rank else 0,
        window=seq // 2 if m.window else 0,
        window_every=min(m.window_every, 2 + leading),  # a window between the leading layers and the next without
        window_leading=leading,
        window_heads=2 * heads if m.window_heads else 0,
        window_query_groups=heads if m.window_query_groups else 0,
        full_query_groups=groups if m.full_query_groups else 0,
        full_head_dim=2 * HEAD if m.full_head_dim else 0,
        position_embedding_type="rope" if m.family in LANGUAGE else m.position_embedding_type,
        moe_latent=HIDDEN // 2 if m.moe_latent else 0,
        vision=None,
        **latent,
        **_mixer(m, sizes["tp"] * sizes["cp"]),
        **_delta_net(m, sizes["tp"] * sizes["cp"]),
        **_indexer(m, seq),
    )


def _mixer(m: Model, ranks: int) -> dict[str, int]:
    """Narrow a Mamba-2 mixer so that the ranks that share it divide its groups, with as many heads in each."""
    if not m.mamba_heads:
        return {}
    groups = lcm(ranks, 2) if m.mamba_groups > 1 else 1
    return {
        "mamba_heads": MAMBA_HEADS * groups, "mamba_head_dim": HEAD, "mamba_state": HEAD, "mamba_groups": groups,
    }  # fmt: skip


def _delta_net(m: Model, ranks: int) -> dict[str, int]:
    """Narrow a gated delta net so that its ranks divide its heads, in every other layer (`shapes.paired`)."""
    if not m.linear:
        return {}
    keys, values = lcm(ranks, 2), 2 if m.linear_value_heads > m.linear_key_heads else 1
    return {
        "linear_every": 2, "linear_key_heads": keys, "linear_value_heads": values * keys, "linear_key_dim": HEAD,
        "linear_value_dim": HEAD,
    }  # fmt: skip


def _indexer(m: Model, seq: int) -> dict[str, int]:
    """Narrow an indexer so that it leaves keys out; layers that share keys are every other one (`shapes.paired`)."""
    if not m.sparse:
        return {}
    sizes = {"indexer_heads": 2, "indexer_dim": 2 * HEAD, "indexer_topk": seq // 2}
    return {**sizes, "indexer_every": min(m.indexer_every, 2), "indexer_leading": min(m.indexer_leading, 1)}


def experts(m: Model, ep: int) -> int:
    """Choose so many experts that the router can choose among two in each group, with equally many on every rank."""
    wanted = max(2 * m.topk * m.routing_groups // m.topk_groups, 2 * ep)
    step = m.routing_groups * ep // gcd(m.routing_groups, ep)
    return min(-(-wanted // step) * step, m.experts)


def _dense(m: Model, expert: int, tp: int) -> int:
    """The width of experts or shared experts if the model's is theirs: one field may state both."""
    same = {m.expert_hidden: expert, m.shared_expert_hidden: _shared(m, expert, tp)}
    return same.get(m.ffn_hidden, _split(DENSE, tp))


def _shared(m: Model, expert: int, tp: int) -> int:
    """As many shared experts as before, or one width if they are not a multiple of the experts' width."""
    if not m.shared_expert_hidden:
        return 0
    whole = m.shared_expert_hidden % m.expert_hidden == 0
    return _split(expert, tp) * (m.shared_expert_hidden // m.expert_hidden) if whole else _split(expert, tp)


def _split(width: int, tp: int) -> int:
    """A width that tp ranks divide."""
    return width if width % tp == 0 else width * tp


def notes(m: Model, small: Model) -> list[Note]:
    """Note each fact, and the vision tower."""
    default = {n: fact.default for n, fact in fields_dict(Model).items()}
    out = [sized(n, getattr(m, n), getattr(small, n)) for n in SHRUNK if getattr(m, n) not in (0, "", default[n])]
    plain = {n: default[n] for n in SAME if n != "attention"}
    out += [Note(n, KEPT, getattr(m, n), getattr(small, n)) for n in SAME if getattr(m, n) != plain.get(n)]
    if m.vision is not None:
        why = (
            "its layers are Transformer Engine's, its images need the model's processor: the language model alone runs"
        )
        out.append(Note("vision tower", LEFT_OUT, f"{m.vision.layers} layers", None, why))
    return out
