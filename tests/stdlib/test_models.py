"""The stdlib's models and hardware, against Megatron Bridge's own recipes, published totals, and the importer."""

import json
from pathlib import Path
from typing import Any

import pytest

from moedsl.bridge.importer.config import add
from moedsl.compiler import load_stdlib
from moedsl.facts.facts import Hardware, Model
from moedsl.lang import ast
from moedsl.lang.parser import parse
from moedsl.rules import declarations
from moedsl.support.source import Source
from tests.helpers.paths import DATA, ROOT
from tests.helpers.tables import table_of
from tests.oracles.count_parameters import language, megatron_only, mtp, vision

MODELS = sorted((ROOT / "stdlib" / "models").glob("*.moe"))
GPUS = sorted((ROOT / "stdlib" / "hardware").glob("*.moe"))
BRIDGE: dict[str, Any] = json.loads((DATA / "bridge_model_facts.json").read_text())


def declaration(path: Path, kind: type[Any]) -> Any:
    module, found = parse(Source(path.name, path.read_text()))
    assert not found and module is not None
    (item,) = module.items
    assert isinstance(item, kind)
    return item


def model(path: Path) -> Model:
    made, found = declarations.model(declaration(path, ast.ModelDecl))
    assert made is not None and not found, found
    return made


def hardware(path: Path) -> Hardware:
    made, found = load_stdlib().gpu(path.stem)
    assert made is not None and not found, found
    return made


def config_of(m: Model) -> Path:
    return ROOT / "stdlib" / "hf" / m.hf.replace("/", "--") / "config.json"


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_importing_again_leaves_no_difference(path: Path) -> None:
    text, found = add(config_of(model(path)))
    assert not [d for d in found if d.id != "import.unstated"]  # Step-3.5's stand-in has no tie_word_embeddings
    assert text == path.read_text()


# What the recipes have beside the model's own value, and why.
EXPLAINED = {
    # models/deepseek_v3's two partial_cg_dev recipes set kv_channels themselves; latent attention does not read it.
    ("deepseek_v3", "kv_channels"): [128],
    # Fine-tuning keeps all 163,842 rows of the tokenizer, padded to TP: recipes/moonlight/h100/moonlight_16b.py:54.
    ("moonlight_16b", "vocab_size"): [163842, 163844],
    # Its MLPerf recipes train with Llama 3.1's tokenizer: perf_recipes/gpt_oss/common.py:134.
    ("gpt_oss_20b", "vocab_size"): [128256],
    # Pre-training takes the tokenizer's vocabulary: recipes/nemotronh/h100/nemotron_3_nano.py:78 states none.
    ("nemotron_3_nano", "vocab_size"): [None],
    ("nemotron_3_5_lightning", "vocab_size"): [None],
    # No key of the configuration names the checkpoint's MTP layer; fine-tuning leaves it away, pre-training has it:
    # recipes/qwen/h100/qwen3_next.py:63.
    ("qwen3_next_80b_a3b", "mtp_num_layers"): [None],
}
# What the recipes train in place of the model's own value.
REPLACED = {
    # They make the provider themselves: recipes/olmoe/h100/olmoe_7b.py.
    ("olmoe_7b", "hf_model_id"): [],
    # Two depths of the one repeated layer: recipes/nemotronh/h100/nemotron_3_super.py:98, perf_recipes/nemotronh.
    **{(f"nemotron_3_{size}", "mtp_num_layers"): [2] for size in ("super", "ultra", "5_lightning")},
    # No layer has a dense MLP and the configuration no width for one, until core transformer/transformer_config.py:1330.
    **{(f"qwen35_vl_{size}", "ffn_hidden_size"): [None] for size in ("35b_a3b", "122b_a10b", "397b_a17b")},
}


def megatron(m: Model) -> dict[str, Any]:
    """The facts under the names of Megatron's fields."""
    mla = m.attention == "mla"
    return {
        "hf_model_id": m.hf,
        "num_layers": m.layers,
        "hidden_size": m.hidden,
        "ffn_hidden_size": m.ffn_hidden,
        "moe_ffn_hidden_size": m.expert_hidden,
        "moe_shared_expert_intermediate_size": m.shared_expert_hidden or None,
        "num_moe_experts": m.experts,
        "moe_router_topk": m.topk,
        "num_attention_heads": m.heads,
        "num_query_groups": m.query_groups,
        "kv_channels": m.head_dim,
        "multi_latent_attention": mla,
        "q_lora_rank": m.q_lora_rank or None,
        "kv_lora_rank": m.kv_lora_rank if mla else None,
        "qk_head_dim": m.qk_nope_dim if mla else None,
        "qk_pos_emb_head_dim": m.qk_rope_dim if mla else None,
        "v_head_dim": m.v_head_dim if mla else None,
        "vocab_size": m.vocab,
        "share_embeddings_and_output_weights": m.tied_embeddings,
        "moe_layer_freq": {"leading_dense": m.dense_layers} if m.dense_layers else 1,
        "mtp_num_layers": m.mtp_layers if m.hybrid else m.mtp_layers or None,
        "window_size": [m.window - 1, 0] if m.window else None,
        "window_attn_skip_freq": m.window_every or None,
        **(hybrid(m) if m.hybrid else {}),
        **(delta_nets(m) if m.linear else {}),
    }


