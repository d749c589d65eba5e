"""Read a configuration as its authors spelt it, whichever release of transformers saved it: tables, and their reader.

transformers saves some keys under other names, or as lists of layers, and fills in what the authors left out. `spell`
gives an object of a configuration the keys that its family's table reads; an equal duplicate is taken, any other
refused. The values of absent keys are those that Bridge 0.6.2 and its transformers 5.12.1 build;
tests/importer/test_saved.py asks them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from moedsl.bridge.importer.layers import Fields, is_int, listed_mlps, numbered, show
from moedsl.bridge.importer.rules import Family, Int
from moedsl.support.diagnostics import Diagnostic, warning

Part = Literal["top", "text", "tower"]
"""The object: the whole configuration around a `text_config`, the language model's, or the vision tower's."""
Read = Callable[[Any, Mapping[str, Any]], Any]
"""Make the value of a key from that of another one and its object; None if the value means something else."""

SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "experts": ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    "topk": ("num_experts_per_tok", "moe_top_k", "top_k_experts"),
    "query_groups": ("num_key_value_heads", "num_attention_groups"),
}
"""Fact -> the keys that mean it in some family; a family's table reads one of them."""


def _same(value: Any, of: Mapping[str, Any]) -> Any:
    return value


def _each(**kinds: int) -> Read:
    """Mark each layer of a list by its kind."""

    def read(value: Any, of: Mapping[str, Any]) -> Any:
        known = isinstance(value, list) and all(isinstance(kind, str) and kind in kinds for kind in value)
        return [kinds[kind] for kind in value] if known else None

    return read


def _dense(value: Any, of: Mapping[str, Any]) -> int | None:
    """Count the dense layers of a list of all layers' MLPs, which come first."""
    dense = value.count("dense") if isinstance(value, list) and len(value) == of.get("num_hidden_layers") else -1
    return dense if dense >= 0 and value == listed_mlps(dense, len(value)) else None


def _sparse_numbers(value: Any, of: Mapping[str, Any]) -> Any:
    dense = _dense(value, of)
    return None if dense is None else numbered(dense, len(value))


_DIGITS = 9
"""More than the number of any layer has."""


def _own(kind: str, *keys: str) -> Read:
    """Read `per_layer_config`, which has an object for each layer of a kind, all alike with just these keys."""

    def read(value: Any, of: Mapping[str, Any]) -> Any:
        kinds, layers = of.get("layer_types"), of.get("num_hidden_layers")
        if not isinstance(kinds, list) or not is_int(layers) or not isinstance(value, Mapping) or not value:
            return None
        numbers = [str(i).zfill(_DIGITS) for i, name in enumerate(kinds[:layers]) if name == kind]
        first = next(iter(value.values()))
        alike = isinstance(first, Mapping) and first.keys() == {*keys} and all(one == first for one in value.values())
        return first if alike and sorted(n.zfill(_DIGITS) for n in value) == numbers else None

    return read


def _of_full(key: str) -> Read:
    read = _own("full_attention", "head_dim", "num_key_value_heads")
    return lambda value, of: (read(value, of) or {}).get(key)


def _of_windows(value: Any, of: Mapping[str, Any]) -> Any:
    if (shape := _own("sliding_attention", "num_attention_heads")(value, of)) is None:
        return None
    groups = of.get("num_key_value_heads", of.get("num_attention_groups"))
    more = {"num_attention_groups": groups, "head_dim": of.get("head_dim")}
    return {"attention_type": "sliding_attention", **shape, **more}


def _with_itself(value: Any, of: Mapping[str, Any]) -> Any:
    """Read a window that counts the token itself, as the class of transformers 5.24 does; its files list layers."""
    listed = is_int(value) and "layer_types" in of and of.get("sliding_window_size") is not None
    return value - 1 if listed else None


