"""A run's own file stands where a run file does: each command answers for a script what it answers for its program."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from moedsl.cli.main import main
from tests.helpers.logs import iteration_lines
from tests.helpers.nsight_export import write
from tests.helpers.paths import ROOT
from tests.profile.test_budget import three_steps
from tests.snapshot.test_memory import EXPERTS, WEIGHTS, Allocator

SCRIPT = ROOT / "tests" / "data" / "megatron_lm" / "slurm_qwen3_235b.sh"
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of"
COMMANDS = (
    "plan {run}",
    "check {run}",
    "explain {run}",
    "profile rank0.sqlite --run {run}",
    "memory snapshot_0.pickle --run {run}",
    "diagnose failed.log --run {run}",
    "gap train.log --run {run}",
    "gap train.log={run}",
    "results train.log={run}",
    "next train.log={run}",
)


def asked(command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    code = main([*command.split(), "--json"])
    said = capsys.readouterr()
    return code, json.loads(said.out or said.err)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log, a trace and a snapshot of a run."""
    allocator = Allocator()
    allocator.alloc(4 << 30, WEIGHTS)
    allocator.alloc(12 << 30, EXPERTS)
    (tmp_path / "snapshot_0.pickle").write_bytes(pickle.dumps(allocator.snapshot()))
    (tmp_path / "train.log").write_text(iteration_lines(1, 60, 38.4, 1024))
    (tmp_path / "failed.log").write_text(iteration_lines(1, 3, 38.4, 1024) + OUT_OF_MEMORY + "\n")
    write(tmp_path / "rank0.sqlite", [three_steps()])
    (tmp_path / "train.sh").write_bytes(SCRIPT.read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_command_answers_for_a_script_what_it_answers_for_its_program(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", "train.sh", "-o", "run.moe"]) == 0
    capsys.readouterr()
    for command in COMMANDS:
        of_script, of_program = (asked(command.format(run=run), capsys) for run in ("train.sh", "run.moe"))
        names = json.dumps(of_script).replace("train.sh (imported)", "run.moe").replace("train.sh", "run.moe")
        assert json.loads(names) == json.loads(json.dumps(of_program)), command


UNSAID = {
    "unset.sh": "moedsl import unset.sh --env PP=VALUE -o run.moe",
    "bare.sh": "moedsl import bare.sh --gpu gb200 -o run.moe",
    "run_config.yaml": "moedsl import run_config.yaml --gpu gb200 --world 256 -o run.moe",
    "binary.sh": "binary.sh",
    "empty.sh": "give the script that calls torchrun",
}
"""Files that lack a variable, the GPUs or everything, with what the answer says."""


def test_what_a_file_does_not_say_is_given_to_import(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = SCRIPT.read_text()
    (folder / "unset.sh").write_text(text.replace("PP=8", ""))
    (folder / "bare.sh").write_text("\n".join(line for line in text.splitlines() if "--gres" not in line))
    (folder / "run_config.yaml").write_text("model:\n  _target_: megatron.bridge.models.GPTModelProvider\n")
    (folder / "binary.sh").write_bytes(bytes(range(256)))
    (folder / "empty.sh").write_text("")
    for command in COMMANDS:
        for name, said in UNSAID.items():
            code, found = main(command.format(run=name).split()), " ".join(capsys.readouterr().err.split())
            no_plan = "=" in command and name == "run_config.yaml"  # it has fields, and no machines to plan for
            assert code == 1 and (no_plan or said in found), (command, name, found)
