"""What `moedsl run` leaves behind on a real Slurm: a sweep's results by its id, and why a job ended in its first seconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from moedsl.cli.commands import run as run_command
from moedsl.cli.main import main
from moedsl.planner.plan import Plan
from tests.launch.slurm_launch import run_text

PRINTS = """
import os, sys
if os.environ["RANK"] != "3":
    sys.exit()
for i in range(1, 1 + {steps}):
    ms = {ms} * (2 if i < 4 else 1 + i % 3 / 1000)
    print(f" [2026-11-02 10:11:{{i:02d}}] iteration {{i:8d}}/      30 | consumed samples: {{64 * i:12d}} |"
          f" elapsed time per iteration (ms): {{ms:.1f}} | learning rate: 3.000000E-04 | global batch size:    64 |"
          f" lm loss: 1.100000E+01 | loss scale: 1.0 | grad norm: 2.000 |"
          f" number of skipped iterations:   0 | number of nan iterations:   0 |", flush=True)
if {steps} < 30:
    sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.")
"""
TIMES = {1: (30, 2600.0), 2: (30, 2500.0), 4: (5, 2400.0)}
"""Steps and milliseconds by microbatch: the third runs out of memory."""


@pytest.fixture
def run_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "run.moe"
    path.write_text(run_text(4, pins="tp=2 pp=1 ep=2"))
    monkeypatch.setattr("moedsl.bridge.verify.client.is_installed", lambda: False)
    return path


def test_a_sweep_of_three_has_one_table(login_node: Path, run_file: Path, capsys: Any, monkeypatch: Any) -> None:
    """One experiment, a job for each recipe, its results by its id alone."""

    def text(plan: Plan) -> str:
        steps, ms = TIMES[plan.batch.micro_batch]
        return PRINTS.format(steps=steps, ms=ms)

    monkeypatch.setattr(run_command, "recipe_text", text)
    with run_file.open("a") as file:
        file.write("sweep micro_batch in 1, 2, 4\n")
    assert main(["run", str(run_file), "--no-preflight", "--cluster"]) == 1
    id = capsys.readouterr().out.split()[0]
    assert main(["results", id, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [r["status"] for r in data["runs"]] == ["ok", "ok", "failed"]
    assert [r["symptoms"][0]["id"] for r in data["runs"] if r["symptoms"]] == ["std.memory_failures.out_of_memory"]
    one, two, _ = data["runs"]
    assert one["useful_tokens_per_s_per_gpu"]["median"] == pytest.approx(64 * 4096 / 2.6 / 4, rel=0.002)
    assert one["predicted"]["useful_tokens_per_s_per_gpu"] > 0
    (c,) = data["comparisons"]
    assert (c["axis"], c["winner"], c["beyond_spread"]) == ("micro_batch", two["name"], True)
    assert main(["diagnose", id]) == 0
    (said,) = [part for part in capsys.readouterr().out.split("\n\n") if "first to fail" in part]
    assert "first to fail: rank 3 on n" in said and "torch.OutOfMemoryError" in said
    assert main(["diagnose", id, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["experiment"] == id
    assert [r["first_failure"]["rank"] for r in data["logs"] if r["first_failure"]] == [3]


def test_an_id_that_nobody_has(login_node: Path, capsys: Any) -> None:
    assert main(["results", "nothing_0"]) == 1
    assert "is neither a file nor the id of an experiment" in capsys.readouterr().err


def test_a_job_that_ends_in_its_first_seconds_says_why(login_node: Path, run_file: Path, capsys: Any) -> None:
    """The partition says that it has the plan's GPUs; on the node there is no driver and no Bridge of that version."""
    assert main(["run", str(run_file), "--cluster"]) == 1
    said = capsys.readouterr()
    assert "moedsl preflight: CUDA's driver cannot be loaded" in said.err, said.err
    assert "the preflight check failed (exit code 79): moedsl diagnose 'moedsl preflight:" in said.err
    assert "Exited with exit code 79" in said.err
    assert main(["logs", said.out.split()[0]]) == 0
    assert "exit code 79" in capsys.readouterr().err
