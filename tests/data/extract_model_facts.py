"""Write bridge_model_facts.json: what Megatron Bridge's own recipes build for the stdlib's models that they have.

    python tests/data/extract_model_facts.py bridge_recipes.jsonl [OUT]

One entry a model: the Hugging Face id of its recipes, and for each column the values in them, the commonest first.
`moe_layer_freq` lists become the number of leading dense layers, those of `linear_attention_freq` the layers (from 1)
that have full attention.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.helpers.paths import ROOT

COLUMNS = [
    "num_moe_experts",
    "moe_router_topk",
    "num_layers",
    "hidden_size",
    "ffn_hidden_size",
    "moe_ffn_hidden_size",
    "moe_shared_expert_intermediate_size",
    "num_attention_heads",
    "num_query_groups",
    "kv_channels",
    "multi_latent_attention",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_head_dim",
    "qk_pos_emb_head_dim",
    "v_head_dim",
    "vocab_size",
    "share_embeddings_and_output_weights",
    "moe_layer_freq",
    "mtp_num_layers",
    "window_size",
    "window_attn_skip_freq",
]
OF_HYBRIDS = [
    "hybrid_layer_pattern", "mamba_num_heads", "mamba_head_dim", "mamba_state_dim", "mamba_num_groups",
    "moe_latent_size",
]  # fmt: skip
"""Columns of recipes whose model has a pattern; in the others they are Megatron's defaults."""
OF_DELTA_NETS = [
    "experimental_attention_variant", "linear_attention_freq", "linear_conv_kernel_dim", "linear_num_key_heads",
    "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
]  # fmt: skip
"""Columns of recipes whose model has gated delta nets."""
MODELS = sorted(p.stem for p in (ROOT / "stdlib" / "models").glob("*.moe"))


def extract(lines: list[str]) -> dict[str, Any]:
    rows = [row for row in map(json.loads, lines) if row["model"] in MODELS and row["load"] == "ok"]
    return {model: _model(of) for model in MODELS if (of := [row for row in rows if row["model"] == model])}


def _model(rows: list[dict[str, Any]]) -> dict[str, Any]:
    columns = COLUMNS + (OF_HYBRIDS if any(row["hybrid_layer_pattern"] for row in rows) else [])
    columns += OF_DELTA_NETS if any(row["experimental_attention_variant"] for row in rows) else []
    values = {c: Counter(json.dumps(_plain(c, row[c])) for row in rows).most_common() for c in columns}
    said = {c: [json.loads(v) for v, _ in counted] for c, counted in values.items()}
    return {"recipes": len(rows), "hf_model_id": sorted({row["hf_model_id"] for row in rows} - {None}), **said}


def _plain(column: str, value: Any) -> Any:
    if column == "window_attn_skip_freq" and isinstance(value, list):
        every = value.index(0) + 1
        assert value == [int(i % every > 0) for i in range(1, len(value) + 1)]
        return every
    if column == "linear_attention_freq" and isinstance(value, list):
        return {"layers": len(value), "full": [i for i, linear in enumerate(value, 1) if not linear]}
    if column != "moe_layer_freq" or not isinstance(value, list):
        return value
    dense = value.index(1)
    assert value == [0] * dense + [1] * (len(value) - dense)
    return {"leading_dense": dense}


def main() -> None:
    facts = extract(Path(sys.argv[1]).read_text().splitlines())
    out = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).with_name("bridge_model_facts.json")
    lines = ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in facts.items())
    out.write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
