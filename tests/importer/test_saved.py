"""What transformers saves, and what a configuration leaves out: `moedsl models add` against the real AutoBridge."""

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import Any, cast

import attrs
import pytest

from moedsl.bridge.importer.config import declaration
from moedsl.bridge.lint.facts import Recipe, model_facts
from moedsl.facts.facts import Model
from moedsl.facts.families import family
from moedsl.support.diagnostics import Diagnostic
from tests.helpers import bridge_process, rotation
from tests.helpers.paths import ROOT
from tests.importer.test_importer import HF, facts, shipped

SAVED = ROOT / "tests" / "data" / "saved_by_transformers_5.24.json"
"""Model -> keys that its authors' file has and the stdlib's has not, and the keys that transformers 5.24.0 changes when
it saves that file, by dotted name; null is a key that it leaves out."""
GLM52 = "zai-org--GLM-5.2"
ALONE = {
    "Qwen3_5MoeForCausalLM": ("Qwen--Qwen3.5-35B-A3B", "qwen3_5_moe_text"),
    "Gemma4ForCausalLM": ("google--gemma-4-26B-A4B", "gemma4_text"),
}
"""The class of a language model without its tower -> the model with it, and the `model_type`."""


def read(config: Mapping[str, Any]) -> tuple[Model | None, tuple[Diagnostic, ...]]:
    text, found = declaration(config, "a_model", "org/model")
    return (facts(text) if text else None), found


def changed(config: Mapping[str, Any], path: str, value: Any = None) -> dict[str, Any]:
    """A copy with another value at a dotted path, without the key for None."""
    copy = deepcopy(dict(config))
    *above, key = path.split(".")
    inside = copy
    for name in above:
        inside = inside[name]
    inside.pop(key, None)
    if value is not None:
        inside[key] = value
    return copy


@cache
def published() -> Mapping[str, Mapping[str, Any]]:
    """The stdlib's configurations, and those of language models without their towers."""
    whole = {folder.parent.name: shipped(folder.parent.name) for folder in sorted(HF.glob("*/config.json"))}
    alone = {
        kind: {**whole[base]["text_config"], "architectures": [name], "model_type": kind}
        | {"tie_word_embeddings": whole[base]["tie_word_embeddings"]}
        for name, (base, kind) in ALONE.items()
    }
    return whole | alone


def ask(asked: Sequence[tuple[str, Mapping[str, Any]]], save: bool = False) -> list[dict[str, Any]]:
    questions = []
    for base, config in asked:
        kin, code = family(config["model_type"]), str(HF / base)
        questions.append(
            {"config": config, "save": save, "language": kin.language, "config_only": kin.config_only}
            | {"code": code if kin.remote_code else None}
        )
    done = bridge_process.run(str(ROOT / "tests/oracles/ask_configurations.py"), text=json.dumps(questions))
    assert done.returncode == 0, done.stderr[-4000:]
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


@pytest.mark.bridge
def test_what_the_installed_transformers_saves_has_the_same_facts() -> None:
    bases = {name: config for name, config in published().items() if name not in dict(ALONE.values()).values()}
    answers = dict(zip(bases, ask([*bases.items()], save=True), strict=True))
    built = {name: answer["saved"] for name, answer in answers.items() if "saved" in answer}
    assert {*bases} == {*built}, [answer for answer in answers.values() if "saved" not in answer]
    for name, saved in built.items():
        assert read(saved)[0] == read(bases[name])[0], (name, read(saved)[1])


@pytest.mark.parametrize("name", json.loads(SAVED.read_text()))
def test_what_transformers_5_24_saves_has_the_same_facts(name: str) -> None:
    entry = json.loads(SAVED.read_text())[name]
    config = saved = shipped(name) | entry["published"]
    for path, value in entry["saved"].items():
        saved = changed(saved, path, value)
    before, after = read(config)[0], read(saved)[0]
    assert before is not None and after == before, read(saved)[1]
    warned = {d.id for d in read(saved)[1]}
    refused = {"glm_moe_dsa", "nemotron_h", "gemma4"}
    assert warned == ({"import.unloadable"} if before.family in refused else set())


