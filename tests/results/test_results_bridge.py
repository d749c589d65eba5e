"""Logs beside a recipe without a plan, which the real Megatron Bridge resolves."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from moedsl.bridge.verify.client import Server
from moedsl.cli.main import main
from tests.results.test_results import STEPS, logged, results

pytestmark = pytest.mark.bridge


def test_logs_from_elsewhere_take_a_plan_or_a_recipe(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("moedsl.bridge.run_sides.Server", lambda jobs: nullcontext(server))
    folder = tmp_path / "out"
    run = "qwen3_235b_a22b; gb200 x 256; batch 1024; seq 4k; throughput first"
    assert main(["compile", "-e", run, "-o", str(folder)]) == 0
    (tmp_path / "a.log").write_text(logged(STEPS, 26000.0))
    words = [f"{tmp_path / 'a.log'}={stands}" for stands in (folder, folder / "plan.json", folder / "recipe.py")]
    rows = results(*words, capsys=capsys)["runs"]
    assert [r["numbers"] for r in rows] == ["plan", "plan", "recipe"]
    rates = {r["useful_tokens_per_s_per_gpu"]["median"] for r in rows}
    assert len(rates) == 1