_MARKS = _each(dense=0, sparse=1)
OTHERS: Mapping[tuple[str, Part], tuple[tuple[str, str, Read], ...]] = {
    ("gemma4", "text"): (
        ("per_layer_config", "num_global_key_value_heads", _of_full("num_key_value_heads")),
        ("per_layer_config", "global_head_dim", _of_full("head_dim")),
    ),
    ("kimi_k25", "text"): (("model_type", "model_type", lambda v, of: "kimi_k2" if v == "deepseek_v3" else v),),
    ("kimi_k25", "tower"): (
        *(
            (key, f"vt_{key}", _same)
            for key in ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads")
        ),
        *((f"pos_emb_{side}", f"init_pos_emb_{side}", _same) for side in ("height", "width", "time")),
    ),
    ("mimo_v2_flash", "text"): (
        ("mlp_layer_types", "moe_layer_freq", _MARKS),
        ("layer_types", "hybrid_layer_pattern", _each(full_attention=0, sliding_attention=1)),
        ("sliding_window", "sliding_window_size", _with_itself),
    ),
    ("minimax_m3_vl", "text"): (("mlp_layer_types", "moe_layer_freq", _MARKS),),
    ("step3p5", "text"): (
        ("mlp_layer_types", "moe_layers_enum", _sparse_numbers),
        ("per_layer_config", "attention_other_setting", _of_windows),
    ),
}  # fmt: skip
"""Family and object -> a key that newer releases save, the key that the family's table reads, and how it is read."""

_EMPTY: Mapping[str, tuple[Any, ...]] = {"layer_types": ("full_attention", "attention"), "mlp_layer_types": ("sparse",)}
EMPTY: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "glm_moe_dsa": {"layer_types": ("deepseek_sparse_attention", "indexed_attention")},
    "minimax_m2": {"attn_type_list": (1,)},
    "minimax_m3_vl": {"layer_types": ("full_attention", "minimax_m3_sparse")},
}
"""Family -> lists of layers' kinds that say nothing more, as all layers are built alike: the key and the kinds."""
SAVED: Mapping[tuple[str, Part], Mapping[str, tuple[Any, ...]]] = {
    ("gpt_oss", "text"): {"swiglu_alpha": (1.702,)},
    ("kimi_k25", "top"): {"projection_hidden_size": (1152,), "projection_layer_norm_eps": ()},
    ("kimi_k25", "tower"): {"hidden_act": ("gelu_pytorch_tanh",), "model_type": ("kimi_k25_vision",)},
    ("minimax_m3_vl", "text"): dict.fromkeys(
        ("index_block_size", "index_head_dim", "index_local_blocks", "index_n_heads", "index_topk_blocks"), ()
    ),
    ("qwen3_vl_moe", "text"): {"tie_word_embeddings": (True, False)},  # the top level's counts
    ("step3p5", "text"): {
        "attention_bias": (False,),
        "hidden_act": ("silu",),
        "mtp_layer_types": (),
        "mtp_mlp_layer_types": (),
        "num_sliding_attention_heads": (),  # per_layer_config has them
        "per_layer_config": ({},),
        "query_pre_attn_scalar": (),
    },
}
"""Family and object -> keys that transformers adds, which change no fact, and the values that they may have; () is any
value."""

ABSENT: Mapping[tuple[str, Part], Mapping[str, Any]] = {
    ("deepseek_v3", "text"): {"n_group": 8, "topk_group": 4},
    ("gemma4", "text"): {"head_dim": 256, "enable_moe_block": False},
    ("gemma4", "top"): {"tie_word_embeddings": True},
    ("gemma4", "tower"): {"num_key_value_heads": 12},
    ("gemma4_text", "text"): {"head_dim": 256, "enable_moe_block": False, "tie_word_embeddings": True},
    ("kimi_k2", "text"): {"n_group": 8, "topk_group": 4},
    ("kimi_k25", "text"): {"n_group": 8, "topk_group": 4},
    ("mimo_v2_flash", "text"): {"scoring_func": "softmax"},
    ("minimax_m2", "text"): {"head_dim": 128},
    ("minimax_m3_vl", "text"): {"head_dim": 128},
    ("qwen3_5_moe", "text"): {"head_dim": 256},
    ("qwen3_5_moe_text", "text"): {"head_dim": 256},
    ("qwen3_next", "text"): {"head_dim": 256},
}
"""Family and object -> the values that the classes of the configurations give absent keys, where a rule has another."""

NEEDED: Mapping[str, tuple[str, ...]] = {
    "glm_moe_dsa": ("indexer_rope_interleave",),
    "kimi_k2": ("auto_map",),
    "kimi_k25": ("auto_map",),
    "mimo_v2_flash": (*("auto_map", "rope_theta", "swa_rope_theta"), *("layernorm_epsilon", "attention_value_scale")),
}
"""Family -> keys without which AutoBridge refuses a configuration; they change no fact."""

