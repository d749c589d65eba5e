"""Logs with numbers that no run has, and lines made to be slow, are read; what cannot be is left out."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from moedsl.cli.main import main
from moedsl.runs import gap
from moedsl.runs.results import log
from tests.helpers import rotation

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
    assert log.read_line(text) is None
    assert time.process_time() - start < 2


@pytest.mark.parametrize("text", ["a-" * 500_000 + " batch-generator", "batch-generator .." * 100_000 + "." * 500_000])
def test_a_timer_made_to_be_slow(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(text)
    start = time.process_time()
    assert gap.problems([tmp_path / "a.log"], [9.5]) == []
    assert time.process_time() - start < 2
