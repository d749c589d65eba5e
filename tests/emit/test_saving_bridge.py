"""The real Megatron Bridge accepts how a run saves, and resolves each field to what the plan says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moedsl.emit.settings import decided_fields
from tests.emit.test_recipe_bridge import oracle, recipe_job
from tests.helpers.paths import ROOT
from tests.helpers.programs import plan_of

pytestmark = pytest.mark.bridge
TEXT = 'qwen3_30b_a3b; h100 x 16; seq 4k; batch 256; data "/data/text_document"; '
WEIGHTS = f'data "/data/squad"; set checkpoint.pretrained_checkpoint = "{ROOT}"; '
RUNS = {
    "optimizer": TEXT,
    "fsdp": f"{TEXT} pin sharding=fsdp",
    "local": f"""{TEXT} set ft.enable_ft_package = true
        cluster here {{ executor local; storage_write 1 GB/s; gpu_mtbf_days 1; local_disk "/raid" }}""",
    "blocking": f"{TEXT} set checkpoint.async_save = false",
    "adapter": f"qwen3_30b_a3b; h100 x 16; seq 4k; batch 256; task peft; {WEIGHTS}",
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder: Path = tmp_path_factory.mktemp("recipes")
    return dict(zip(RUNS, oracle([recipe_job(plan_of(text), folder, True) for text in RUNS.values()]), strict=True))


@pytest.mark.parametrize("name", RUNS)
def test_bridge_saves_as_planned(name: str, answers: dict[str, dict[str, Any]]) -> None:
    plan, answer = plan_of(RUNS[name]), answers[name]
    assert "error" not in answer, answer["error"]
    said = {path: value for path, value in decided_fields(plan).items() if path.startswith("checkpoint.")}
    assert {path: answer["fields"][path] for path in said} == said
    saves = plan.checkpoints
    assert saves is not None and said["checkpoint.save_interval"] == saves.interval_steps
    assert said["checkpoint.most_recent_k"] == saves.kept
    assert said.get("checkpoint.async_save", False) == saves.async_save == (name not in ("fsdp", "blocking"))
    assert (
        (saves.local is not None) == (said.get("checkpoint.non_persistent_ckpt_type") == "local") == (name == "local")
    )