@pytest.mark.parametrize(
    ("base", "change", "fields"),
    [
        (GLM52, {"qk_rope_head_dim": 192}, {"qk_head_dim"}),  # as transformers 5.8.1 saves it
        (GLM52, {"layer_types": ["full_attention"] * 78}, {"layer_types"}),
        (GLM52, {"num_experts": 128}, {"num_experts"}),
        ("Qwen--Qwen3-30B-A3B", {"num_local_experts": 64}, {"num_local_experts"}),
        ("MiniMaxAI--MiniMax-M2.5", {"attn_type_list": [0, *[1] * 61]}, {"attn_type_list"}),
        ("deepseek-ai--DeepSeek-V3", {"num_experts_per_tok": 2}, {"topk_group"}),
        ("deepseek-ai--DeepSeek-V3", {"num_experts_per_tok": 40, "topk_group": 1}, {"num_experts_per_tok"}),
        (GLM52, {"qk_rope_head_dim": 192, "qk_head_dim": 384}, {"qk_rope_head_dim"}),
        ("MiniMaxAI--MiniMax-M2.5", {"rotary_dim": 256}, {"rotary_dim"}),
        ("Qwen--Qwen3-30B-A3B", {"eos_token_id": [151645, 151936]}, {"eos_token_id"}),
        ("LGAI-EXAONE--K-EXAONE-236B-A23B", {"sliding_window_pattern": 3}, {"sliding_window_pattern"}),
        ("stepfun-ai--Step-3.5-Flash", {"num_attention_groups": 7}, {"num_attention_groups"}),
    ],
)  # fmt: skip
def test_what_contradicts_is_refused_by_name(base: str, change: dict[str, Any], fields: set[str]) -> None:
    model, found = read(shipped(base) | change)
    assert model is None and {d.values["field"] for d in found} == fields


def test_equal_duplicates_and_uniform_layers_say_nothing_more() -> None:
    for base, more in (
        (GLM52, {"num_experts": 256, "layer_types": ["deepseek_sparse_attention"] * 78}),
        ("MiniMaxAI--MiniMax-M2.5", {"attn_type_list": [1] * 62, "num_experts": 256}),
        ("Qwen--Qwen3-30B-A3B", {"num_local_experts": 128, "layer_types": ["full_attention"] * 48}),
        ("LGAI-EXAONE--K-EXAONE-236B-A23B", {"sliding_window_pattern": 4}),  # as transformers 5.24 fills it in
        ("zai-org--GLM-4.5", {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}),
    ):
        assert read(shipped(base) | more) == read(shipped(base))


@pytest.mark.parametrize(
    ("base", "key"),
    [
        ("stepfun-ai--Step-3.5-Flash", "tie_word_embeddings"),
        ("zai-org--GLM-4.5", "num_nextn_predict_layers"),
        ("moonshotai--Kimi-K2.5", "tie_word_embeddings"),
    ],
)
def test_an_absent_key_of_two_meanings_is_told(base: str, key: str) -> None:
    _, found = read(changed(shipped(base), key))
    assert [(d.id, d.values["field"]) for d in found] == [("import.unstated", key)]


# ---------------------------------------------------------------- absent keys


def paths(config: Mapping[str, Any]) -> list[str]:
    below = [f"{key}.{k}" for key in ("text_config", "vision_config") for k in config.get(key) or ()]
    return [key for key in config if key != "model_type"] + below


def differing(model: Model, answer: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The facts that are not what the real AutoBridge built: ours, and its own."""
    made = answer["fields"]
    theirs = model_facts(
        Recipe(target="", function="", file="", line=1, hardware=cast("Any", None), world=1, fields=made,
               classes={"model": answer["class"]})
    )  # fmt: skip
    theirs |= {"routing_groups": made.get("model.moe_router_num_groups") or 1}
    theirs |= {"topk_groups": made.get("model.moe_router_group_topk") or 1}
    theirs["softcap"] = made.get("model.final_logit_softcapping") is not None
    ours = attrs.asdict(model, recurse=False)
    return {k: (ours[k], v) for k, v in theirs.items() if k in ours.keys() - {"family", "name"} and ours[k] != v}


@pytest.mark.bridge
def test_an_absent_key_is_what_the_real_autobridge_makes_of_it_or_told() -> None:
    """One key at a time, from every configuration; a part of them in a run."""
    cases = [(name, path) for name, config in published().items() for path in paths(config)]
    assert len(cases) > 1600
    drawn = rotation.some("absent keys", cases, 250)
    bases = {name: published()[name] for name, _ in drawn}
    answers = ask([*bases.items(), *((name, changed(bases[name], path)) for name, path in drawn)])
    whole = dict(zip(bases, answers, strict=False))
    for (name, path), answer in zip(drawn, answers[len(bases) :], strict=True):
        model, found = read(changed(bases[name], path))
        if model is None:
            assert any(d.is_error for d in found)
        elif "error" in answer:
            assert found, (name, path, answer["error"])
        else:
            before, after = differing(cast("Model", read(bases[name])[0]), whole[name]), differing(model, answer)
            assert after.items() <= before.items(), (name, path, after)
            tower = answer["tower"] or {}
            assert model.vision is None or vision_of(bases[name], tower) == model.vision, (name, path)


def vision_of(config: Mapping[str, Any], tower: Mapping[str, Any]) -> Any:
    """The facts of a tower with the keys that its class has filled in; as published if the class fills in nothing."""
    given = config["vision_config"]
    model, _ = read({**config, "vision_config": given | {k: v for k, v in tower.items() if k in given}})
    return model and model.vision
