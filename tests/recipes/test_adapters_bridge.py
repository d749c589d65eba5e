"""NVIDIA's recipes for adapters through `moedsl import` and `moedsl compile`: the real Bridge makes the same adapter of
each, and resolves every decided field alike, or the program has a comment on it."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from moedsl.bridge import recipe_import
from moedsl.bridge.recipe_import import Draft
from moedsl.bridge.verify import cases
from moedsl.bridge.verify.cases import Case
from moedsl.bridge.verify.client import Server
from moedsl.compiler import compile_source, load_stdlib
from moedsl.emit.artifact import files_of
from moedsl.emit.recipe import recipe_text
from moedsl.support.files import write_all
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.helpers.paths import ROOT
from tests.helpers.programs import plan_of
from tests.helpers.tables import table_of
from tests.recipes import test_round_trip_bridge as round_trip
from tests.recipes.test_round_trip_bridge import ROWS
from tools import make_recipes

pytestmark = pytest.mark.bridge
TABLE = [json.loads(line) for line in make_recipes.FILE.read_text(encoding="utf-8").splitlines()]
ADAPTERS = [row for row in TABLE if row["task"] == "peft"]
TAKEN = rotation.some("adapted", rotation.one_of_each("imported adapters", ADAPTERS, lambda row: row["hf"]), 1)
REFUSED = {"gpt_oss_20b_peft_1gpu_h100_fp8mx_config": "std.precision.mxfp8_gpu"}
"""Accepted until the first step: te/pytorch/quantization.py:168 asks the GPU, and an H100 has no MXFP8."""

UNBUILT = table_of("recipes", "adapters: unbuilt")
"""What Bridge refuses, so that it is not in the table."""


def of_peft(fields: Any) -> dict[str, Any]:
    return {n: v for n, v in fields.items() if n.startswith("peft.") and n != "peft.params_to_save"}


def test_each_of_a_known_model_is_in_the_table_or_refused_by_bridge() -> None:
    known = {row["name"].partition("_" + row["task"] + "_")[0] for row in TABLE}
    wheel = {c.function for c in make_recipes.wanted() if c.function and c.function.partition("_peft_")[0] in known}
    assert wheel == {row["name"] for row in ADAPTERS} | {*UNBUILT}


def test_the_document_counts_those_that_come_back() -> None:
    """`test_recipes_come_back` and the tests below ask the same of each."""
    full = [row["function"] for row in ROWS if row["task"] == "sft"]
    refused = [name for name in full if name in round_trip.UNBUILT]
    laws = [name for name in full if name in round_trip.BROKEN and name not in round_trip.UNBUILT]
    counts = {
        "adapters": (len(ADAPTERS) + len(UNBUILT), len(ADAPTERS) - len(REFUSED), len(REFUSED), len(UNBUILT)),
        "full fine-tuning": (len(full), len(full) - len(refused) - len(laws), len(laws), len(refused)),
    }
    text = (ROOT / "docs/recipes.md").read_text(encoding="utf-8")
    for task, numbers in counts.items():
        assert "| " + " | ".join([task, *map(str, numbers)]) + " |" in text


@pytest.mark.parametrize("name", rotation.some("refused adapters", [*UNBUILT], 1))
def test_bridge_refuses_the_others(name: str, server: Server) -> None:
    (asked,) = [c for c in make_recipes.wanted() if c.function == name]
    (theirs,) = server.resolve([asked])
    assert theirs.refusal is not None and theirs.refusal.message.startswith(UNBUILT[name])


@pytest.mark.parametrize("row", TAKEN, ids=lambda row: row["name"])
def test_the_adapter_comes_back(row: dict[str, Any], server: Server, tmp_path: Path) -> None:
    asked = cases.read(f"{row['module']}:{row['name']}", row["hardware"], row["gpus"])
    assert isinstance(asked, Case)
    (theirs,) = server.resolve([asked])
    assert theirs.built and theirs.refusal is None, theirs.refusal
    library = load_stdlib()
    draft = recipe_import.draft(recipe_import.of_bridge(asked, theirs, library), library)  # type: ignore[arg-type]
    assert isinstance(draft, Draft)
    laws = {d.id for d in draft.result.diagnostics if d.is_error}
    assert laws == ({REFUSED[row["name"]]} if row["name"] in REFUSED else set())
    if laws:
        text = recipe_import.refused(draft).text or ""
        assert f"#   the layout, which {REFUSED[row['name']]} refuses: " in text
        return
    (answer,) = server.resolve([recipe_import.written(draft, tmp_path / "words")])
    text = recipe_import.finished(draft, answer).text or ""
    result = compile_source(Source("recipe.moe", text + '\nset checkpoint.pretrained_checkpoint = "/weights"\n'))
    assert not result.failed, [d.message for d in result.diagnostics if d.is_error]
    assert not write_all(tmp_path / "program", files_of(result.plans[0], result.source, result.library))
    again = cases.read(str(tmp_path / "program"))
    assert isinstance(again, Case)
    (ours,) = server.resolve([again])
    assert ours.built and ours.refusal is None, ours.refusal
    assert ours.classes["peft"] == theirs.classes["peft"]
    a, b = of_peft(ours.resolved), of_peft(theirs.resolved)
    assert {n for n in b if in_order(a.get(n)) != in_order(b[n])} == set()


def in_order(value: Any) -> Any:
    return sorted(value) if isinstance(value, list) else value


# How a recipe reads its samples, through `moedsl import`: a statement where the language has a word, else a comment.

CHAT, PROMPTS = "ChatSFTPreprocessingConfig()", "PromptCompletionSFTPreprocessingConfig("
OWN = '__import__("dataclasses").make_dataclass("OwnConfig", [], bases=(ChatSFTPreprocessingConfig,))()'


READ = [
    ("chat", (CHAT, CHAT), ['set dataset.preprocessing = "chat"']),
    ("chat", (CHAT, OWN), ["#   dataset.preprocessing = <OwnConfig>"]),
    ("chat", (CHAT, "None"), []),
    ("prompts", (PROMPTS, PROMPTS), []),
    ("prompts", ('completion_column="output"', 'completion_column="answer"'), [
        'set dataset.preprocessing.completion_column = "answer"'
    ]),
    ("chat", (CHAT, 'ChatSFTPreprocessingConfig(loss_mode="last_turn")'), [
        'set dataset.preprocessing = "chat"', 'set dataset.preprocessing.loss_mode = "last_turn"'
    ]),
]  # fmt: skip


Imported = Callable[[str], str]


@pytest.fixture
def imported(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Imported:
    """What `moedsl import` makes of the text of a recipe."""
    monkeypatch.setattr(recipe_import, "Server", lambda jobs: nullcontext(server))

    def of(recipe: str) -> str:
        (tmp_path / "recipe.py").write_text(recipe, encoding="utf-8")
        made = recipe_import.imported(str(tmp_path / "recipe.py"), "h100", 8)
        assert made.text is not None, made.diagnostics
        return made.text

    return of


def recipe(statements: str) -> str:
    return recipe_text(plan_of(f"qwen3_30b_a3b; h100 x 8; task peft; {statements}"))


@pytest.mark.parametrize(("word", "changed", "said"), rotation.some("read samples", READ, 2))
def test_how_samples_are_read(word: str, changed: tuple[str, str], said: list[str], imported: Imported) -> None:
    text = recipe(f'adapter lora; data "/data/samples"; set dataset.preprocessing = "{word}"')
    assert changed[0] in text
    assert [line for line in imported(text.replace(*changed)).splitlines() if "preprocessing" in line] == said


@pytest.mark.parametrize("pack", rotation.some("packed", ["on", "off"], 1))
def test_whether_samples_are_packed(pack: str, imported: Imported) -> None:
    text = imported(recipe(f'data "/data/samples" pack={pack}'))
    assert f'data "/data/samples" pack={pack}\n' in text and "packing" not in text


DATA_SETS = table_of("recipes", "adapters: data sets")


@pytest.mark.parametrize("data", rotation.some("data sets", DATA_SETS, 1))
def test_a_data_set_of_hugging_face(data: str, imported: Imported) -> None:
    """Two recipes that read different data sets are different experiments."""
    text = imported(recipe(data))
    assert f"{data}\n" in text and "dataset" not in text


def test_samples_of_hugging_face_are_chats_unless_a_recipe_says(imported: Imported) -> None:
    text = recipe('data hf "squad"')
    prompts = next(line for line in text.splitlines() if line.lstrip().startswith("preprocessing="))
    text = imported(text.replace(prompts, "        preprocessing=None,"))
    assert 'set dataset.preprocessing = "chat"\n' in text


def test_another_data_set_to_validate_on(imported: Imported) -> None:
    sets = (
        "set dataset.hf_validation_proportion = none",
        'set dataset.hf_validation_dataset.dataset_name = "gsm8k"',
        'set dataset.hf_validation_dataset.split = "test"',
    )
    text = imported(recipe(f'data hf "gsm8k"; {"; ".join(sets)}'))
    assert sorted(line for line in text.splitlines() if "hf_validation" in line) == sorted(sets)


def test_a_data_set_that_a_run_cannot_name_is_a_comment(imported: Imported) -> None:
    text = recipe('data hf "someone/corpus" subset="main"')
    assert 'subset="main"' in text
    text = imported(text.replace('subset="main"', 'subset=["main", "other"]'))
    assert "\n#   dataset = GPTSFTDatasetConfig" in text
