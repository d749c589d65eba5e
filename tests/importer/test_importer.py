"""`moedsl models add`: what it imports, what it refuses, and that a refusal names the field."""

import json
import math
from copy import deepcopy
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from moedsl.bridge.importer.config import add, declaration, derived_name
from moedsl.cli.main import main
from moedsl.compiler import load_stdlib
from moedsl.facts.facts import Model
from moedsl.lang import ast
from moedsl.lang.parser import parse
from moedsl.rules import declarations
from moedsl.support.diagnostics import Diagnostic, to_json
from moedsl.support.source import Source
from tests.helpers import bridge_process, rotation
from tests.helpers.paths import ROOT
from tests.helpers.tables import table_of
from tests.oracles.count_parameters import language, vision

HF = ROOT / "stdlib" / "hf"
PUBLISHED = ROOT.parent / "shared" / "data" / "hf_configs"


def shipped(name: str) -> dict[str, Any]:
    """A fresh copy of a configuration that the stdlib ships."""
    config: dict[str, Any] = json.loads((HF / name / "config.json").read_text())
    return config


def facts(text: str) -> Model:
    module, found = parse(Source("added.moe", text))
    assert not found and module is not None
    (item,) = module.items
    assert isinstance(item, ast.ModelDecl)
    made, wrong = declarations.model(item)
    assert made is not None and not wrong, wrong
    return made


def fields(found: tuple[Diagnostic, ...]) -> set[str]:
    return {str(d.values.get("field")) for d in found if d.is_error}


QWEN, DEEPSEEK, GPT_OSS, VL, SUPER, ULTRA, NEXT, QWEN35 = (
    "Qwen--Qwen3-30B-A3B",
    "deepseek-ai--DeepSeek-V3",
    "openai--gpt-oss-120b",
    "Qwen--Qwen3-VL-30B-A3B-Instruct",
    "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-BF16",
    "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16",
    "Qwen--Qwen3-Next-80B-A3B-Instruct",
    "Qwen--Qwen3.5-35B-A3B",
)
OLMOE, MINIMAX, EXAONE = ("allenai--OLMoE-1B-7B-0125", "MiniMaxAI--MiniMax-M2.5", "LGAI-EXAONE--K-EXAONE-236B-A23B")


@pytest.mark.parametrize(("config", "named"), table_of("importer", "an architecture beyond the facts"))
def test_an_architecture_beyond_the_facts_is_refused_by_name(config: str, named: tuple[str, ...]) -> None:
    """One error for one cause; its help names the keys that no declaration states."""
    text, (found,) = declaration(json.loads(config), None, "org/name")
    assert text is None and found.values["field"] == "model_type"
    assert all(key in " ".join(found.help) for key in named if key != "model_type")


def test_leading_dense_layers_are_refused_for_what_bridge_builds() -> None:
    """Bridge reads no list of dense layers for this family: leading ones are no better than others."""
    text, found = declaration(shipped(QWEN) | {"mlp_only_layers": [0]}, None, "org/name")
    assert text is None and "experts in every layer" in found[0].message


MANY: list[tuple[str, str, Any]] = [
    (GPT_OSS, "layer_types", ["full_attention"] * 36),
    (GPT_OSS, "layer_types", ["sliding_attention", "full_attention"] * 17),
    (EXAONE, "layer_types", ["full_attention"] * 48),
    (EXAONE, "layer_types", ["full_attention", *["sliding_attention"] * 47]),
    (EXAONE, "mlp_layer_types", ["sparse", "dense", *["sparse"] * 46]),
    (SUPER, "hybrid_override_pattern", "M+" * 44),
    (SUPER, "hybrid_override_pattern", "MGE*" * 22),
    (SUPER, "hybrid_override_pattern", "M*" * 44),
    (NEXT, "layer_types", (["linear_attention"] * 3 + ["full_attention"]) * 11),
    (NEXT, "layer_types", ["linear_attention"] * 48),
    (NEXT, "layer_types", ["full_attention"] * 48),
    (NEXT, "layer_types", (["full_attention"] + ["linear_attention"] * 3) * 12),
    (NEXT, "layer_types", (["sliding_attention"] * 3 + ["full_attention"]) * 12),
    (NEXT, "layer_types", [["linear_attention"]] * 48),
]
"""Values of one entry for each layer."""


