"""How a recipe reads its samples, through `moedsl import`: a statement where the language has a word, else a comment."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from moedsl.bridge import recipe_import
from moedsl.bridge.verify.client import Server
from moedsl.emit.recipe import recipe_text
from tests.helpers.programs import plan_of

pytestmark = pytest.mark.bridge
RUN = 'qwen3_30b_a3b; h100 x 8; task peft; adapter lora; data "/data/samples"; set dataset.preprocessing = "{}"'
CHAT, PROMPTS = "ChatSFTPreprocessingConfig()", "PromptCompletionSFTPreprocessingConfig("
OWN = '__import__("dataclasses").make_dataclass("OwnConfig", [], bases=(ChatSFTPreprocessingConfig,))()'


@pytest.mark.parametrize(("word", "changed", "said"), [
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
])  # fmt: skip
def test_how_samples_are_read(
    word: str,
    changed: tuple[str, str],
    said: list[str],
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recipe_import, "Server", lambda jobs: nullcontext(server))
    text = recipe_text(plan_of(RUN.format(word)))
    assert changed[0] in text
    (recipe := tmp_path / "recipe.py").write_text(text.replace(*changed), encoding="utf-8")
    made = recipe_import.imported(str(recipe), "h100", 8)
    assert made.text is not None, made.diagnostics
    assert [line for line in made.text.splitlines() if "preprocessing" in line] == said


@pytest.mark.parametrize("pack", ["on", "off"])
def test_whether_samples_are_packed(pack: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe_import, "Server", lambda jobs: nullcontext(server))
    plan = plan_of(f'qwen3_30b_a3b; h100 x 8; task peft; data "/data/samples" pack={pack}')
    (recipe := tmp_path / "recipe.py").write_text(recipe_text(plan), encoding="utf-8")
    made = recipe_import.imported(str(recipe), "h100", 8)
    assert made.text is not None, made.diagnostics
    assert f'data "/data/samples" pack={pack}\n' in made.text and "packing" not in made.text


@pytest.mark.parametrize("data", [
    'data hf "squad" pack=on split="validation"',
    'data hf "tulu3" pack=off',
    'data hf "someone/corpus" pack=on split="train[:1%]" subset="main"',
])  # fmt: skip
def test_a_data_set_of_hugging_face(data: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two recipes that read different data sets are different experiments."""
    monkeypatch.setattr(recipe_import, "Server", lambda jobs: nullcontext(server))
    (recipe := tmp_path / "recipe.py").write_text(recipe_text(plan_of(f"qwen3_30b_a3b; h100 x 8; task peft; {data}")))
    made = recipe_import.imported(str(recipe), "h100", 8)
    assert made.text is not None, made.diagnostics
    assert f"{data}\n" in made.text and "dataset" not in made.text


def test_samples_of_hugging_face_are_chats_unless_a_recipe_says(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipe_import, "Server", lambda jobs: nullcontext(server))
    text = recipe_text(plan_of('qwen3_30b_a3b; h100 x 8; task peft; data hf "squad"'))
    prompts = next(line for line in text.splitlines() if line.lstrip().startswith("preprocessing="))
    (recipe := tmp_path / "recipe.py").write_text(text.replace(prompts, "        preprocessing=None,"))
    made = recipe_import.imported(str(recipe), "h100", 8)
    assert made.text is not None and 'set dataset.preprocessing = "chat"\n' in made.text


def test_another_data_set_to_validate_on(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe_import, "Server", lambda jobs: nullcontext(server))
    sets = (
        "set dataset.hf_validation_proportion = none",
        'set dataset.hf_validation_dataset.dataset_name = "gsm8k"',
        'set dataset.hf_validation_dataset.split = "test"',
    )
    text = recipe_text(plan_of(f'qwen3_30b_a3b; h100 x 8; task peft; data hf "gsm8k"; {"; ".join(sets)}'))
    (recipe := tmp_path / "recipe.py").write_text(text)
    made = recipe_import.imported(str(recipe), "h100", 8)
    assert made.text is not None, made.diagnostics
    assert sorted(line for line in made.text.splitlines() if "hf_validation" in line) == sorted(sets)


def test_a_data_set_that_a_run_cannot_name_is_a_comment(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipe_import, "Server", lambda jobs: nullcontext(server))
    text = recipe_text(plan_of('qwen3_30b_a3b; h100 x 8; task peft; data hf "someone/corpus" subset="main"'))
    assert 'subset="main"' in text
    (recipe := tmp_path / "recipe.py").write_text(text.replace('subset="main"', 'subset=["main", "other"]'))
    made = recipe_import.imported(str(recipe), "h100", 8)
    assert made.text is not None and "\n#   dataset = GPTSFTDatasetConfig" in made.text, made.text
