"""What the table of families says of the bridges of Megatron Bridge, against the registrations in the wheel's sources."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path

import pytest

from moedsl.importer.config import declaration
from moedsl.importer.families import FAMILIES
from moedsl.importer.unsupported import UNSUPPORTED

pytestmark = pytest.mark.bridge

DENSE = {
    "exaone4", "exaone4_5", "falcon_h1", "gemma", "gemma2", "gemma3", "gemma3_vl", "llama", "mimo", "mistral3",
    "nemotron", "nemotron_vl", "qwen2", "qwen2_5_vl", "qwen2_audio", "qwen3", "qwen3_5", "qwen3_5_text", "qwen3_vl",
}  # fmt: skip
"""Families of the wheel whose models have no experts."""
OTHERWISE = {
    "gemma4_vl": "gemma4",  # a bridge for each of the model's two classes
    "qwen3_omni": "qwen3_omni_moe",
}
"""Bridge's name of a family, if it is not the `model_type` of the configurations."""
BY_CLASS = {
    "glm4v_moe": "Glm4vMoeForConditionalGeneration",
    "kimi_k25": "KimiK25ForConditionalGeneration",
    "sarvam_mla": "SarvamMLAForCausalLM",
    "sarvam_moe": "SarvamMoEForCausalLM",
}
"""Families that the wheel registers by the class of the model alone."""
_REGISTRATION = re.compile(r"^@MegatronModelBridge\.register_bridge\((.*?)\)\nclass ", re.DOTALL | re.MULTILINE)


@cache
def registrations() -> str:
    """The arguments of each registration, one after the other."""
    found = importlib.util.find_spec("megatron.bridge")
    assert found is not None and found.submodule_search_locations
    files = sorted((Path(found.submodule_search_locations[0]) / "models").rglob("*_bridge.py"))
    return "\n".join(said for f in files for said in _REGISTRATION.findall(f.read_text(encoding="utf-8")))


def registered() -> set[str]:
    """The `model_type` of each family that has a bridge."""
    named: list[str] = re.findall(r'model_type="([^"]+)"', registrations())
    by_class = {family for family, name in BY_CLASS.items() if re.search(rf'source="?{name}\b', registrations())}
    return {OTHERWISE.get(name, name) for name in named} | by_class


def test_a_family_has_a_bridge_where_the_table_says_so() -> None:
    has = {name: f.bridge for name, f in FAMILIES.items()} | {name: u.bridge for name, u in UNSUPPORTED.items()}
    assert {name for name, bridge in has.items() if bridge} == registered() - DENSE


def test_no_family_is_both() -> None:
    assert not FAMILIES.keys() & UNSUPPORTED.keys()


@pytest.mark.parametrize("family", UNSUPPORTED)
def test_a_refusal_says_the_reason(family: str) -> None:
    text, (first, *_) = declaration({"model_type": family}, None, "org/name")
    assert text is None and UNSUPPORTED[family].why in first.message
