"""Logs with numbers that no run has, and lines made to be slow, are read; what cannot be is left out."""

import json
import re
import time
from pathlib import Path

import pytest
from attrs import fields

from moedsl.cli.main import main
from moedsl.diagnose import log_lines
from moedsl.runs import gap
from moedsl.runs.results import measure
from tests.helpers import rotation
from tests.helpers.logs import iteration_line

RUN = "qwen3_30b_a3b; h100 x 16; seq 4k; batch 64; fit first"
STEPS = 12
ITERATION = (
    " [2026-11-23 10:00:00] iteration {i:8d}/      12 | elapsed time per iteration (ms): 9500.0 | "
    "global batch size: 64 | lm loss: 1.5E+00 | grad norm: 2.0 | number of skipped iterations: 3 | "
    "number of nan iterations: 4 | throughput per GPU (TFLOP/s/GPU): 400.0 |\n"
)
OTHERS = (
    "Step Time : 9.50s GPU utilization: 410.0MODEL_TFLOP/s/GPU\n"
    "[Rank 7] (after 8 iterations) memory (GB) | mem-max-allocated-gigabytes: 100.5 |\n"
    "    batch-generator ................................: (1.13, 2.51)\n"
    "MnRtt/Rnk: 10.5ms/5 | MxRtt/Rnk: 11.5ms/6 | MnClk/Rnk: 1700MHz/1 | MxClk/Rnk: 1900MHz/2\n"
)
NUMBERS = (
    "12 |", "9500.0", "64 |", "1.5E+00", "2.0 |", "3 |", "4 |", "400.0", "9.50", "410.0", "7]", "100.5", "1.13", "2.51",
    "10.5", "11.5", "1700", "1900",
)  # fmt: skip
ODD = ("0", "-1", "nan", "inf", "1e400", "9" * 5000, "1.2.3", ".", "", "1e-320", "\N{ARABIC-INDIC DIGIT FIVE}")


def _drawn(number: str) -> list[str]:
    """Two odd texts for each number, so that a run has each of them for three numbers; all where all are asked for."""
    if rotation.ALL:
        return list(ODD)
    shuffled, first = rotation.dice("odd").sample(ODD, len(ODD)), 2 * NUMBERS.index(number)
    return [shuffled[i % len(ODD)] for i in (first, first + 1)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    assert main(["compile", "-e", RUN, "-o", str(out)]) == 0
    return out


def _log(number: str, odd: str) -> str:
    text = "".join(ITERATION.format(i=i) for i in range(1, STEPS + 1)) + OTHERS
    number = number.rstrip(" |]")
    damaged = re.sub(rf"(?<=[:/( k]){re.escape(number)}(?=[ \n,)\]msM])", odd, text)
    assert damaged != text
    return damaged


def _refuse(constant: str) -> None:
    pytest.fail(f"{constant} is no JSON")


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_that_no_run_has(number: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for odd in _drawn(number):
        (folder / "train.log").write_text(_log(number, odd))
        for command in ("results", "gap"):
            capsys.readouterr()
            code = main([command, str(folder / "train.log"), "--json"])
            said = capsys.readouterr()
            assert code in (0, 1) and "internal" not in said.err, (odd, said.err)
            if code == 0:
                json.loads(said.out, parse_constant=_refuse)


SLOW = {
    "memory": "[Rank 1] " * 100_000 + " memory (GB) x",
    "iteration": "[1 1 1 1" * 100_000 + " iteration x",
    "step": "Step Time : 9.9" * 100_000,
}


@pytest.mark.parametrize("text", SLOW.values(), ids=SLOW)
def test_a_line_made_to_be_slow(text: str) -> None:
    start = time.process_time()
    assert log_lines.read_line(text) is None
    assert time.process_time() - start < 2


@pytest.mark.parametrize("text", ["a-" * 500_000 + " batch-generator", "batch-generator .." * 100_000 + "." * 500_000])
def test_a_timer_made_to_be_slow(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(text)
    start = time.process_time()
    assert gap.problems([tmp_path / "a.log"], [9.5]) == []
    assert time.process_time() - start < 2


# A job that is killed cuts its last line anywhere: what the line has counts, what it lacks is not NaN.

OF = 40
END = " number of skipped iterations:   0 | number of nan iterations:   0 |"


def whole(i: int, loss: bool = True) -> str:
    return iteration_line(i, OF, 14.3908, 64, 209.6, at=i, loss=loss)


LINE = whole(5).rstrip("\n")
MEMORY = "[Rank 0] (after 1 iterations) memory (GB) | mem-max-allocated-gigabytes: 66.000 | mem-alloc-retires: 0\n"
VALUES = [f.name for f in fields(log_lines.Step) if f.name not in ("stamp", "iteration", "of", "seconds", "has_end")]


def steps(text: str) -> list[log_lines.Step]:
    return [s for _, s in log_lines.lines(text.encode()) if isinstance(s, log_lines.Step)]


@pytest.mark.parametrize(
    "behind", ["", whole(3), MEMORY, "Step Time : 9.50s GPU utilization: 410.0MODEL_TFLOP/s/GPU\n"]
)
def test_a_line_cut_anywhere_has_its_own_values_or_none(behind: str) -> None:
    (truth,), own = steps(LINE), [line for _, line in log_lines.lines(behind.encode())]
    for at in range(len(LINE)):
        said = [line for _, line in log_lines.lines((LINE[:at] + behind).encode())]
        assert said[len(said) - len(own) :] == own, LINE[:at]
        for step in said[: len(said) - len(own)]:
            assert isinstance(step, log_lines.Step)
            assert (step.stamp, step.iteration, step.seconds) == (truth.stamp, truth.iteration, truth.seconds)
            assert all(getattr(step, name) in (getattr(truth, name), None) for name in VALUES), LINE[:at]


@pytest.mark.parametrize("at", range(LINE.index("| elapsed"), len(LINE), 7))
def test_a_line_that_was_cut_is_not_nan(at: int) -> None:
    assert measure.first_nan(steps("".join(map(whole, range(1, 5))) + LINE[:at])) is None


@pytest.mark.parametrize("end", [END, ""], ids=["as Bridge", "without an end"])
def test_a_whole_line_without_its_loss_is_nan(end: str) -> None:
    assert measure.first_nan(steps("".join(whole(i, loss=i < 5).replace(END, end) for i in range(1, 6)))) == 5


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
