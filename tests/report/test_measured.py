"""`moedsl report --profile --memory`: the measured step next to the predicted one, its timeline, and memory over time."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from moedsl.cli.main import main
from moedsl.planner import charts
from tests.helpers.nsight_export import write
from tests.profile.test_budget import three_steps
from tests.snapshot.test_memory import known

PROGRAM = "qwen3_30b_a3b\nh100 x 16\nseq 4k\nthroughput first\n"
Json = dict[str, Any]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run.moe"
    path.write_text(PROGRAM)
    return path


def printed(words: list[str], path: Path, capsys: pytest.CaptureFixture[str]) -> Json:
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    path.write_text(capsys.readouterr().out)
    return json.loads(path.read_text())


def test_what_was_measured_is_drawn(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(write(tmp_path / "known.sqlite", [three_steps()]))
    profile = printed(["profile", trace, "--run", str(run)], tmp_path / "profile.json", capsys)
    snapshot = tmp_path / "a.pickle"
    snapshot.write_bytes(pickle.dumps(known().snapshot()))
    memory = printed(["memory", str(snapshot)], tmp_path / "memory.json", capsys)
    page = tmp_path / "page.html"
    words = ["--profile", str(tmp_path / "profile.json"), "--memory", str(tmp_path / "memory.json")]
    assert main(["report", str(run), *words, "-o", str(page)]) == 0
    html = page.read_text()
    assert "The step as measured" in html and "One step of each stage" in html
    assert html.count("the step by wall, predicted and measured") == 1
    boxes = sum(len(profile["timeline"][name]) for name, _ in charts.BLOCKS)
    assert html.count("</title></rect>") >= boxes > 3
    (device,) = memory["devices"]
    assert max(device["over_time_gib"]) == pytest.approx(device["peak_gib"], abs=0.001)
    assert "Memory over time" in html
    assert main(["report", str(run), "-o", str(tmp_path / "bare.html")]) == 0
    assert "as measured" not in (tmp_path / "bare.html").read_text()


def test_the_timeline_is_of_one_step(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its shares sum to the step's own figures; every step of the trace is alike."""
    trace = str(write(tmp_path / "known.sqlite", [three_steps()]))
    data = printed(["profile", trace], tmp_path / "profile.json", capsys)
    line = data["timeline"]
    assert line["step_s"] == pytest.approx(data["steps"]["median_s"])
    for name, figure in (("compute", "compute_s"), ("communication", "communication_s")):
        spans = line[name]
        assert spans == sorted(spans) and all(0 <= a < b <= 1 for a, b in spans)
        drawn = sum(b - a for a, b in spans)
        assert drawn == pytest.approx(data["device"][figure] / data["step_s"], abs=0.0015 * (len(spans) + 1))


@pytest.mark.parametrize(("count", "drawn"), [(4, 4), (charts.DRAWN + 1, 1)])
def test_each_stage_has_its_timeline(
    count: int, drawn: int, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stages that launch the same differ in when they do; of many traces one of each part is drawn."""
    stages = [three_steps() for _ in range(count)]
    for number, e in enumerate(stages):
        e.pid += number
    data = printed(["profile", str(write(tmp_path / "x.sqlite", stages))], tmp_path / "profile.json", capsys)
    assert len(data["ranks"]) == count and len(data["parts"]) == 1
    page = tmp_path / "page.html"
    assert main(["report", str(run), "--profile", str(tmp_path / "profile.json"), "-o", str(page)]) == 0
    assert page.read_text().count('aria-label="one step of') == drawn


@pytest.mark.parametrize("text", ["{", "[]", '{"timeline": {}}', '{"devices": [{}]}'])
def test_other_files_are_refused(run: Path, tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.json").write_text(text)
    for option in ("--profile", "--memory"):
        words = [option, str(tmp_path / "other.json"), "-o", str(tmp_path / "page.html")]
        assert main(["report", str(run), *words]) == 1
        assert f"is not what `moedsl {option[2:]} --json` prints" in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()


def test_a_missing_file_is_said_to_be_missing(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "missing.json")
    assert main(["report", str(run), "--profile", path, "-o", str(tmp_path / "page.html")]) == 1
    assert f"error[profile.printed]: {path} does not exist" in capsys.readouterr().err
