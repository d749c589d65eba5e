"""An experiment's title: of one job its name, of several that of their file, and nothing that a folder cannot be."""

from __future__ import annotations

import pytest

from moedsl.launch.store import LONGEST_TITLE as LONGEST
from moedsl.launch.store import experiment_title as title

SWEEP = ("qwen3_16gpu_h100_bf16.main.micro_batch_1", "qwen3_16gpu_h100_bf16.main.micro_batch_2")


@pytest.mark.parametrize(
    "jobs, source, called",
    [
        (SWEEP[:1], "runs/ladder.moe", SWEEP[0]),
        (SWEEP, "runs/ladder.moe", "ladder"),
        (SWEEP, "my runs (old).v2.moe", "my-runs-old-.v2"),
        (SWEEP, "<text>", "qwen3_16gpu_h100_bf16.main.micro_batch"),
        (SWEEP, "", "qwen3_16gpu_h100_bf16.main.micro_batch"),
        (SWEEP, "...moe", "qwen3_16gpu_h100_bf16.main.micro_batch"),
        (("a_8gpu", "a_16gpu"), "<stdin>", "a"),
        (("ab", "ac"), "<stdin>", "runs"),
        (SWEEP, f"{'x' * 200}.moe", "x" * LONGEST),
    ],
)
def test_a_title(jobs: tuple[str, ...], source: str, called: str) -> None:
    assert title(jobs, source) == called
