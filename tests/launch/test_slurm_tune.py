"""`moedsl tune` on a real Slurm: one job after the other through the launcher, and a second process that goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from moedsl.cli.commands import run as run_command
from moedsl.cli.commands.tune import Cluster
from moedsl.cli.main import main
from moedsl.planner.plan import Plan
from tests.launch.slurm_launch import run_text
from tests.launch.test_slurm_results import PRINTS


@pytest.fixture
def run_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "run.moe"
    path.write_text(run_text(4, pins="tp=2 pp=1 ep=2"))
    monkeypatch.setattr("moedsl.bridge.verify.client.is_installed", lambda: False)

    def text(plan: Plan) -> str:
        return PRINTS.format(steps=30, ms=2600.0 if plan.policy.dispatcher == "alltoall" else 2300.0)

    monkeypatch.setattr(run_command, "recipe_text", text)
    return path


def test_two_jobs_and_one_more(login_node: Path, run_file: Path, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    """Killed while the second job runs; the same command waits for that job, and submits the third."""
    words = ["tune", str(run_file), "--cluster", "--no-preflight", "-o", str(tmp_path / "way"), "--stop", "0", "--json"]
    waited: list[str] = []
    wait = Cluster.wait

    def killed(self: Cluster, id: str) -> Any:
        waited.append(id)
        if len(waited) == 2:
            raise KeyboardInterrupt
        return wait(self, id)

    monkeypatch.setattr(Cluster, "wait", killed)
    assert main([*words, "--budget", "3"]) == 130
    assert "goes on from here" in capsys.readouterr().err
    kept = json.loads((tmp_path / "way" / "journal.json").read_text())["tries"]
    assert [bool(t["row"]) for t in kept] == [True, False]
    assert kept[0]["row"]["status"] == "ok"
    assert main([*words, "--budget", "3"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [t["row"]["status"] for t in data["tries"]] == ["ok", "ok", "ok"]
    assert waited[1] == waited[2] == data["tries"][1]["id"]
    assert data["stop"] == "the budget of 3 jobs is spent"
    assert len({t["id"] for t in data["tries"]}) == 3
    assert (tmp_path / "way" / "journal.svg").read_text().count("<circle") == 3 + 1  # one is the legend's