@pytest.mark.parametrize(
    ("base", "field", "value"),
    [*table_of("importer", "one field that is not understood"), *((b, f, json.dumps(v)) for b, f, v in MANY)],
)
def test_one_field_that_is_not_understood_is_refused_by_name(base: str, field: str, value: str) -> None:
    config = shipped(base)
    *parents, key = field.split(".")
    inside = config
    for parent in parents:
        inside = inside[parent]
    inside.pop(key, None)
    if value:
        inside[key] = json.loads(value)
    text, found = declaration(config, None, "org/name")
    assert text is None
    assert fields(found) == {field}
    assert all(field in d.message for d in found)


@pytest.mark.parametrize(
    ("key", "value"), [("torch_dtype", "float16"), ("rope_theta", 1), ("_attn_implementation", "x"), ("new", None)]
)
def test_what_changes_no_shape_changes_no_declaration(key: str, value: Any) -> None:
    before, _ = declaration(shipped(QWEN), None, "Qwen/Qwen3-30B-A3B")
    after, found = declaration(shipped(QWEN) | {key: value}, None, "Qwen/Qwen3-30B-A3B")
    assert after == before and not found


@pytest.mark.parametrize(("base", "scaling", "positions"), table_of("importer", "position embedding"))
def test_position_embedding_is_as_bridge_reads_it(base: str, scaling: dict[str, Any], positions: str) -> None:
    declared, found = declaration(shipped(base) | scaling, "a_model", "org/model")
    assert declared is not None and not found
    assert facts(declared).position_embedding_type == positions


OF_HUGGING_FACE = """
import importlib, json, sys
module, _, name = sys.argv[1].rpartition(".")
made = getattr(importlib.import_module(f"transformers.models.{module}"), name)(**json.load(sys.stdin))
names = ("layers_block_type", "hybrid_override_pattern", "mtp_hybrid_override_pattern", "layer_types")
print(json.dumps({n: getattr(made, n, None) for n in names}))
"""


def of_hugging_face(name: str, config: dict[str, Any]) -> dict[str, Any]:
    """The layers that a class of transformers makes of a configuration."""
    done = bridge_process.run("-c", OF_HUGGING_FACE, name, text=json.dumps(config))
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(json.loads(done.stdout))


@pytest.mark.bridge
@pytest.mark.parametrize(
    ("base", "listed"), [(SUPER, "layers_block_type"), (ULTRA, "hybrid_override_pattern")], ids=["list", "letters"]
)
def test_a_pattern_is_letters_or_a_list_of_blocks(base: str, listed: str) -> None:
    """Hugging Face's own class turns one into the other."""
    published = shipped(base)
    theirs = of_hugging_face("nemotron_h.configuration_nemotron_h.NemotronHConfig", published)
    keys = {key: theirs[key] for key in ("layers_block_type", "hybrid_override_pattern")}
    without = {k: v for k, v in published.items() if k not in keys}
    text, found = declaration(without, "a_model", "org/model")
    assert text is None and all(any(key in d.message for d in found) for key in keys)
    for config in (published, without | {listed: keys[listed]}, without | keys):
        text, found = declaration(config, "a_model", "org/model")
        assert text is not None and not found
        m = facts(text)
        assert (m.layer_pattern, m.layers) == (theirs["hybrid_override_pattern"], len(theirs["layers_block_type"]))
        assert m.mtp_pattern == theirs["mtp_hybrid_override_pattern"]
    text, found = declaration(without | keys | {"hybrid_override_pattern": "ME" * 20}, "a_model", "org/model")
    assert text is None and "hybrid_override_pattern" in fields(found)


