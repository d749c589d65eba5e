"""`moedsl watch ID` on a real Slurm: a chain whose first job loses a rank, followed from its start to its end."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moedsl.cli.commands import run as run_command
from moedsl.cli.commands import watch
from moedsl.cli.main import main
from tests.helpers import rotation
from tests.launch.slurm_launch import run_text

TRAINS = """
import os, signal, sys, time
from datetime import datetime
from pathlib import Path

folder, rank = Path({folder!r}), int(os.environ["RANK"])
tracker = folder / "latest_checkpointed_iteration.txt"
begin = int(tracker.read_text()) if tracker.exists() else 0
while not (folder / "looked").exists():  # the first look of `watch` is before the first step, on a busy machine too
    time.sleep(0.1)
for step in range(begin + 1, 201):
    time.sleep(0.1)
    if rank == 7:
        print(f" [{{datetime.now():%Y-%m-%d %H:%M:%S}}] iteration {{step:8d}}/     200 | consumed samples: {{64 * step:12d}} |"
              " elapsed time per iteration (ms): 100.0 | learning rate: 3.000000E-04 | global batch size:    64 |"
              " lm loss: 1.100000E+01 | loss scale: 1.0 | grad norm: 2.000 | number of skipped iterations:   0 |"
              " number of nan iterations:   0 |", flush=True)
    if rank == 0 and step % 20 == 0:
        tracker.write_text(f"{{step}}")
        print(f"  successfully saved checkpoint from iteration {{step:7d}} to {{folder}} [ t 1/2, p 1/2 ]", flush=True)
    if step == 50 and not begin:
        time.sleep(1)
        if rank == 1:
            raise ValueError("this rank is lost")
        time.sleep(60)
"""
"""A stand-in for training: the lines are Bridge's, and the first start ends at step 50."""


@pytest.mark.skipif(not rotation.ALL, reason="failed in one of four runs, cause not found: MOEDSL_WIDE=all")
def test_a_chain_is_followed_as_one_run(
    login_node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "saves"
    folder.mkdir()
    fields = f'set checkpoint.save = "{folder}"; set train.train_iters = 200; data "/d"; resilience preemption\n'
    (tmp_path / "run.moe").write_text(fields + run_text(8, "chain on").replace("00:05:00", "01:00:00"))
    monkeypatch.setattr(run_command, "recipe_text", lambda plan: TRAINS.format(folder=str(folder)))
    assert main(["run", str(tmp_path / "run.moe"), "--cluster", "--no-preflight", "--detach"]) == 0
    id = capsys.readouterr().out.strip()

    def looked(seconds: float) -> None:
        (folder / "looked").touch()
        time.sleep(seconds)

    monkeypatch.setattr(watch, "time", SimpleNamespace(time=time.time, sleep=looked))  # of this module alone
    assert main(["watch", id, "--every", "1", "--json"]) == 0
    each = [json.loads(text)["runs"] for text in capsys.readouterr().out.splitlines()]
    assert all(len(runs) == 1 for runs in each)
    seen = [runs[0] for runs in each]
    assert {"waiting", "training"} <= {run["state"] for run in seen}
    last: dict[str, Any] = seen[-1]
    assert (last["state"], last["iteration"], last["attempts"]) == ("finished", 200, 2)
    assert [job["state"] for job in last["jobs"]][:2] == ["FAILED", "SUCCEEDED"]
    assert last["saves"] == [*range(20, 201, 20)]
    assert last["goodput"]["repeats"] * last["goodput"]["elapsed_s"] == pytest.approx(10 * 0.1)
    assert ("failed_rank", "rank 1 on") in [(a["id"], a["text"][:9]) for a in last["alarms"]]
    assert main(["watch", id]) == 0
    said = capsys.readouterr().out
    assert "finished" in said and "2 starts, 10 saves" in " ".join(said.split())