_VARIANTS = {"gemma4_text": "gemma4"}
_NEWER: Mapping[str, tuple[str, str]] = {
    "gemma4": ("per_layer_config", "loses the key-value heads of its layers with full attention"),
    "glm_moe_dsa": ("layer_types", "refuses it"),
    "nemotron_h": ("layers_block_type", "refuses it"),
}
"""Family -> a key as 5.24 saves it, and what transformers 5.12.1, which Bridge 0.6.2 pins, does with such a file."""
_NEWER_WORDS = {"indexed_attention", "linear_attention"}
_CHANGED: Mapping[tuple[str, Part], Mapping[str, tuple[Any, Any]]] = {
    ("deepseek_v3", "text"): {"num_nextn_predict_layers": (0, 1)},
    ("glm4_moe", "text"): {"num_nextn_predict_layers": (0, 1)},
    ("kimi_k25", "top"): {"tie_word_embeddings": (False, True)},
    ("kimi_k25", "text"): {"num_nextn_predict_layers": (0, 1)},
    ("step3p5", "text"): {"tie_word_embeddings": (True, False)},
}
"""Family and object -> what an absent key is to Bridge 0.6.2 and its transformers 5.12.1, and to transformers 5.24."""


def spell(family: str, part: Part, fields: Fields, table: Family) -> None:
    """Give an object the keys that the family's table reads, from other spellings and from transformers' defaults."""
    given, taken = fields.config, set[str]()
    for other, key, read in _others(family, part, table):
        value = given.get(other)
        made = None if value is None else read(value, given)
        if made is None:
            continue
        taken |= {other} - {key}
        stated = None if other == key else given.get(key)
        if stated is None:
            fields.config = {**fields.config, key: made}
            fields.spelt |= {key: other} if other != key else {}
        elif stated != made:
            both = f"{show(made)} contradicts {key}: {show(stated)}"
            fields.refuse("import.unsupported_value", other, both, help="keep the one that the tensors have")
    fields.config = {key: value for key, value in fields.config.items() if key not in taken}
    for key, kinds in {**_EMPTY, **EMPTY.get(family, {})}.items() if part == "text" else ():
        listed = fields.config.get(key)
        if key not in _read(table) and isinstance(listed, list) and len(listed) == fields.layers:
            fields.known |= {key} if all(kind in kinds for kind in listed) else set()
    for key, allowed in SAVED.get((family, part), {}).items():
        if not allowed or fields.config.get(key) in allowed:
            fields.config = {k: v for k, v in fields.config.items() if k != key}
    for key, value in ABSENT.get((family, part), {}).items():
        if key not in fields.config:
            fields.config = {**fields.config, key: value}
            fields.spelt[key] = f"{key} (absent: {show(value)} by default)"


def _others(family: str, part: Part, table: Family) -> Iterator[tuple[str, str, Read]]:
    for fact, keys in SYNONYMS.items() if part == "text" else ():
        key = getattr(table.facts.get(fact), "key", "")
        yield from ((other, key, _same) for other in keys if key in keys and other != key)
    leading = table.facts.get("dense_layers")
    if part == "text" and isinstance(leading, Int):
        yield "mlp_layer_types", leading.key, _dense
    yield from OTHERS.get((_VARIANTS.get(family, family), part), ())


def _read(table: Family) -> set[str]:
    """List the keys of layers' kinds that the family's rules read."""
    return {getattr(rule, name, "") for rule in table.facts.values() for name in ("key", "listed")}


def remarks(family: str, config: Mapping[str, Any], text: Mapping[str, Any]) -> list[Diagnostic]:
    """Warn of what AutoBridge will not read in a file, although its facts are known."""
    needed = ("architectures", *NEEDED.get(family, ()))
    absent = [key for key in needed if (config if key in ("architectures", "auto_map") else text).get(key) is None]
    found = [warning("import.unloadable:absent", key=key, values={"field": key}) for key in absent]
    key, effect = _NEWER.get(_VARIANTS.get(family, family), ("", ""))
    value = text.get(key)
    if isinstance(value, Mapping) or (isinstance(value, list) and any(v in _NEWER_WORDS for v in value)):
        found.append(warning("import.unloadable:newer", key=key, effect=effect, values={"field": key}))
    parts: tuple[tuple[Part, Mapping[str, Any]], ...] = (("top", config), ("text", text))
    for part, given in parts:
        for key, (old, new) in _CHANGED.get((family, part), {}).items():
            if key not in given:
                told = {"key": key, "old": show(old), "new": show(new)}
                found.append(warning("import.unstated", **told, values={"field": key}))
    return found