def test_a_hybrid_without_mtp_has_no_blocks_of_it() -> None:
    """Hugging Face's class gives a pattern to every model; Bridge reads it where there are depths of MTP."""
    config = shipped(SUPER) | {"num_nextn_predict_layers": 0}
    text, _ = declaration(config, "a_model", "org/model")
    assert text is not None
    m = facts(text)
    assert (m.mtp_layers, m.mtp_pattern, m.mtp_repeated) == (0, "", False)
    text, _ = declaration(shipped(SUPER) | {"mtp_use_repeated_layer": False}, "a_model", "org/model")
    assert text is not None and not facts(text).mtp_repeated and facts(text).mtp_layers == 1


LISTED = {"full_attention_interval": None, "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 12}


@pytest.mark.parametrize(
    ("said", "cited"), [({}, "full_attention_interval"), (LISTED, "layer_types")], ids=["interval", "list"]
)
def test_full_attention_is_counted_or_listed(said: dict[str, Any], cited: str) -> None:
    """Newer configurations have the list alone."""
    text, found = declaration(shipped(NEXT) | said, "a_model", "org/model")
    assert text is not None and not found
    assert f'linear_every 4 cite config "{cited}"' in text and facts(text).linear_every == 4


@pytest.mark.bridge
@pytest.mark.parametrize("every", [2, 3, 4, 6])
def test_a_list_means_the_interval_that_hugging_face_makes_it_of(every: int) -> None:
    config = shipped(NEXT) | {"full_attention_interval": every}
    theirs = of_hugging_face("qwen3_next.configuration_qwen3_next.Qwen3NextConfig", config)
    for said in ({"full_attention_interval": None}, {}):
        text, _ = declaration(config | said | {"layer_types": theirs["layer_types"]}, "a_model", "org/model")
        assert text is not None and facts(text).linear_every == every


def test_mtp_repeats_a_layer_of_full_attention() -> None:
    """Without MTP the last layers may have none."""
    config = shipped(NEXT) | {"full_attention_interval": 5}
    assert fields(declaration(config, "a_model", "org/model")[1]) == {"full_attention_interval"}
    text, _ = declaration(config | {"mtp_num_hidden_layers": 0}, "a_model", "org/model")
    assert text is not None and (facts(text).linear_every, facts(text).mtp_layers) == (5, 0)


def test_what_a_configuration_leaves_out_comes_from_nvidia_s_code() -> None:
    """MTP of Qwen3-Next from Bridge's recipe; the width of dense layers of Qwen3.5, which has none, from Megatron."""
    next_, qwen35 = shipped(NEXT), shipped(QWEN35)
    text, _ = declaration(next_, "a_model", "org/model")
    assert text is not None and 'mtp_layers 1 cite bridge "recipes/qwen/h100/qwen3_next.py:' in text
    text, _ = declaration(next_ | {"mtp_num_hidden_layers": 2}, "a_model", "org/model")
    assert text is not None and 'mtp_layers 2 cite config "mtp_num_hidden_layers"' in text
    text, _ = declaration(qwen35, "a_model", "org/model")
    assert text is not None and facts(text).ffn_hidden == 4 * qwen35["text_config"]["hidden_size"]
    qwen35["text_config"]["intermediate_size"] = 5632
    text, _ = declaration(qwen35, "a_model", "org/model")
    assert text is not None and 'ffn_hidden 5632 cite config "text_config.intermediate_size"' in text


def test_the_language_model_of_a_vlm_is_a_family_of_its_own() -> None:
    """Qwen3.5 without its tower: the same facts, positions apart."""
    whole = shipped(QWEN35)
    text, found = declaration(whole["text_config"], "a_model", "org/model")
    seen, _ = declaration(whole, "a_model", "org/model")
    assert text is not None and not found and seen is not None
    alone, vlm = facts(text), facts(seen)
    assert vlm.vision is not None and (alone.family, alone.position_embedding_type) == ("qwen3_5_moe_text", "rope")
    assert evolve(vlm, vision=None, family=alone.family, position_embedding_type="rope") == alone


def test_several_mistakes_are_all_told() -> None:
    config = shipped(QWEN) | {"num_experts": "many", "index_topk": 1, "decoder_sparse_step": 2}
    _, found = declaration(config, "9 lives", "org/name")
    assert fields(found) == {"num_experts", "index_topk", "decoder_sparse_step", "None"}


def test_families_without_a_bridge_are_imported_with_a_warning() -> None:
    mixtral = {
        "model_type": "mixtral", "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
        "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "num_local_experts": 8, "vocab_size": 32000, "max_position_embeddings": 32768, "sliding_window": None,
        "tie_word_embeddings": False,
    }  # fmt: skip
    text, found = declaration(mixtral, None, "mistralai/Mixtral-8x7B-v0.1")
    assert text is not None and [d.id for d in found] == ["import.no_bridge"]
    assert facts(text).name == "mixtral_8x7b_v0_1"
    assert language(facts(text)) == 46_702_792_704


def test_qwen2_moe_has_a_gated_shared_expert_and_qkv_bias() -> None:
    qwen2 = {
        "model_type": "qwen2_moe", "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 5632,
        "num_attention_heads": 16, "num_experts": 60, "num_experts_per_tok": 4, "num_hidden_layers": 24,
        "num_key_value_heads": 16, "vocab_size": 151936, "max_position_embeddings": 8192,
        "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "use_sliding_window": False,
        "sliding_window": 32768, "decoder_sparse_step": 1, "tie_word_embeddings": False,
    }  # fmt: skip
    text, _ = declaration(qwen2, None, "Qwen/Qwen1.5-MoE-A2.7B")
    assert text is not None and facts(text).shared_expert_gate and facts(text).qkv_bias
    assert language(facts(text)) == 14_315_784_192


def test_names() -> None:
    assert derived_name("org/Some-Model.5B") == "some_model_5b"
    assert derived_name("org/123") == "model_123"
    for bad in ("a b", "3d", "é"):
        assert declaration(shipped(QWEN), bad, "Qwen/Qwen3-30B-A3B")[0] is None
    text, _ = declaration(shipped(QWEN), "mine", "Qwen/Qwen3-30B-A3B")
    assert text is not None and facts(text).name == "mine"


# ---------------------------------------------------------------- files


def save(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
    return path


def test_the_id_comes_from_the_file_or_its_place(tmp_path: Path) -> None:
    wrapped = {"_meta": {"hf_id": "Qwen/Qwen3-30B-A3B"}, "config": shipped(QWEN)}
    cases = {
        "Qwen/Qwen3-30B-A3B": save(tmp_path / "x.json", wrapped),
        "acme/big": save(tmp_path / "acme--big" / "config.json", shipped(QWEN)),
        "acme/small": save(tmp_path / "acme__small.json", shipped(QWEN)),
        str(tmp_path / "local"): save(tmp_path / "local" / "config.json", shipped(QWEN)),
    }
    for hf, path in cases.items():
        text, found = add(path)
        assert text is not None and facts(text).hf == hf, found
    assert [d.id for d in add(save(tmp_path / "y.json", shipped(QWEN)))[1]] == ["import.no_id"]
    text, _ = add(tmp_path / "y.json", hf="a/b")
    assert text is not None and facts(text).name == "b"
    text, _ = add(tmp_path / "y.json", "ours", hf="a/b")
    assert text is not None and facts(text).name == "ours"


def test_tags_of_fine_tuned_configurations_change_nothing() -> None:
    tags = {
        "unsloth_fixed": True,
        "unsloth_version": "2025.6.1",
        "_attn_implementation_autoset": True,
        "pad_token": "x",
    }
    assert declaration(shipped(QWEN) | tags, "x", "a/x") == declaration(shipped(QWEN), "x", "a/x")


def test_an_unknown_field_is_ignored_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(save(tmp_path / "ORG--NAME" / "config.json", shipped(QWEN) | {"our_note": "x", "our_tag": 3}))
    assert main(["models", "add", path]) == 1
    assert "`--ignore our_note`" in capsys.readouterr().err
    assert main(["models", "add", path, "--ignore", "our_note"]) == 1
    assert "our_note" not in capsys.readouterr().err
    assert main(["models", "add", path, "--ignore", "our_note", "--ignore", "our_tag"]) == 0
    assert facts(capsys.readouterr().out).experts == 128
    assert main(["models", "add", path, "--ignore", "our_noet"]) == 1
    assert "--ignore our_noet: the configuration has no such field" in capsys.readouterr().err
    assert main(["models", "add", path, "--ignore", "our_note,our_tag"]) == 1
    assert "pass `--ignore` once for each field" in capsys.readouterr().err
    assert main(["models", "add", path, "--ignore", "our_note", "--ignore", "our_tag", "--name", "2-Our"]) == 1
    assert "pass `--name model_2_our`" in capsys.readouterr().err


@pytest.mark.parametrize("field", ["swa_head_dim", "kda_heads", "text_config.mamba_heads"])
def test_an_architecture_cannot_be_ignored(field: str) -> None:
    outer, _, key = field.rpartition(".")
    config = shipped(VL if outer else QWEN)
    (config[outer] if outer else config)[key] = 4
    text, found = declaration(config, "x", "a/x", ignored=[field])
    assert text is None and fields(found) == {field}


def test_windowed_layers_are_not_called_state_space() -> None:
    config = {"model_type": "step5", "hybrid_layer_pattern": [0, 1, 1], "swa_head_dim": 192}
    said = " ".join(text for d in declaration(config, "x", "a/x")[1] for text in d.help)
    assert "windowed" in said and "state-space" not in said


def test_a_model_that_is_built_in_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(save(tmp_path / "Qwen--Qwen3-30B-A3B" / "config.json", shipped(QWEN)))
    assert main(["models", "add", path]) == 0
    err = capsys.readouterr().err
    assert "`qwen3_30b_a3b` is a model of the standard library" in err and "--name" in err
    assert main(["models", "add", path, "--name", "mine"]) == 0
    assert capsys.readouterr().err == ""


def test_a_file_in_the_hubs_cache_tells_its_commit(tmp_path: Path) -> None:
    commit = "0123456789abcdef" * 2 + "01234567"
    path = save(tmp_path / "hub" / "models--acme--big" / "snapshots" / commit / "config.json", shipped(QWEN))
    text, found = add(path)
    assert text is not None, found
    assert (facts(text).hf, facts(text).revision) == ("acme/big", commit)
    text, _ = add(path, hf="acme/other")
    assert text is not None and facts(text).revision == ""


def test_a_refusal_points_at_the_key(tmp_path: Path) -> None:
    config = shipped(VL)
    config["text_config"]["hidden_act"] = "relu"
    path = save(tmp_path / "a--b" / "config.json", config)
    (found,) = add(path)[1]
    source = Source(str(path), path.read_text())
    (label,) = to_json(found, {source.name: source})["labels"]
    assert label["source"].strip() == '"hidden_act": "relu",'
    assert path.read_text()[found.labels[0].span.start : found.labels[0].span.end] == '"hidden_act"'


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "3", "null", '"text"', "[" * 100_000, "{}", "nan", "\x00", '{"config": 3}']
)
def test_a_file_that_is_no_configuration_is_an_error(tmp_path: Path, content: str) -> None:
    text, found = add(save(tmp_path / "a--b" / "config.json", content))
    assert text is None and all(d.is_error for d in found) and found


