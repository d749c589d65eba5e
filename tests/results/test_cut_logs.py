"""A job that is killed cuts its last line anywhere: what the line has counts, what it lacks is not NaN."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attrs import fields

from moedsl.cli.main import main
from moedsl.runs.results import log
from tests.helpers.logs import iteration_line

RUN = "qwen3_30b_a3b; h100 x 16; seq 4k; batch 64; fit first"
OF = 40
END = " number of skipped iterations:   0 | number of nan iterations:   0 |"


def whole(i: int, loss: bool = True) -> str:
    return iteration_line(i, OF, 14.3908, 64, 209.6, at=i, loss=loss)


LINE = whole(5).rstrip("\n")
MEMORY = "[Rank 0] (after 1 iterations) memory (GB) | mem-max-allocated-gigabytes: 66.000 | mem-alloc-retires: 0\n"
VALUES = [f.name for f in fields(log.Step) if f.name not in ("stamp", "iteration", "of", "seconds", "has_end")]


def steps(text: str) -> list[log.Step]:
    return [s for s in log.lines(text.encode()) if isinstance(s, log.Step)]


@pytest.mark.parametrize(
    "behind", ["", whole(3), MEMORY, "Step Time : 9.50s GPU utilization: 410.0MODEL_TFLOP/s/GPU\n"]
)
def test_a_line_cut_anywhere_has_its_own_values_or_none(behind: str) -> None:
    (truth,), own = steps(LINE), list(log.lines(behind.encode()))
    for at in range(len(LINE)):
        said = list(log.lines((LINE[:at] + behind).encode()))
        assert said[len(said) - len(own) :] == own, LINE[:at]
        for step in said[: len(said) - len(own)]:
            assert isinstance(step, log.Step)
            assert (step.stamp, step.iteration, step.seconds) == (truth.stamp, truth.iteration, truth.seconds)
            assert all(getattr(step, name) in (getattr(truth, name), None) for name in VALUES), LINE[:at]


@pytest.mark.parametrize("at", range(LINE.index("| elapsed"), len(LINE), 7))
def test_a_line_that_was_cut_is_not_nan(at: int) -> None:
    search = log.NanSearch()
    for step in steps("".join(map(whole, range(1, 5))) + LINE[:at]):
        search.add(step)
    assert search.found is None


@pytest.mark.parametrize("end", [END, ""], ids=["as Bridge", "without an end"])
def test_a_whole_line_without_its_loss_is_nan(end: str) -> None:
    search = log.NanSearch()
    for step in steps("".join(whole(i, loss=i < 5).replace(END, end) for i in range(1, 6))):
        search.add(step)
    assert search.found == 5


@pytest.mark.parametrize("after", [0, 1], ids=["at the end", "in the middle"])
@pytest.mark.parametrize("glue", ["", "\n"], ids=["glued", "a line"])
def test_a_killed_run_is_unfinished(
    after: int, glue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next job goes on from the checkpoint of step 20."""
    monkeypatch.chdir(tmp_path)
    assert main(["compile", "-e", RUN, "-o", "."]) == 0
    cut = whole(30)[: LINE.index(" learning rate")]
    again = glue + "".join(map(whole, range(21, OF + 1)))
    Path("train.log").write_text("".join(map(whole, range(1, 30))) + cut + again * after)
    capsys.readouterr()
    assert main(["results", "train.log", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["runs"]
    assert (row["status"], row["iteration"]) == (("ok", OF) if after else ("unfinished", 30))
    assert main(["watch", "train.log", "--once", "--json"]) == 0
    (seen,) = json.loads(capsys.readouterr().out)["runs"]
    assert seen["attempts"] == 1 + after and not [a for a in seen["alarms"] if a["id"] == "nan"]


def test_a_run_with_a_nan_is_said_to_have_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has a speed, which `gap` explains, and a layout, which `next` does not try again."""
    monkeypatch.chdir(tmp_path)
    assert main(["compile", "-e", RUN, "-o", "."]) == 0
    Path("train.log").write_text("".join(whole(i, loss=i < 30) for i in range(1, 31)))
    for command in ("gap", "next"):
        capsys.readouterr()
        assert main([command, "train.log"]) == 0
        assert "failed, loss or gradient is NaN at iteration 30" in capsys.readouterr().out
        assert main([command, "train.log", "--json"]) == 0
        assert "failed, loss or gradient is NaN at iteration 30" in capsys.readouterr().out
