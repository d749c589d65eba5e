"""A log with another global batch than its plan's is another experiment; a ramp-up and a restart are told apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from moedsl.cli.main import main
from moedsl.runs.results.log import Attempt, Log
from moedsl.runs.results.measure import last_settings
from tests.helpers.logs import iteration_lines, step
from tests.results.test_results import results

BATCH, SECONDS = 64, 5.0
RUN = f"qwen3_30b_a3b; h100 x 16; seq 4k; batch {BATCH}; fit first"
Json = dict[str, Any]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("run")
    assert main(["compile", "-e", RUN, "-o", str(out)]) == 0
    return (out / "plan.json").read_text()


@pytest.fixture
def folder(plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("run", "old"):
        Path(name).mkdir()
        Path(name, "plan.json").write_text(plan)
    return tmp_path


def write(*texts: str, folder: str = "run") -> None:
    Path(folder, "train.log").write_text("".join(texts))


def ids(row: Json) -> list[str]:
    return [w["id"] for w in row["warnings"]]


def seconds_of(json_file: str = "run/plan.json") -> float:
    return json.loads(Path(json_file).read_text())["estimate"]["step_time_s"]


def test_the_batch_of_the_log_is_not_its_plans(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(iteration_lines(1, 40, seconds_of() * 2, 2 * BATCH))
    (row,) = results("run", capsys=capsys)["runs"]
    assert (ids(row), row["predicted"], row["global_batch"]) == (["batch"], None, 2 * BATCH)
    assert main(["results", "run", "--measured", "x.jsonl"]) == 1 and not Path("x.jsonl").exists()
    said = capsys.readouterr()
    assert "a global batch of 128, its plan 64" in said.out and "no line for `moedsl calibrate`" in said.err
    for command in ("gap", "next"):
        assert main([command, "run"]) == 1
        assert "a global batch of 128, its plan 64" in capsys.readouterr().err
    assert main(["watch", "run", "--once", "--json"]) == 0
    (seen,) = json.loads(capsys.readouterr().out)["runs"]
    assert (ids(seen), seen["predicted"], seen["alarms"]) == (["batch"], None, [])
    assert main(["watch", "run", "--once"]) == 0
    assert "warning    its log states" in capsys.readouterr().out


def test_a_plan_with_the_batch_of_the_log_is_compared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(iteration_lines(1, 40, seconds_of() * 2, 2 * BATCH))
    assert main(["compile", "-e", RUN.replace(f"batch {BATCH}", f"batch {2 * BATCH}"), "-o", "again"]) == 0
    capsys.readouterr()
    assert main(["gap", "run/train.log=again", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["remarks"] == []


def test_a_batch_of_the_command_line_that_the_log_contradicts(folder: Path, capsys: Any) -> None:
    Path("a.log").write_text(iteration_lines(1, 40, SECONDS, 128))
    words = ("--seq", "4k", "--gpus", "16", "--global-batch")
    assert ids(results("a.log", *words, "64", capsys=capsys)["runs"][0]) == ["batch"]
    assert ids(results("a.log", *words, "128", capsys=capsys)["runs"][0]) == []


def test_a_baseline_with_another_batch_has_changed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(iteration_lines(1, 40, SECONDS * 2, 2 * BATCH))
    write(iteration_lines(1, 40, SECONDS, BATCH), folder="old")
    for new, old, change in (("run", "old", (64, 128)), ("old", "run", (128, 64))):
        (found,) = results(new, "--baseline", old, capsys=capsys)["regressions"]
        assert [(c["a"], c["b"], c["effect"]) for c in found["changes"]] == [(*change, "experiment")]
        assert (found["same_experiment"], found["predicted_change"]) == (False, None)
        assert len(found["warnings"]) == (old == "run")
    assert main(["results", "run", "old"]) == 0
    assert "these runs are different experiments" in capsys.readouterr().out


@pytest.mark.parametrize("batch, counts", [(BATCH // 2, ["batch", "restart"]), (2 * BATCH, ["batch", "restart"])])
@pytest.mark.parametrize("first", [21, 41], ids=["from a checkpoint before", "at the next step"])
def test_a_restart_with_another_batch_is_not_merged(
    batch: int, counts: list[str], first: int, folder: Path, capsys: Any
) -> None:
    write(iteration_lines(1, 40, SECONDS, BATCH), iteration_lines(first, 80, 7.0, batch, after=3600))
    (row,) = results("run", capsys=capsys)["runs"]
    assert ids(row) == counts
    assert (row["samples"], row["step_time_s"]["max"], row["batches"]) == (80 - first + 1 - 10, 7.0, [batch])
    assert main(["watch", "run", "--once", "--json"]) == 0
    (seen,) = json.loads(capsys.readouterr().out)["runs"]
    assert (ids(seen), seen["step_time_s"]["max"]) == (["batch"], 7.0)


def test_a_restart_with_the_batch_of_the_plan_counts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In two files, of which the later one is shorter."""
    Path("run/job_2.log").write_text(iteration_lines(1, 30, seconds_of(), BATCH, after=3600))
    Path("run/job_1.log").write_text(iteration_lines(1, 80, 3.0, BATCH // 2))
    (row,) = results("run", capsys=capsys)["runs"]
    assert (ids(row), row["samples"], row["batches"]) == (["restart"], 20, [BATCH])
    assert row["predicted"] and main(["results", "run", "--measured", "x.jsonl"]) == 0


@pytest.mark.parametrize("grows", [True, False])
def test_a_batch_that_ramps_up(grows: bool, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each step has the tokens of its own batch; a restart goes on at the batch of its checkpoint."""
    rate = seconds_of() / BATCH
    stages = [(1, 20, 16), (21, 40, 32), (31, 40, 32), (41, 60, 64)]
    write(*(iteration_lines(a, b, rate * n, n, after=3600 * (a > 30)) for a, b, n in (stages if grows else stages[:2])))
    (row,) = results("run", capsys=capsys)["runs"]
    assert (ids(row), row["batches"]) == ([], [16, 32, 64] if grows else [16, 32])
    assert row["useful_tokens_per_s_per_gpu"]["spread"] == pytest.approx(0, abs=1e-3)
    assert row["useful_tokens_per_s_per_gpu"]["median"] == pytest.approx(64 * 4096 / seconds_of() / 16, rel=1e-3)
    assert main(["results", "run", "--measured", "x.jsonl"]) == 1
    assert "its batch ramps up to 64" in capsys.readouterr().err
    assert main(["gap", "run", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["runs"]
    assert found["measured"]["step_s"] == pytest.approx(seconds_of(), rel=1e-3) and found["predicted"]["inside"]
    assert main(["watch", "run", "--once", "--json"]) == 0
    (seen,) = json.loads(capsys.readouterr().out)["runs"]
    assert ids(seen) == [] and seen["step_time_s"]["max"] == seen["step_time_s"]["min"]


def test_starts_of_different_speeds_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(iteration_lines(1, 40, 4.0, BATCH), iteration_lines(21, 60, 6.0, BATCH, after=3600))
    (row,) = results("run", capsys=capsys)["runs"]
    assert ids(row) == ["starts"] and "4.00 and 6.00 s a step" in row["warnings"][0]["text"]
    assert main(["results", "run", "--measured", "x.jsonl"]) == 1
    for command in ("gap", "next"):
        assert main([command, "run", "--json"]) == 0
        assert "4.00 and 6.00 s a step" in capsys.readouterr().out
    write(iteration_lines(1, 40, 4.0, BATCH), iteration_lines(21, 60, 4.2, BATCH, after=3600))
    assert ids(results("run", capsys=capsys)["runs"][0]) == []


@pytest.mark.parametrize(
    "each, full, counted, earlier",
    [
        ([[8, 8], [8, 8]], 8, 2, ()),
        ([[8, 8], [4, 4], [4]], 8, 2, (8,)),
        ([[2, 4, 8], [4, 8]], 8, 2, ()),
        ([[2, 4, 8], [2, 4]], None, 1, (2, 4, 8)),
        ([[4, 4], [8, 8]], 8, 1, (4,)),
        ([[4, 8, 16]], 8, 1, (4, 8)),
        ([[None, 8], [None, None]], None, 2, ()),
        ([], 8, 0, ()),
    ],
)
def test_the_last_settings(each: list[list[int | None]], full: int | None, counted: int, earlier: Any) -> None:
    """Attempts begin at step 1, 2, 3 and so on, so a later one repeats the steps of the one before."""
    attempts: tuple[Attempt, ...] = tuple(
        tuple(step(i + n, 1.0, batch) for n, batch in enumerate(some)) for i, some in enumerate(each, 1)
    )
    found = last_settings(Log((), attempts), full)
    assert (len(found.attempts), found.earlier) == (counted, earlier)