def test_unreadable_files_are_errors(tmp_path: Path) -> None:
    binary, huge = tmp_path / "a--b.json", tmp_path / "c--d.json"
    binary.write_bytes(b"\xff\xfe\x00{")
    huge.write_bytes(b" " * (5 << 20))
    for path in (binary, huge, tmp_path, tmp_path / "nowhere.json"):
        assert [d.id for d in add(path)[1]] == ["import.unreadable"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=rotation.examples(150), deadline=None)
@given(st.sampled_from([QWEN, DEEPSEEK, GPT_OSS, VL, SUPER, ULTRA, NEXT, QWEN35]), st.data())
def test_any_damage_gives_a_declaration_or_an_error(base: str, data: st.DataObject) -> None:
    config = shipped(base)
    inside = (
        config[data.draw(st.sampled_from(["text_config", "vision_config"]))]
        if base in (VL, QWEN35) and data.draw(st.booleans())
        else config
    )
    inside[data.draw(st.sampled_from(sorted(inside)) | st.text(max_size=8))] = data.draw(json_values)
    text, found = declaration(config, None, "org/name")
    assert (text is None) == any(d.is_error for d in found)


ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**70, math.inf, math.nan, "", "x", [], [1], [1.5], ["a"], [None], [[]], [{}], [[["a"]]], {},
    {"a": {}}, {"x": [{}]},
)  # fmt: skip
"""Values that some reader of a field may not expect: of each type, and lists of what has no hash."""


