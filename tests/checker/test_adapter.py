"""`adapter`: its options, their mistakes, and the fields of Bridge that they are."""

from __future__ import annotations

import json

import pytest

from moedsl.compiler import compile_source
from moedsl.facts import fine_tuning
from moedsl.facts.fields import lookup
from moedsl.facts.fine_tuning import EXPERTS, METHODS, TARGETS, Adapter
from moedsl.support.source import Source

BASE = "qwen3_30b_a3b; h100 x 8; task peft; "


def checked(text: str) -> tuple[Adapter | None, list[str]]:
    result = compile_source(Source("run.moe", text), "check")
    errors = [f"{d.id}: {d.message}" for d in result.diagnostics if d.is_error]
    return (result.programs[0].adapter if not errors else None), errors


def test_the_default_is_that_of_bridges_common_function() -> None:
    made, _ = checked(BASE)
    four = frozenset(("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"))
    assert made == Adapter("lora", 32, 32, 0.0, four, "shared")


def test_every_option_is_read() -> None:
    made, _ = checked(
        BASE
        + "adapter lora rank=8 alpha=16 dropout=0.1 targets=[linear_qkv, router] experts=each normalized=on regather=on"
    )
    assert made == Adapter("lora", 8, 16, 0.1, frozenset(("linear_qkv", "router")), "each", True, True)
    assert checked(BASE + "adapter lora dropout=5%")[0] == checked(BASE + "adapter lora dropout=0.05")[0]


def test_another_method_has_its_own_defaults() -> None:
    dora, canonical = (checked(BASE + f"adapter {m}")[0] for m in ("dora", "canonical_lora"))
    assert dora is not None and dora.alpha == 64
    assert canonical is not None and "linear_q" in canonical.targets and "linear_qkv" not in canonical.targets


MISTAKES = {
    "adapter dora experts=outer": "check.adapter: dora has no `experts=outer` in Bridge",
    "adapter canonical_lora experts=outer": "check.adapter: canonical_lora has no `experts=outer` in Bridge",
    "adapter lorax": "check.unknown_word: an adapter is one of lora, dora, canonical_lora, not `lorax`",
    "adapter lora rang=8": "check.adapter: an adapter has no `rang`",
    "adapter lora rank=8 rank=16": "check.twice: `rank` is stated twice",
    "adapter lora rank=0": "check.type: `rank` is a whole number from 1 to 8192",
    "adapter lora rank=8.5": "check.type: `rank` is a whole number from 1 to 8192",
    "adapter lora rank=-1": "check.type: `rank` is a whole number from 1 to 8192",
    "adapter lora dropout=1": "check.type: `dropout` is a share below 1",
    "adapter lora targets=linear_qkv": "check.type: `targets` is a list of modules",
    "adapter lora targets=[]": "check.type: `targets` is a list of modules",
    "adapter lora targets=[linear_qkv, attn]": "check.unknown_word: no module that takes an adapter is called `attn`",
    "adapter lora targets=[in_proj]": "check.adapter: this adapter trains nothing of qwen3_30b_a3b: it has no in_proj that "
    "it adapts",
    "adapter lora targets=[linear_fc1] experts=none": "check.adapter: this adapter trains nothing of qwen3_30b_a3b: it has no "
    "linear_fc1 that it adapts",
    "adapter lora targets=[linear_q]": "check.adapter: lora does not know `linear_q`",
    "adapter canonical_lora targets=[linear_qkv]": "check.adapter: canonical_lora does not know `linear_qkv`",
    "adapter lora experts=all": "check.type: `experts` is one of shared, each, outer, none",
    "adapter lora normalized=yes": "check.type: `normalized` is on or off",
    "adapter dora normalized=on": "check.adapter: dora has no `normalized` in Bridge",
    "adapter canonical_lora regather=on": "check.adapter: canonical_lora has no `regather` in Bridge",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_has_one_message(text: str) -> None:
    assert checked(BASE + text)[1] == [MISTAKES[text]]


@pytest.mark.parametrize(
    ("method", "word", "target"),
    [("lora", "v_proj", "linear_qkv"), ("dora", "o_proj", "linear_proj"), ("lora", "up_proj", "linear_fc1"),
     ("canonical_lora", "gate_proj", "linear_fc1_gate"), ("canonical_lora", "q_proj", "linear_q")],
)  # fmt: skip
def test_a_name_of_hugging_face_is_answered_with_megatrons(method: str, word: str, target: str) -> None:
    text = BASE + f"adapter {method} targets=[{word}]"
    (found,) = compile_source(Source("run.moe", text), "check").diagnostics
    assert found.help == (f"in Megatron `{word}` of Hugging Face is in `{target}`",)
    made, _ = checked(text.replace(word, target))
    assert made is not None and made.targets == {target}


def test_a_target_that_the_model_lacks_is_said() -> None:
    text = BASE + 'data "/d"; weights "/w"; adapter lora targets=[linear_qkv, in_proj]'
    (found,) = compile_source(Source("run.moe", text), "check").diagnostics
    assert found.id == "check.adapter_target" and "has no `in_proj`" in found.message


def test_an_adapter_needs_its_task() -> None:
    _, errors = checked("qwen3_30b_a3b; h100 x 8; task sft; adapter lora")
    assert errors == ["check.adapter: only `task peft` trains an adapter"]


def test_a_field_of_an_adapter_needs_one() -> None:
    path = "peft.dropout_position"
    assert checked(BASE + f'set {path} = "post"')[1] == []
    for text in (
        f'qwen3_30b_a3b; h100 x 8; task sft; set {path} = "post"',
        BASE + "adapter dora; set peft.lora_dtype = torch.float32",
    ):
        result = compile_source(Source("run.moe", text), "plan")
        assert [d.id for d in result.diagnostics if d.is_error] == ["check.other_class"]


@pytest.mark.parametrize("experts", EXPERTS)
@pytest.mark.parametrize("method", METHODS)
def test_the_object_for_bridge_reads_back(method: str, experts: str) -> None:
    if (method == "dora" and experts == "each") or not fine_tuning.has_experts(method, experts):
        return
    a = Adapter(**{**fine_tuning.defaults(method), "method": method, "experts": experts})
    call = fine_tuning.call(a)
    assert fine_tuning.read(call.name, {f"peft.{n}": v for n, v in call.kwargs.items()}) == a


def test_patterns_of_others_are_not_guessed() -> None:
    for targets in (
        ["*.layers.0.*.linear_qkv"],
        ["*.mlp.linear_fc1"],
        ["linear_fc1", "*.mlp.linear_fc2", "*.shared_experts.linear_fc2"],
        [],
    ):
        assert fine_tuning.read("LoRA", {"peft.target_modules": targets}) is None
    assert fine_tuning.read("VLMLoRA", {}) is None


def test_targets_cover_bridges_defaults() -> None:
    field = lookup("peft.target_modules")
    assert field is not None
    named = {t for value in (field.default, *field.others.values()) for t in value}
    assert named <= {*TARGETS}, json.dumps(sorted(named))
