"""Recipes for older releases of Bridge: no field that a release lacks, its own names, and a word on what it lacks."""

from __future__ import annotations

import re
from itertools import product

import pytest

from moedsl.compiler import compile_source
from moedsl.emit.overrides import overrides, overrides_text
from moedsl.emit.recipe import recipe_text
from moedsl.facts import fields
from moedsl.planner.plan import Plan
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.helpers.programs import compiled, plan_of

OLDER = fields.versions()[:-1]
_ASSIGNED = re.compile(r"^ {4}cfg\.([\w.]+) = ", re.MULTILINE)
_GRAPHS = "qwen3_30b_a3b; h100 x 16\nthroughput first\n"
TEXTS = {
    "pretrain": "qwen3_30b_a3b; h100 x 16",
    "graphs": f"{_GRAPHS}pin cuda_graph=[moe_router, moe_preprocess] dispatcher=deepep",
    "hybridep": "qwen3_30b_a3b; gb200 x 16\npin dispatcher=hybridep",
    "sft": 'qwen3_30b_a3b; h100 x 16; task sft; data "chats"\nset dataset.preprocessing = chat\n'
    'set checkpoint.pretrained_checkpoint = "weights"',
    "lora": "qwen3_30b_a3b; h100 x 8; task peft; adapter lora rank=8\nset checkpoint.pretrained_checkpoint = weights",
    "images": "qwen3_vl_30b_a3b; h100 x 16; task sft; vlm freeze_vision",
    "hybrid": "nemotron_3_nano; h100 x 16",
}


def _plan(text: str, bridge: str) -> Plan:
    return plan_of(f"{text}\ntarget bridge {bridge}\n")


@pytest.mark.parametrize(
    ("name", "bridge"), rotation.one_of_each("older recipes", [*product(TEXTS, OLDER)], lambda case: case[0])
)
def test_a_recipe_and_its_overrides_name_fields_that_the_release_has(name: str, bridge: str) -> None:
    plan = _plan(TEXTS[name], bridge)
    assigned = _ASSIGNED.findall(recipe_text(plan))
    assert len(assigned) > 20
    assert [p for p in assigned if not fields.has(p, bridge)] == []
    paths = [w.lstrip("+").partition("=")[0] for w in overrides(plan)]
    assert [p for p in paths if not fields.has(p, bridge)] == []


def test_each_release_has_its_own_name_of_what_graphs_capture() -> None:
    named = {
        b: [
            p
            for p in _ASSIGNED.findall(recipe_text(_plan(TEXTS["graphs"], b)))
            if "cuda_graph_" in p and "impl" not in p
        ]
        for b in fields.versions()
    }
    assert named == {
        "0.4.2": ["model.cuda_graph_scope"],
        "0.5.1": ["model.cuda_graph_modules"],
        "0.6.2": ["model.cuda_graph_modules"],
    }


def test_sms_are_those_of_the_dispatcher_before_all_have_one_field() -> None:
    text = {b: recipe_text(_plan(TEXTS["graphs"], b)) for b in fields.versions()}
    assert "cfg.model.moe_deepep_num_sms = 20" in text["0.5.1"] and "moe_flex_dispatcher_num_sms" not in text["0.5.1"]
    assert "cfg.model.moe_flex_dispatcher_num_sms = 20" in text["0.6.2"] and "moe_deepep" not in text["0.6.2"]


@pytest.mark.parametrize("bridge", OLDER)
def test_overrides_of_a_release_name_no_recipe_and_leave_variables_to_the_shell(bridge: str) -> None:
    text = overrides_text(_plan(TEXTS["pretrain"], bridge))
    assert "_config" not in text and "env_vars" not in text
    assert "\n# export CUDA_DEVICE_MAX_CONNECTIONS=8\n" in text


@pytest.mark.parametrize("bridge", OLDER)
def test_variables_are_set_by_the_recipe_where_the_configuration_has_none(bridge: str) -> None:
    text = recipe_text(_plan(TEXTS["pretrain"], bridge))
    assert "cfg.env_vars" not in text and "os.environ.setdefault(name, value)" in text and "\nimport os\n" in text


def test_a_wish_that_a_release_lacks_is_refused_with_the_release_that_has_it() -> None:
    run = "qwen3_30b_a3b; h100 x 8; task peft; adapter lora rank=8 experts=each\ntarget bridge 0.4\ndata mock\n"
    (found,) = [d for d in compiled(run).diagnostics if d.is_error]
    assert found.id == "plan.not_in_release" and "share_expert_adapters" in found.message
    assert "target bridge 0.5.1" in " ".join(found.help)


@pytest.mark.parametrize("bridge", OLDER)
def test_real_images_of_kimi_are_refused_where_a_release_reads_those_of_qwen_alone(bridge: str) -> None:
    run = f'kimi_k25; gb200 x 512; data "/data/images"; target bridge {bridge}'
    (found,) = [d for d in compiled(run).diagnostics if d.is_error]
    assert found.id == "plan.not_in_release" and "Qwen-VL's processor" in found.message


def test_a_field_of_another_release_is_refused_with_the_releases_that_have_it() -> None:
    run = "qwen3_30b_a3b; h100 x 16\ntarget bridge 0.5\nset tokenizer.use_tokenizer_vocab_size = true\n"
    (found,) = [d for d in compiled(run).diagnostics if d.is_error]
    assert found.id == "check.unknown_field" and "0.6.2 has it" in found.message


def test_a_model_that_a_release_cannot_build_is_refused_with_the_release_that_can() -> None:
    (found,) = [d for d in compiled("exaone_moe_236b_a23b; h100 x 64; target bridge 0.5").diagnostics if d.is_error]
    assert found.id == "check.target" and "ExaoneMoEForCausalLM" in found.message and "0.6.2" in found.help[0]


def test_an_unknown_release_is_refused_with_the_known_ones() -> None:
    (found,) = [d for d in compiled("qwen3_30b_a3b; h100 x 16; target bridge 0.7").diagnostics if d.is_error]
    assert found.id == "check.target" and "0.4.2, 0.5.1, 0.6.2" in found.message
    source = Source("run.moe", "qwen3_30b_a3b; h100 x 16")
    (found,) = [d for d in compile_source(source, "check", target="0.7").diagnostics if d.is_error]
    assert (found.id, found.labels, found.help) == ("check.target", (), ("give `--target 0.6`",))