def test_an_odd_value_in_any_place_gives_a_declaration_or_an_error() -> None:
    """In each field of each configuration, at the top and one level below; a part of them in a run."""
    bases = {folder.name: shipped(folder.name) for folder in sorted(HF.iterdir()) if (folder / "config.json").exists()}
    places = [(base, (key,)) for base, config in bases.items() for key in config]
    places += [(base, (key, below)) for base, (key,) in places if isinstance(bases[base][key], dict)
               for below in bases[base][key]]  # fmt: skip
    for (base, path), value in rotation.some("odd fields", [*product(places, ODD)], 600):
        config = deepcopy(bases[base])
        (config if len(path) == 1 else config[path[0]])[path[-1]] = value
        text, found = declaration(config, None, "org/name")
        assert (text is None) == any(d.is_error for d in found), (base, path, value)


# ---------------------------------------------------------------- every published configuration at hand


def test_every_published_configuration_is_imported_exactly_or_refused_by_field() -> None:
    if not PUBLISHED.is_dir():
        pytest.skip("../shared/data/hf_configs is not here")
    paths = sorted(PUBLISHED.glob("*.json"))
    assert len(paths) == 39
    imported = [path.stem for path in paths if _imported_exactly(path)]
    assert len(imported) == 34, imported


def _imported_exactly(path: Path) -> bool:
    text, found = add(path)
    if text is None:
        assert fields(found) and all(d.labels for d in found), path.stem
        return False
    m, published = facts(text), json.loads(path.read_text())["_meta"]["params"]
    if published is None:  # transformers has no class of it; tests/verify compares it with what Megatron builds
        return True
    seen = vision(m) if published["cls"].endswith("ForConditionalGeneration") else 0
    left_out = _beside_m3(path) if m.family == "minimax_m3_vl" else 0
    assert language(m) + seen + left_out == published["total"], path.stem
    return True


