"""Steps that ms-swift, NeMo 2 and Primus print."""

import json
from pathlib import Path

import pytest

from moedsl.cli.main import main
from moedsl.diagnose.log_lines import Memory, Step, lines, read_line

SWIFT = (
    "{{'loss': {loss}, 'grad_norm': 2.2, 'learning_rate': 2e-06, 'memory(GiB)': 59.9, "
    "'elapsed_time_per_iteration': {seconds}, 'iteration': '{i}/2000'}}"
)
SWIFT_SPEED = (
    "Train: 5/50 {'loss': 1.5, 'train_speed(iter/s)': 0.125, 'global_step/max_steps': '5/50', 'elapsed_time': '40s'}"
)
NEMO = (
    "Training epoch 0, iteration {i}/99 | lr: 4.6e-06 | global_batch_size: 512 | global_step: {i} | "
    "peak_memory_usage: 71240000000 | reduced_train_loss: 10.20 | train_step_timing in s: {seconds} | consumed_samples: 1"
)
PRIMUS = (
    "[20260901 10:00:01][rank-7/8][INFO ] iteration {i}/ 50 | consumed samples: 128 | elapsed time per iteration (ms): "
    "{ms}/2010.2 | throughput per GPU (TFLOP/s/GPU): 550.4/548.0 | global batch size: 128 | lm loss: 1.1E+01 | "
    "grad norm: 3.1 | number of skipped iterations: 0 | number of nan iterations: 0 |"
)


def test_each_format_is_read() -> None:
    (step,) = [line for _, line in lines(SWIFT.format(i=10, loss=1.55, seconds=9.58).encode())]
    assert isinstance(step, Step)
    assert (step.iteration, step.of, step.seconds, step.loss, step.grad_norm) == (10, 2000, 9.58, 1.55, 2.2)
    (step,) = [line for _, line in lines(SWIFT_SPEED.encode())]
    assert isinstance(step, Step) and (step.iteration, step.of, step.seconds) == (5, 50, 8.0)
    nemo, peak = [line for _, line in lines(NEMO.format(i=29, seconds=26.31).encode())]
    assert isinstance(nemo, Step) and peak == Memory(0, 71240000000)
    assert (nemo.iteration, nemo.of, nemo.seconds, nemo.global_batch) == (30, 100, 26.31, 512)
    step = read_line(PRIMUS.format(i=10, ms=2000.0))
    assert isinstance(step, Step) and (step.seconds, step.tflops) == (2.0, 550.4)


@pytest.mark.parametrize(
    "cut", ["{'loss': 1.5, 'iteration': '5/50'", "{'loss': __import__('os'), 'iteration': '5/50'}"]
)
def test_a_line_that_is_no_dictionary_is_no_step(cut: str) -> None:
    assert [*lines(cut.encode())] == []


@pytest.mark.parametrize(
    ("each", "tokens"),
    [
        ([SWIFT.format(i=5 * i, loss=1.5, seconds=8.0) for i in range(1, 9)], 8192 * 128 / 16 / 8.0),
        ([NEMO.format(i=i, seconds=26.0) for i in range(1, 9)], 8192 * 512 / 16 / 26.0),
        ([PRIMUS.format(i=i, ms=2000.0) for i in range(1, 9)], 8192 * 128 / 16 / 2.0),
    ],
)
def test_results_measures_it(
    each: list[str], tokens: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.log").write_text("\n".join(each) + "\n")
    words = [
        "--seq",
        "8192",
        "--gpus",
        "16",
        "--global-batch",
        "512" if "NeMo" in each[0] or "lr:" in each[0] else "128",
    ]
    assert main(["results", str(tmp_path / "train.log"), *words, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["runs"]
    assert row["useful_tokens_per_s_per_gpu"]["median"] == pytest.approx(tokens)
