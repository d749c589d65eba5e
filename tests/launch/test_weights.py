"""Fine-tuning without weights is not submitted; a dry run shows what would be."""

from __future__ import annotations

from pathlib import Path

import pytest

from moedsl.cli.main import main

RUN = """cluster lab { executor slurm; hardware h100; job_dir "/r" }
qwen3_30b_a3b; h100 x 16; task sft; data "/data/conversations"
"""


def test_it_is_not_submitted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.moe"
    file.write_text(RUN)
    assert main(["run", str(file), "--cluster", "--no-preflight"]) == 1
    assert "error[plan.sft_without_weights]: run `main` cannot start" in capsys.readouterr().err
    assert main(["run", str(file), "--cluster", "--dryrun"]) == 0
    assert "error[" not in capsys.readouterr().err