def hybrid(m: Model) -> dict[str, Any]:
    return {
        "hybrid_layer_pattern": m.layer_pattern,
        "mamba_num_heads": m.mamba_heads,
        "mamba_head_dim": m.mamba_head_dim,
        "mamba_state_dim": m.mamba_state,
        "mamba_num_groups": m.mamba_groups,
        "moe_latent_size": m.moe_latent or None,
    }


def delta_nets(m: Model) -> dict[str, Any]:
    return {
        "experimental_attention_variant": "gated_delta_net",
        "linear_attention_freq": {"layers": m.layers, "full": [*range(m.linear_every, m.layers + 1, m.linear_every)]},
        "linear_conv_kernel_dim": 4,
        "linear_num_key_heads": m.linear_key_heads,
        "linear_num_value_heads": m.linear_value_heads,
        "linear_key_head_dim": m.linear_key_dim,
        "linear_value_head_dim": m.linear_value_dim,
    }


@pytest.mark.parametrize("name", BRIDGE)
def test_facts_are_what_bridge_builds(name: str) -> None:
    said, built = megatron(model(ROOT / "stdlib" / "models" / f"{name}.moe")), BRIDGE[name]
    assert set(said) == set(built) - {"recipes"}
    for column, value in said.items():
        if (name, column) in REPLACED:
            assert built[column] == REPLACED[name, column], column
            continue
        others = [v for v in built[column] if v != value]
        assert value in built[column] and sorted(others) == EXPLAINED.get((name, column), []), column


# Parameters without MTP, as Hugging Face's own classes count them on the meta device (transformers 5.12.1).
PUBLISHED = table_of("stdlib", "models: published")


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_facts_give_the_published_total(path: Path) -> None:
    m = model(path)
    assert language(m) + vision(m) == PUBLISHED[path.stem]


# Unique parameters of the model that Megatron Bridge's _create_model builds on the meta device, all pipeline stages.
BUILT = table_of("stdlib", "models: built")


@pytest.mark.parametrize("name", BUILT)
def test_facts_give_the_total_that_megatron_builds(name: str) -> None:
    m = model(ROOT / "stdlib" / "models" / f"{name}.moe")
    assert language(m) + vision(m) + mtp(m) + megatron_only(m) == BUILT[name]


def test_gpt_oss_window_alternates_as_published() -> None:
    m = model(ROOT / "stdlib" / "models" / "gpt_oss_120b.moe")
    types = json.loads(config_of(m).read_text())["layer_types"]
    full = [i for i, t in enumerate(types, 1) if t == "full_attention"]
    assert full == [i for i in range(1, m.layers + 1) if i % m.window_every == 0]


# ---------------------------------------------------------------- hardware

# Compute capability, device name, SMs and NVLink domain, as Megatron Bridge on a real machine of each kind sees them.
DEVICES = table_of("stdlib", "models: devices")
FORMATS = {
    "ampere": {"bf16"},
    "hopper": {"bf16", "fp8"},
    "blackwell": {"bf16", "fp8", "mxfp8", "nvfp4"},
    "rubin": {"bf16", "fp8", "mxfp8", "nvfp4"},
}


def test_every_gpu_is_declared() -> None:
    assert {p.stem for p in GPUS} == set(DEVICES)


@pytest.mark.parametrize("path", GPUS, ids=lambda p: p.stem)
def test_hardware_facts(path: Path) -> None:
    h = hardware(path)
    assert (h.capability, h.device, h.memory / 1e9, h.sms, h.nvlink_domain) == DEVICES[path.stem]
    assert h.arch == {8.0: "ampere", 9.0: "hopper", 10.7: "rubin"}.get(h.capability, "blackwell")
    assert h.gpus_per_node == {"gh200": 1, "gh200_nvl2": 2, "gb200": 4, "gb300": 4, "vr200": 4}.get(path.stem, 8)
    assert 1.5e12 < h.hbm < 23e12 and h.network < h.nvlink < h.hbm


@pytest.mark.parametrize("path", GPUS, ids=lambda p: p.stem)
def test_every_hardware_fact_has_its_source(path: Path) -> None:
    decl = declaration(path, ast.HardwareDecl)
    assert {e.name.id for e in decl.facts} == set(hardware(path).sources)


@pytest.mark.parametrize("path", GPUS, ids=lambda p: p.stem)
def test_rates_are_dense_and_of_formats_that_the_gpu_has(path: Path) -> None:
    h = hardware(path)
    assert set(h.tflops) == FORMATS[h.arch]
    if h.arch in ("hopper", "blackwell"):
        assert h.tflops["fp8"] / h.tflops["bf16"] == pytest.approx(2, rel=1e-2)
    if h.arch == "blackwell":
        assert h.tflops["bf16"] == (2500 if h.nvlink_domain == 72 else 2250)
        assert h.tflops["nvfp4"] / h.tflops["fp8"] == (3 if h.capability == 10.3 else 2)
