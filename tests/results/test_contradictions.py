"""Figures that contradict each other or the GPU are named in each command, and are no line for `calibrate`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from moedsl.cli.main import main
from moedsl.planner.plan import Plan
from moedsl.runs.measured_runs import read as read_calibration
from moedsl.runs.results.measure import FLOPS, PEAK
from tests.gap.test_gap import H200_LOG
from tests.helpers.logs import iteration_lines
from tests.helpers.one_gpu import MOONLIGHT
from tests.helpers.programs import compiled
from tests.results.test_results import results

TEXT = "qwen3_30b_a3b; h100 x 16; seq 4k; batch 64; fit first"
IMAGES = "qwen3_vl_30b_a3b; h100 x 16; seq 4k; batch 256; throughput first"
TUNED = 'qwen3_30b_a3b; h100 x 16; seq 4k; batch 64; task sft; data "/d"'
Json = dict[str, Any]


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Plan]:
    """Write the plan of a program, and the log of a run `faster` than it, whose TFLOPS are `more` than they mean."""
    monkeypatch.chdir(tmp_path)

    def write(run: str, faster: float = 1.0, more: float | None = 1.0) -> Plan:
        (plan,) = compiled(run).plans
        seconds, tflops = plan.estimate.step_time_s / faster, plan.estimate.model_tflops_per_gpu * faster
        Path("plan.json").write_text(json.dumps(plan.to_json()))
        lines = iteration_lines(1, 80, seconds, plan.batch.global_batch, None if more is None else tflops * more)
        Path("train.log").write_text(lines)
        return plan

    return write


def seen_in(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main([command, "train.log", *(["--once"] if command == "watch" else [])]) == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "faster, more, id, text",
    [
        (1.0, 3.0, FLOPS, "3 times the 23 of its plan"),
        (2.0, 0.5, FLOPS, "0.5 times the 23 of its plan"),
        (1000.0, None, PEAK, "and h100 has 989 in bf16"),
    ],
    ids=["another model", "twice the GPUs", "milliseconds"],
)
def test_what_contradicts_is_named_in_each_command(
    faster: float, more: float | None, id: str, text: str, ran: Callable[..., Plan], capsys: pytest.CaptureFixture[str]
) -> None:
    ran(TEXT, faster, more)
    (row,) = results("train.log", capsys=capsys)["runs"]
    assert [w["id"] for w in row["warnings"]] == [id]
    for command in ("results", "gap", "next", "watch"):
        assert text in seen_in(command, capsys), command
    assert main(["results", "train.log", "--measured", "runs.jsonl"]) == 1
    assert "main: no line for `moedsl calibrate`: " in capsys.readouterr().err and not Path("runs.jsonl").exists()


def test_rank_0_says_the_same(ran: Callable[..., Plan], capsys: pytest.CaptureFixture[str]) -> None:
    e = ran(TEXT).estimate
    line = "Step Time : {:.2f}s GPU utilization: {:.1f}MODEL_TFLOP/s/GPU\n"
    for lines in ("", iteration_lines(1, 80, e.step_time_s, 64)):
        for factor, ids in ((1.0, []), (2.0, [FLOPS])):
            own = line.format(e.step_time_s, factor * e.model_tflops_per_gpu) * 30
            Path("train.log").write_text(lines + own)
            assert [w["id"] for w in results("train.log", capsys=capsys)["runs"][0]["warnings"]] == ids


@pytest.mark.parametrize(
    "run, faster, more",
    [(TEXT, 1.0, 0.83), (TEXT, 1.0, 1.05), (TEXT, 2.0, 1.0), (TEXT, 2.0, None), (IMAGES, 1.0, 2.0), (TUNED, 1.0, 0.2)],
)
def test_an_honest_run_contradicts_nothing(
    run: str, faster: float, more: float | None, ran: Callable[..., Plan], capsys: pytest.CaptureFixture[str]
) -> None:
    """NVIDIA's published runs stray so far; images and samples are counted as they come."""
    ran(run, faster, more)
    assert results("train.log", capsys=capsys)["runs"][0]["warnings"] == []


def test_a_real_log_contradicts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (plan,) = compiled(MOONLIGHT).plans
    (tmp_path / "plan.json").write_text(json.dumps(plan.to_json()))
    (row,) = results(f"{H200_LOG}={tmp_path}", capsys=capsys)["runs"]
    assert row["warnings"] == [] and row["tflops_per_gpu"] > 200


def test_a_line_of_calibrate_above_the_peak_is_refused(tmp_path: Path) -> None:
    file, fast = tmp_path / "runs.jsonl", 989e12 / 18e9
    row = {"run": "qwen3_30b_a3b; h100 x 16; pin ep=16", "tokens_per_s_per_gpu": 12440}
    each = [row, row | {"tokens_per_s_per_gpu": fast}, row | {"step_time_s": 0.0145, "tokens_per_s_per_gpu": None}]
    file.write_text("".join(json.dumps(r) + "\n" for r in each))
    source, runs, found = read_calibration(file)
    assert [r.tokens for r in runs] == [12440]
    assert [(d.id, source.text.count("\n", 0, d.labels[0].span.start)) for d in found] == [
        ("calibrate.run", 1),
        ("calibrate.run", 2),
    ]
    assert all("TFLOPS, and h100 has 989 in bf16" in d.message for d in found)
