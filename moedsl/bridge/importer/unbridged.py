"""Refuse a configuration of a family that is not imported: one error, with the declaration as far as the file tells."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from moedsl.bridge.importer.families import FAMILIES
from moedsl.bridge.importer.known import SIGNS, UNSUPPORTED
from moedsl.bridge.importer.layers import Fields, is_int, show
from moedsl.facts import families
from moedsl.support.diagnostics import Diagnostic, error, suggest

_KEYS: Mapping[str, str] = {
    "layers": "num_hidden_layers num_layers n_layers n_layer",
    "hidden": "hidden_size d_model n_embd",
    "vocab": "vocab_size",
    "max_seq": "max_position_embeddings max_seq_len",
    "heads": "num_attention_heads n_heads n_head",
    "query_groups": "num_key_value_heads",
    "head_dim": "head_dim attention_head_dim",
    "q_lora_rank": "q_lora_rank",
    "kv_lora_rank": "kv_lora_rank",
    "qk_nope_dim": "qk_nope_head_dim",
    "qk_rope_dim": "qk_rope_head_dim",
    "v_head_dim": "v_head_dim",
    "ffn_hidden": "intermediate_size_mlp dense_intermediate_size ffn_hidden_size intermediate_size",
    "dense_layers": "first_k_dense_replace num_dense_layers",
    "experts": "n_routed_experts num_experts num_local_experts moe_num_experts",
    "topk": "num_experts_per_tok num_experts_per_token moe_topk moe_top_k moe_k",
    "expert_hidden": "moe_intermediate_size expert_ffn_hidden_size expert_hidden_dim intermediate_size",
    "routing_groups": "n_group",
    "topk_groups": "topk_group",
    "mtp_layers": "num_nextn_predict_layers",
}
"""Fact -> the keys that state it in published configurations, the first one that a file has."""
_SHARED_WIDTH = "shared_expert_intermediate_size shared_intermediate_size moe_shared_expert_intermediate_size"
_SHARED = "n_shared_experts num_shared_experts num_shared_expert moe_num_shared_experts"
_FLAGS = {"tied_embeddings": "tie_word_embeddings", "qk_norm": "use_qk_norm", "qkv_bias": "attention_bias"}
NEEDED = ("layers", "hidden", "vocab", "heads", "query_groups", "head_dim", "ffn_hidden", "experts", "topk")
"""The facts that a declaration must state, with `expert_hidden`."""


def unknown_family(config: Mapping[str, Any]) -> Diagnostic | None:
    """Return the error of a configuration that names no family, or one that has a bridge but is not imported."""
    family, fields = config.get("model_type"), Fields(config)
    known = f"supported: {', '.join(FAMILIES)}"
    if "model_type" not in config:
        fields.refuse("import.missing_field", "model_type", "missing: it names the architecture", help=known)
    elif not isinstance(family, str):
        fields.refuse("import.wrong_type", "model_type", f"expected a string, got {show(family)}", help=known)
    elif families.bridging(family):
        why = UNSUPPORTED[family].why if family in UNSUPPORTED else "not a mixture of experts"
        fields.refuse("import.unknown_model", "model_type", f"{show(family)}: {why}", help=known)
    return next(iter(fields.problems), None)


def no_bridge(config: Mapping[str, Any], family: str, name: str, hf: str) -> Diagnostic:
    """Return the error of a family that no release bridges, with the declaration that plans it."""
    known, (facts, remarks) = UNSUPPORTED.get(family), outline(config)
    block = " ".join(f"{fact} {json.dumps(value).strip(chr(34))}" for fact, value in facts.items())
    return error(
        "import.unknown_model:no-bridge",
        family=f"{family} ({known.models})" if known else family,
        why=f": {known.why}" if known and known.why else "",
        values={"field": "model_type", "value": family},
        help=(
            *(suggest(family, [*FAMILIES], 0.8) if known is None else ()),
            f'to plan it, complete this declaration: model {name} {{ hf "{hf}" family {family} {block} }}',
            *remarks,
        ),
    )


def outline(config: Mapping[str, Any]) -> tuple[dict[str, int | str | bool], list[str]]:
    """Read what a declaration can say of any mixture of experts, with remarks on what it cannot."""
    nested = config.get("text_config")
    fields: Mapping[str, Any] = nested if isinstance(nested, Mapping) else config
    found = {fact: read for fact, keys in _KEYS.items() if (read := _first(fields, keys)) is not None}
    out: dict[str, int | str | bool] = {fact: value for fact, (_, value) in found.items()}
    hidden, heads = (found[n][1] if n in found else 0 for n in ("hidden", "heads"))
    if "kv_lora_rank" in out:  # latent attention has as many key-value heads as heads
        out |= {"attention": "mla"}
        out |= {n: found[m][1] for n, m in (("query_groups", "heads"), ("head_dim", "qk_rope_dim")) if m in found}
    elif "head_dim" not in out and heads and hidden % heads == 0:
        out["head_dim"] = hidden // heads
    if (shared := _first(fields, _SHARED_WIDTH)) is not None:
        out["shared_expert_hidden"] = shared[1]
    elif (shared := _first(fields, _SHARED)) is not None and "expert_hidden" in found:
        out["shared_expert_hidden"] = shared[1] * found["expert_hidden"][1]
    out |= {fact: True for fact, key in _FLAGS.items() if fields.get(key) is True}
    missing = [fact for fact in (*NEEDED, "expert_hidden") if fact not in out]
    read = {key for key, _ in found.values()}
    beyond: dict[str, list[str]] = {}
    for key, why in ((key, sign(key)) for key, value in fields.items() if value and key not in read):
        if why is not None:
            beyond.setdefault(why, []).append(key)
    remarks = [f"the file does not say {', '.join(missing)}"] if missing else []
    return out, remarks + [f"it leaves out {why}: {', '.join(keys)}" for why, keys in beyond.items()]


def _first(fields: Mapping[str, Any], keys: str) -> tuple[str, int] | None:
    """Return the first of the keys that has a whole number above 0, or a list of one such number for every layer."""
    for key in keys.split():
        stated: Any = fields.get(key)
        values: list[Any] = stated if isinstance(stated, list) else [stated]
        if values and all(v == values[0] for v in values) and is_int(values[0]) and values[0] > 0:
            return key, values[0]
    return None


def sign(key: str) -> str | None:
    """Return what a key says of an architecture that cannot be declared; None if it says nothing known."""
    return next((why for pattern, why in SIGNS if re.fullmatch(pattern, key)), None)
