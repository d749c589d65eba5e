"""Write the text of a `model` declaration: facts in a fixed order, each line with the fields of its source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from moedsl.bridge.importer.layers import Pattern
from moedsl.bridge.importer.rules import Const, Family, Int, OfMtp, OfText, Repeated, Rule, Times
from moedsl.facts.facts import Model, Vision

WIDTH = 100
"""The longest line of facts with its sources, in columns."""

Value = int | bool | str | tuple[int, ...]

_LINES = (
    ("layers", "hidden", "vocab"),
    ("layer_pattern",),
    ("mamba_heads", "mamba_head_dim", "mamba_state", "mamba_groups"),
    ("max_seq",),
    ("position_embedding_type",),
    ("tied_embeddings",),
    ("softcap",),
    ("attention",),
    ("heads", "query_groups", "head_dim"),
    ("q_lora_rank", "kv_lora_rank"),
    ("qk_nope_dim", "qk_rope_dim", "v_head_dim"),
    ("indexer_heads", "indexer_dim", "indexer_topk"),
    ("indexer_every", "indexer_leading"),
    ("qk_norm", "qk_norm_over"),
    ("attention_gate",),
    ("qkv_bias",),
    ("attention_bias", "mlp_bias", "router_bias"),
    ("router_balanced",),
    ("attention_sinks",),
    ("linear_every",),
    ("linear_key_heads", "linear_value_heads", "linear_key_dim", "linear_value_dim"),
    ("window", "window_every", "window_leading", "window_first"),
    ("window_heads", "window_query_groups"),
    ("window_sinks",),
    ("full_query_groups", "full_head_dim"),
    ("sandwich_norms",),
    ("ffn_hidden", "dense_layers"),
    ("gated",),
    ("experts", "topk", "expert_hidden"),
    ("moe_latent",),
    ("routing_groups", "topk_groups"),
    ("shared_expert_hidden",),
    ("shared_expert_gate",),
    ("mtp_layers", "mtp_pattern"),
    ("mtp_repeated", "mtp_dense"),
)
_VISION_LINES = (
    ("layers", "hidden", "ffn_hidden", "heads"),
    ("patch", "temporal_patch", "merge", "in_channels"),
    ("positions",),
    ("out_hidden",),
    ("final_norm", "replicated", "pooled"),
    ("deepstack",),
    ("image_tokens",),
)


def write(
    name: str,
    hf: str,
    revision: tuple[str, str] | None,
    family: str,
    table: Family,
    facts: Mapping[str, Value],
    vision: Mapping[str, Value],
) -> str:
    """Write the declaration as canonical .moe text, ending with a newline; the same facts give the same bytes.

    `revision` is a commit of the model with its source.
    """
    out = [f"# Written by `moedsl models add` from the config.json of {hf}."]
    out += [f"# {note}" for note in table.notes]
    out += [f"model {name} {{", f'  hf "{hf}"']
    out += [f'  revision "{revision[0]}"', f"    cite {revision[1]}"] if revision else []
    out += [f'  family {family} cite config "model_type"']
    text = "text_config." if table.nested else ""
    out += _block(
        _LINES, facts, {**table.facts, **table.outer}, Model, "  ", lambda fact: "" if fact in table.outer else text
    )
    if table.vision:
        out += ["  vision {"]
        of_text = {fact for fact, rule in table.vision.items() if isinstance(rule, OfText)}
        out += _block(
            _VISION_LINES, vision, table.vision, Vision, "    ", lambda f: text if f in of_text else "vision_config."
        )
        out += ["  }"]
    return "\n".join([*out, "}", ""])


def _block(
    lines: tuple[tuple[str, ...], ...],
    facts: Mapping[str, Value],
    rules: Mapping[str, Rule],
    cls: type[Any],
    indent: str,
    prefix: Callable[[str], str],
) -> Iterator[str]:
    defaults = {a.name: a.default for a in attrs.fields(cls)}
    for line in lines:
        named = [f for f in line if f in rules]
        yield from (f"{indent}# {note}" for f in named for note in _notes(rules[f], facts[f]))
        said = [f for f in named if facts[f] != defaults[f]]
        if said:
            body = indent + " ".join(f"{f} {_literal(facts[f], rules[f])}" for f in said)
            yield from _cited(body, indent, _cites([(rules[f], prefix(f)) for f in said]))


def _cited(body: str, indent: str, cites: str) -> tuple[str, ...]:
    """Write a line with its sources, which go below it if the line would be long."""
    return (f"{body} {cites}",) if len(body) + len(cites) < WIDTH else (body, f"{indent}  {cites}")


def _notes(rule: Rule, value: Value) -> tuple[str, ...]:
    return (rule.note,) if isinstance(rule, Int) and rule.note and value == 0 else ()


def _cites(rules: list[tuple[Rule, str]]) -> str:
    config = list(dict.fromkeys(prefix + key for rule, prefix in rules for key in rule.keys))
    decided = [rule for rule, _ in rules if isinstance(rule, Const | Repeated | OfMtp) and not rule.keys]
    bridge = list(dict.fromkeys(rule.bridge for rule in decided))
    said = [f'config "{", ".join(config)}"'] if config else []
    said += [f'bridge "{b}"' for b in bridge]
    said += [f'core "{rule.core}"' for rule, _ in rules if isinstance(rule, Times)]
    return f"cite {' '.join(said)}"


def _literal(value: Value, rule: Rule) -> str:
    if isinstance(rule, Pattern):
        return f'"{value}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(map(str, value)) + "]"
    return str(value)