def _beside_m3(path: Path) -> int:
    """The parameters of MiniMax-M3 that Bridge's recipes do not build: the tower, the two MLPs of its projector, and the
    indexers of sparse attention (transformers models/minimax_m3_vl/modeling_minimax_m3_vl.py)."""
    whole = json.loads(path.read_text())
    config, wide, tower, merged = whole["config"], whole["config"]["hidden_size"], 1280, 4
    sparse = config["sparse_attention_config"]
    heads, dim = sparse["sparse_num_index_heads"], sparse["sparse_index_dim"]
    indexer = wide * (heads + 1) * dim + 2 * dim
    projector = sum(wide * width + wide for width in (tower, wide, merged * wide, wide))
    return whole["_meta"]["params"]["vision"] + projector + sum(sparse["sparse_attention_freq"]) * indexer


def test_minimax_m3_is_the_same_in_the_file_of_the_hub_and_in_a_flat_one() -> None:
    """NVIDIA's aiconfigurator caches the language model alone; the hub's has it in `text_config`."""
    whole = shipped("MiniMaxAI--MiniMax-M3")
    texts = [
        declaration(c, "m", "MiniMaxAI/MiniMax-M3")[0]
        for c in (whole, {**whole["text_config"], "model_type": "minimax_m3"})
    ]
    nested, flat = (facts(t or "") for t in texts)
    assert nested == flat and nested.family == "minimax_m3_vl"


