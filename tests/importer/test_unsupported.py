"""What the table of families says of the bridges of Megatron Bridge, against those that the wheel registers."""

import pytest

from moedsl.bridge.importer.config import declaration
from moedsl.bridge.importer.families import FAMILIES
from moedsl.bridge.importer.known import UNSUPPORTED
from moedsl.facts.fields import data

DENSE = {
    "exaone4", "exaone4_5", "falcon_h1", "gemma", "gemma2", "gemma3", "gemma3_vl", "llama", "mimo", "mistral3",
    "nemotron", "nemotron_vl", "qwen2", "qwen2_5_vl", "qwen2_audio", "qwen3", "qwen3_5", "qwen3_5_text", "qwen3_vl",
}  # fmt: skip
"""Families of the wheel whose models have no experts."""


def test_a_family_has_a_bridge_where_the_table_says_so() -> None:
    has = {name: f.bridge for name, f in FAMILIES.items()} | {name: u.bridge for name, u in UNSUPPORTED.items()}
    assert {name for name, bridge in has.items() if bridge} == set(data()["families"]) - DENSE


def test_no_family_is_both() -> None:
    assert not FAMILIES.keys() & UNSUPPORTED.keys()


@pytest.mark.parametrize("family", UNSUPPORTED)
def test_a_refusal_says_the_reason(family: str) -> None:
    text, (first, *_) = declaration({"model_type": family}, None, "org/name")
    assert text is None and UNSUPPORTED[family].why in first.message
