"""What the tables of families say of the bridges of Megatron Bridge, against those that the wheel registers."""

import json
import re
from importlib.metadata import distribution
from pathlib import Path

import pytest

from moedsl import api
from moedsl.bridge.importer.config import add, declaration
from moedsl.bridge.importer.families import FAMILIES
from moedsl.bridge.importer.known import ARCHITECTURES, UNSUPPORTED
from moedsl.bridge.verify.client import Server
from moedsl.facts.fields import data
from tests.helpers.paths import ROOT
from tests.helpers.programs import judged
from tests.helpers.tables import table_of

DENSE = {
    "exaone4", "exaone4_5", "falcon_h1", "gemma", "gemma2", "gemma3", "gemma3_vl", "llama", "mimo", "mistral3",
    "nemotron", "nemotron_vl", "qwen2", "qwen2_5_vl", "qwen2_audio", "qwen3", "qwen3_5", "qwen3_5_text", "qwen3_vl",
}  # fmt: skip
"""Families of the wheel whose models have no experts."""
PUBLISHED = sorted(p.parent for p in (ROOT / "tests" / "data" / "families").glob("*/config.json"))
"""Configurations of the families that have no model in the stdlib."""
GPUS = {"hy3_preview": 64}


def test_a_family_has_a_bridge_where_the_table_says_so() -> None:
    has = {name: f.bridge for name, f in FAMILIES.items()} | {name: u.bridge for name, u in UNSUPPORTED.items()}
    assert {name for name, bridge in has.items() if bridge} == set(data()["families"]) - DENSE


@pytest.mark.bridge
def test_the_classes_are_those_that_the_wheel_registers() -> None:
    """A class that the table has more is one of an older transformers, whose name the published file has."""
    wheel = Path(str(distribution("megatron-bridge").locate_file("megatron/bridge/models")))
    said: set[str] = set()
    for file in wheel.rglob("*_bridge.py"):
        text = file.read_text(encoding="utf-8")
        for name in re.findall(r"^@MegatronModelBridge\.register_bridge\(\s*source=\"?(\w+)", text, re.MULTILINE):
            said.add(re.findall(rf'^{name} = "(\w+)"', text, re.MULTILINE)[0] if name.startswith("_") else name)
    moe = {
        name
        for name in said
        if re.search("MoE|Moe|Deepseek|Kimi|V2Flash|MiniMax|GptOss|NemotronHFor|Omni_R|Step3|HYV3", name)
    }
    assert moe - {"Qwen2_5OmniForConditionalGeneration"} <= set(ARCHITECTURES)
    assert set(ARCHITECTURES) - said == {"ExaoneMoEForCausalLM"}
    assert {f for of in ARCHITECTURES.values() for f in of} - {"minimax_m3"} == set(data()["families"]) - DENSE


def test_no_family_is_both() -> None:
    assert not FAMILIES.keys() & UNSUPPORTED.keys()


@pytest.mark.parametrize("family", UNSUPPORTED)
def test_a_refusal_says_the_reason(family: str) -> None:
    text, (first, *more) = declaration({"model_type": family}, None, "org/name")
    assert text is None and not more and UNSUPPORTED[family].why in first.message
    assert UNSUPPORTED[family].bridge or "no release of Megatron Bridge has a bridge" in first.message


@pytest.mark.bridge
def test_bridge_accepts_a_configuration_of_each_family(server: Server, tmp_path: Path) -> None:
    runs: dict[str, str] = {}
    for folder in PUBLISHED:
        text, found = add(folder / "config.json", folder.name)
        assert text is not None and [d.id for d in found] == ["import.no_id"], found
        runs[folder.name] = f"{text}\n{folder.name}; h100 x {GPUS.get(folder.name, 16)}; fit first"
    for name, report in judged(server, runs, tmp_path).items():
        assert report.ok, (name, report.to_json())


@pytest.mark.bridge
def test_a_configuration_that_is_not_here_is_no_refusal(server: Server, tmp_path: Path) -> None:
    program = (ROOT / "stdlib" / "models" / "qwen3_30b_a3b.moe").read_text().replace("qwen3_30b_a3b {", "mine {")
    program = program.replace("Qwen/Qwen3-30B-A3B", "nobody/nothing-1B")
    (report,) = judged(server, {"mine": f"{program}\nmine; h100 x 16; fit first"}, tmp_path).values()
    assert report.id == "verify.no_configuration" and "nobody/nothing-1B" in report.message and not report.refusals


@pytest.mark.parametrize(("config", "missing"), table_of("importer", "a family without a bridge"))
def test_a_family_without_a_bridge_is_planned_by_hand_and_not_compiled(config: str, missing: str) -> None:
    text, (refused,) = declaration(json.loads(config), "mine", "org/name")
    assert text is None and "no release of Megatron Bridge has a bridge" in refused.message
    (block,) = (h for h in refused.help if h.startswith("to plan it"))
    program = f"{block.partition('declaration: ')[2][:-1]} {missing} }}\nmine; h100 x 512; fit first"
    planned, made = api.plan(program), api.compile(program)
    assert planned.plans and [d.severity for d in planned.diagnostics if d.id == "check.no_bridge"] == ["warning"]
    assert not made.files and [d.id for d in made.diagnostics if d.is_error] == ["check.no_bridge"]


def test_a_misspelled_family_is_not_compiled() -> None:
    program = (ROOT / "stdlib" / "models" / "qwen3_30b_a3b.moe").read_text().replace("qwen3_30b_a3b {", "mine {")
    made = api.compile(program.replace("family qwen3_moe", "family qwen3moe") + "\nmine; h100 x 16; fit first")
    (refused,) = (d for d in made.diagnostics if d.is_error)
    assert refused.id == "check.no_bridge" and refused.help == ("did you mean `qwen3_moe`?",)
