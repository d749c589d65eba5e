"""A real Slurm takes the limit of racks that a launch asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from moedsl.launch import dryrun
from moedsl.launch.script import Payload
from tests.launch.launches import cluster, launch, plan
from tests.launch.slurm_cluster import Slurm

FACTS = 'executor slurm; hardware h100; account acct; partition h100; job_dir "/tmp"; nodes_per_rack {}'


@pytest.mark.parametrize(("racks", "said"), [(1, "Switches=2@"), (2, "Switches=1@")])
def test_slurm_reads_the_switches(slurm: Slurm, login_node: Path, tmp_path: Path, racks: int, said: str) -> None:
    """Two nodes, in racks of one and of two; the job is held, so nothing runs."""
    on = cluster(FACTS.format(racks))
    sent = dryrun.dryrun(launch(plan("h100", 16, {"ep": 8}), on), on, Payload({"p.py": "pass\n"}, "p.py"))
    file = tmp_path / "job.sh"
    file.write_text(next(text for name, text in sent.files.items() if name.endswith("_sbatch.sh")))
    number = slurm.ask("sbatch", "--hold", "--parsable", str(file)).strip().partition(";")[0]
    try:
        assert said in slurm.ask("scontrol", "show", "job", number)
    finally:
        slurm.ask("scancel", number)
