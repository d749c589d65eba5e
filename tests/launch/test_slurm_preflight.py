"""What stops a run before it costs anything, asked of a real Slurm whose nodes have pretend GPUs and no driver."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from moedsl.launch import follow, preflight, script
from moedsl.launch.in_job import head_check
from moedsl.launch.preflight import Checked
from moedsl.launch.submit import submit
from tests.launch.slurm_launch import planned, program


@pytest.mark.parametrize(
    ("gpus", "partition", "wrong"),
    [
        (64, "gb200", ""),
        (64, "h100", "the plan is for gb200; the GPUs of partition h100 are h100"),
        (128, "gb200", "the job needs 32 nodes with 4 GPUs, and partition gb200 has 16"),
        (64, "long", "partition long has no nodes"),
    ],
)
def test_the_partition_is_compared_with_the_plan(login_node: Path, gpus: int, partition: str, wrong: str) -> None:
    made = planned(gpus)
    cluster = evolve(made.cluster, partition=partition)
    found = preflight.slurm([Checked(made.plan, made.launch)], cluster, ())
    assert [d.message for d in found] == [wrong] * bool(wrong)


def test_a_node_without_a_driver_ends_the_job_in_its_first_seconds(
    login_node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = planned(8)
    payload = script.with_preflight(program("print('trains')"), made.plan, made.launch, made.cluster)
    done = submit([made.task(login_node, payload)], "checked", login_node, print)
    assert done.experiment is not None, done.why_not
    assert follow.report(done.experiment, follow.wait(done.experiment)) == 1
    said = capsys.readouterr().err
    assert "moedsl preflight: CUDA's driver cannot be loaded" in said
    assert f"exit code {head_check.WRONG}" in said
    assert "trains" not in said