def test_the_shape_of_the_windows_of_step35_is_stated_or_bridges() -> None:
    whole = shipped("stepfun-ai--Step-3.5-Flash")
    shape = {
        "attention_type": "sliding_attention",
        "num_attention_heads": 80,
        "num_attention_groups": 4,
        "head_dim": 128,
    }
    said, more = (
        facts(declaration(c, "m", "stepfun-ai/Step-3.5-Flash")[0] or "")
        for c in (whole, {**whole, "attention_other_setting": shape, "use_qk_norm": True})
    )
    assert (said.window_heads, said.window_query_groups, said.dense_layers) == (96, 8, 3)
    assert (more.window_heads, more.window_query_groups, more.qk_norm) == (80, 4, True)


LONG = json.dumps({"layer_types": ["sliding_attention", "full_attention"] * 24})


@pytest.mark.parametrize(
    ("base", "changed", "field"),
    [*table_of("importer", "another of a kind"), ("stepfun-ai--Step-3.5-Flash", LONG, "layer_types")],
)
def test_another_of_a_kind_is_refused_by_field(base: str, changed: str, field: str) -> None:
    config = shipped(base)
    (config["text_config"] if field.startswith("text_config.") else config).update(json.loads(changed))
    text, found = declaration(config, "m", base.replace("--", "/"))
    assert text is None and field in fields(found)


def test_a_folder_names_its_model_whatever_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A configuration that says no id: its folder's name, and its path from any working directory."""
    folder = tmp_path / "Our-MoE"
    folder.mkdir()
    config = {k: v for k, v in shipped(QWEN).items() if k not in ("_meta", "_name_or_path")}
    (folder / "config.json").write_text(json.dumps(config.get("config", config)))
    monkeypatch.chdir(folder)
    assert main(["models", "add", "config.json"]) == 0
    printed = capsys.readouterr().out
    assert main(["models", "add", "config.json", "-o", "odd.moe"]) == 0
    assert (folder / "odd.moe").read_text() == printed
    made = facts(printed)
    assert (made.name, made.hf) == ("our_moe", str(folder))


@pytest.mark.parametrize(
    ("argument", "help"),
    [
        ("folder", "folder/config.json`"),
        ("empty", "config.json"),
        ("Qwen/Qwen9-30B-A3B", "pass --hf Qwen/Qwen9"),
        ("qwen9_30b_a3b", "nothing is downloaded"),
        ("qwen3_30b_a3b", "built in: a run names it, `qwen3_30b_a3b`"),
        ("Qwen/Qwen3-30B-A3B", "built in: a run names it, `qwen3_30b_a3b`"),
    ],
)
def test_what_is_no_file_is_answered_with_what_to_name(
    argument: str, help: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "folder" / "config.json").write_text("{}")
    text, found = add(Path(argument), known=load_stdlib().models)
    assert text is None and [d.id for d in found] == ["import.unreadable"]
    assert any(help in h for h in found[0].help), found
