"""The check of a job's nodes on a real Slurm: a node with a bad GPU is named, and left out by the next submission."""

from __future__ import annotations

from pathlib import Path

import pytest

from moedsl.cli.commands import run as run_command
from moedsl.cli.main import main
from moedsl.launch import script
from tests.launch.slurm_launch import run_text


@pytest.fixture
def run_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, login_node: Path, nvml: Path) -> Path:
    """A run of eight ranks on two nodes; its program prints where it runs. The third GPU of n2 has ECC errors."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml), prepend=":")
    monkeypatch.setenv("STANDIN_NVML", ";".join(["2062|0|0|0|0|18"] * 4))
    monkeypatch.setenv("STANDIN_NVML_n2", ";".join(f"2062|{errors}|0|0|0|18" for errors in (0, 0, 4, 0)))
    monkeypatch.setattr(script, "preflight_expectations", lambda plan, launch: {})
    monkeypatch.setattr("moedsl.bridge.verify.client.is_installed", lambda: False)
    monkeypatch.setattr(run_command, "recipe_text", lambda plan: "import os\nprint('trains on', os.uname().nodename)")
    (tmp_path / "run.moe").write_text(run_text(8))
    return tmp_path / "run.moe"


def test_a_bad_node_is_named_and_left_out(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["run", str(run_file), "--cluster", "--exclude-bad"])
    said = capsys.readouterr()
    assert "moedsl preflight: node n2 is bad: GPU 2 has 4 uncorrected ECC errors" in said.err, said.err
    assert "n2: excluded from now on" in said.err
    assert code == 0, said.err
    bad, good = said.out.split()
    assert main(["diagnose", bad]) == 0
    assert "std.preflight_failures.preflight_node" in capsys.readouterr().out
    assert main(["logs", good]) == 0
    log = capsys.readouterr().out
    assert log.count("trains on") == 8
    assert "moedsl: nodes are good: 2 in" in log and "all_reduce" in log and "slowest pair n" in log


def test_without_the_word_the_job_ends(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_file.write_text(run_text(8, "node_check on; launcher torchrun"))
    assert main(["run", str(run_file), "--cluster"]) == 1
    said = capsys.readouterr()
    assert "node n2 is bad" in said.err and len(said.out.split()) == 1


def test_the_word_needs_somebody_who_waits(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(run_file), "--cluster", "--exclude-bad", "--detach"]) == 1
    assert "error[launch.exclude_bad]" in capsys.readouterr().err
