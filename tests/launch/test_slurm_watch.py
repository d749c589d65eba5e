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
from tests.launch.slurm_launch import run_text

TRAINS = """
import os, time
from datetime import datetime
from pathlib import Path

folder, rank, job = Path({folder!r}), int(os.environ["RANK"]), os.environ["SLURM_JOB_ID"]
tracker, looks = folder / "latest_checkpointed_iteration.txt", folder / "looks"


def meet(step):  # as a collective does: Slurm starts the ranks of one node seconds after those of another
    (folder / f"{{job}}.{{step}}.{{rank}}").touch()
    while len([*folder.glob(f"{{job}}.{{step}}.*")]) < 8:
        time.sleep(0.1)


def looked(more):
    end = len(looks.read_text()) + more if looks.exists() else more
    while not looks.exists() or len(looks.read_text()) < end:
        time.sleep(0.1)


def say(line):  # at once: print writes the end of a line by itself, and other ranks between
    os.write(1, f"{{line}}\\n".encode())


begin = int(tracker.read_text()) if tracker.exists() else 0
if rank == 7 and not begin:
    looked(1)  # `watch` sees the run before its first step
meet(begin)  # all have read where they begin
for step in range(begin + 1, 201):
    time.sleep(0.02)
    if rank == 7:
        say(f" [{{datetime.now():%Y-%m-%d %H:%M:%S}}] iteration {{step:8d}}/     200 | consumed samples: {{64 * step:12d}} |"
            " elapsed time per iteration (ms): 20.0 | learning rate: 3.000000E-04 | global batch size:    64 |"
            " lm loss: 1.100000E+01 | loss scale: 1.0 | grad norm: 2.000 | number of skipped iterations:   0 |"
            " number of nan iterations:   0 |")
    if rank == 0 and step % 20 == 0:
        tracker.write_text(f"{{step}}")
        say(f"  successfully saved checkpoint from iteration {{step:7d}} to {{folder}} [ t 1/2, p 1/2 ]")
    if step == 50:
        if rank == 7 and begin:
            looked(2)  # the second of them begins after this step
        meet(50)
        if rank == 1 and not begin:
            raise ValueError("this rank is lost")
        if not begin:
            time.sleep(60)
"""
"""A stand-in for training: the lines are Bridge's, and the first start ends at step 50."""


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
        with (folder / "looks").open("a") as looks:
            looks.write(".")
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
    assert last["goodput"]["repeats"] * last["goodput"]["elapsed_s"] == pytest.approx(10 * 0.02)
    assert ("failed_rank", "rank 1 on") in [(a["id"], a["text"][:9]) for a in last["alarms"]]
    assert main(["watch", id]) == 0
    said = capsys.readouterr().out
    assert "finished" in said and "2 starts, 10 saves" in " ".join(said.split())
