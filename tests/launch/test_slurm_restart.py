"""`resilience ft` on a real Slurm: NVIDIA's launcher restarts ranks that are killed, hang, or lose their node."""

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import pytest
from attrs import evolve

from moedsl.launch import follow
from moedsl.launch.derive import Chain
from moedsl.launch.script import script
from moedsl.launch.store import Experiment, Job
from moedsl.launch.submit import chained, submit
from tests.helpers import rotation
from tests.helpers.paths import ROOT
from tests.launch import launches
from tests.launch.launches import Patch, unable
from tests.launch.slurm_cluster import Slurm
from tests.launch.slurm_launch import Planned, payload, run_text
from tests.launch.test_slurm_chain import EXIT, logs

PACKAGE = ROOT / ".setup" / "resiliency"
FT = """
set checkpoint.save = "{folder}"; set train.train_iters = {steps}; data "/d"; resilience ft
rules quick of launch {{
  derive ft_launcher.step = 4 because "a step takes 0.2 s here" cite ours "this test"
  derive first_node_check = 2 because "a test waits for it" cite ours "this test"
}}
"""


@pytest.fixture(scope="module", autouse=True)
def package() -> None:
    if not PACKAGE.exists():
        unable("no nvidia-resiliency-ext; tools/setup fetches it")


@pytest.fixture
def short() -> Iterator[Path]:
    """A temporary folder with a short name: a socket of the launcher's monitors has a path of at most 107 characters."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def started(
    login_node: Path, steps: int, starts: str, facts: str = "", jobs: int = 0, time: str = "00:05:00"
) -> tuple[Experiment, Path]:
    """The experiment of a run under ft_launcher that fails so, as one job or a chain, and its folder of checkpoints."""
    folder = login_node / "saves"
    folder.mkdir(parents=True)
    text = FT.format(folder=folder, steps=steps) + run_text(8, f'env {{ PYTHONPATH "{PACKAGE}" }}; {facts}')
    made = Planned(*launches.launched(text, "here"))
    launch = evolve(made.launch, chain=Chain(jobs, steps, str(folder)), settings=(*made.launch.settings, EXIT))
    job = evolve(made, launch=launch if jobs else made.launch, cluster=evolve(made.cluster, time=time))
    task = job.task(login_node, payload("restarts.py", str(folder), str(steps), starts))
    done = submit(chained(task, job.launch.chain), "restarts", login_node, print)
    assert done.experiment is not None, done.why_not
    return done.experiment, folder


def trained(folder: Path) -> dict[int, list[int]]:
    """The steps of each start."""
    rows = [tuple(map(int, line.split())) for line in (folder / "trained.txt").read_text().splitlines()]
    return {start: [step for s, step in rows if s == start] for start in sorted({s for s, _ in rows})}


def lost_node(slurm: Slurm, experiment: Experiment, folder: Path, name: Callable[[], str]) -> tuple[list[Job], str]:
    """Lose a node as soon as the ranks are in the start that waits for it; the ends of the jobs, and the node."""
    while not (folder / "lose").exists():
        assert not any(job.ended for job in experiment.jobs()), logs(experiment)
        time.sleep(0.5)
    lost = name()
    slurm.tell("lose", lost)
    slurm.ask("scontrol", "update", f"nodename={lost}", "state=down", "reason=lost")  # at once, not after SlurmdTimeout
    try:
        return follow.wait(experiment), lost
    finally:
        slurm.tell("node", lost)


def survives_a_kill_a_hang_and_the_loss_of_a_node(slurm: Slurm, login_node: Path) -> None:
    experiment, folder = started(login_node, 10, "kill,hang,lose,train", "spare_nodes 1")
    (job,), lost = lost_node(slurm, experiment, folder, (folder / "lose").read_text)
    assert job.state == "SUCCEEDED", logs(experiment)
    assert trained(folder) == {1: [1, 2], 2: [3, 4], 3: [5, 6], 4: [7, 8, 9, 10]}
    places = [(folder / f"starts.{rank}").read_text().split() for rank in range(8)]
    assert len({nodes[2] for nodes in places}) == len({nodes[3] for nodes in places}) == 2
    assert lost in {nodes[2] for nodes in places} and lost not in {nodes[3] for nodes in places}


def loses_its_first_node_and_the_next_job_goes_on(slurm: Slurm, login_node: Path) -> None:
    experiment, folder = started(login_node, 6, "lose,train", "spare_nodes 1; requeue off", jobs=2)

    def first() -> str:
        nodes = slurm.ask("squeue", "-h", "-t", "R", "-o", "%N").strip()
        return slurm.ask("scontrol", "show", "hostnames", nodes).split()[0]

    (ended, whole), _ = lost_node(slurm, experiment, folder, first)
    assert (ended.state, ended.says.split()[0], whole.state) == ("CANCELLED", "CANCELLED", "SUCCEEDED"), logs(
        experiment
    )
    assert trained(folder) == {1: [1, 2], 2: [3, 4, 5, 6]}


def meets_its_time_limit_and_the_next_job_goes_on(_: Slurm, login_node: Path) -> None:
    """This Slurm also signals the monitors of ranks (proctrack/linuxproc), so that a save at the end may fail."""
    minutes = "00:03:00"  # it signals up to a minute early
    experiment, folder = started(login_node, 200, "stop,train", jobs=2, time=minutes)
    assert follow.wait(experiment)[1].state == "SUCCEEDED", logs(experiment)
    steps = trained(folder)
    assert steps[2] == [*range(steps[2][0], 201)] and 10 < steps[1][-1] // 2 * 2 < steps[2][0] <= steps[1][-1] + 1


def ends_with_its_cause_where_each_start_fails(_: Slurm, login_node: Path) -> None:
    experiment, folder = started(login_node, 6, "fail")
    jobs = follow.wait(experiment)
    assert [job.state for job in jobs] == ["FAILED"], logs(experiment)
    assert max(len(path.read_text().splitlines()) for path in folder.glob("starts.*")) == 4  # one start, and three more
    with redirect_stderr(StringIO()) as told:
        assert follow.report(experiment, jobs) == 1
    assert re.search(r"first to fail: rank \d on n\d+ at \S+: FileNotFoundError: no data", told.getvalue())


RUNS: Mapping[str, Callable[[Slurm, Path], None]] = {
    "failures within a job": survives_a_kill_a_hang_and_the_loss_of_a_node,
    "first node": loses_its_first_node_and_the_next_job_goes_on,
    "time limit": meets_its_time_limit_and_the_next_job_goes_on,
    "every start": ends_with_its_cause_where_each_start_fails,
}
"""Each has three or four launchers, whose imports take 4 s of a core each."""
WAITING = ("first node", "time limit")
"""Those that wait for Slurm's own clocks, which a busy machine upsets: `make test-all` runs them."""
DRAWN = [name for name in RUNS if rotation.ALL or name not in WAITING]


@pytest.mark.parametrize("what", rotation.some("restarts", DRAWN, 1))
def test_a_run_under_ft_launcher(what: str, slurm: Slurm, login_node: Path, short: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("TMPDIR", str(short))
    RUNS[what](slurm, login_node)


@pytest.mark.parametrize("more", ["", "resilience preemption\n"], ids=["by the launcher", "by the script"])
def test_the_signal_before_the_limit_makes_ranks_save(more: str, tmp_path: Path, short: Path) -> None:
    """The script of a node gets it alone, as proctrack/cgroup sends it; the launcher's monitors must stay until the end."""
    text = FT.format(folder=tmp_path, steps=1000) + more + run_text(8, f'env {{ PYTHONPATH "{PACKAGE}" }}')
    made = Planned(*launches.launched(text, "here"))
    node = evolve(made.launch, nodes=1, ranks_per_node=2)
    (tmp_path / "job.sh").write_text(script(node, made.cluster, payload("restarts.py", str(tmp_path), "1000", "train")))
    own = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_NODEID": "0", "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1"}
    environment = {**os.environ, **own, "TMPDIR": str(short)}
    with (tmp_path / "log").open("w") as log:
        job = subprocess.Popen(["bash", tmp_path / "job.sh"], env=environment, stdout=log, stderr=log)
    while not (tmp_path / "trained.txt").exists():
        assert job.poll() is None, (tmp_path / "log").read_text()
        time.sleep(0.2)
    job.send_signal(signal.SIGTERM)
    assert job.wait() == 0, (tmp_path / "log").read_text()
    steps = trained(tmp_path)[1]
    assert steps == [*range(1, int((tmp_path / "latest_checkpointed_iteration.txt").read_text()) + 1)]


def test_ranks_restart_within_their_processes(slurm: Slurm, login_node: Path) -> None:
    """An error of one rank, then a hang: the same two processes go on from the last checkpoint."""
    folder = login_node / "saves"
    folder.mkdir(parents=True)
    fields = f'set checkpoint.save = "{folder}"; data "/d"; resilience inprocess_restart granularity=rank\n'
    made = Planned(*launches.launched(fields + run_text(8, f'env {{ PYTHONPATH "{PACKAGE}" }}'), "here"))
    two = evolve(made, launch=evolve(made.launch, nodes=2, gpus_per_node=1, tasks_per_node=1, ranks_per_node=1))
    done = submit(
        [two.task(login_node, payload("in_process.py", str(folder), "8", "raise,hang,train"))], "in", login_node, print
    )
    assert done.experiment is not None, done.why_not
    assert [job.state for job in follow.wait(done.experiment)] == ["SUCCEEDED"], logs(done.experiment)
    for rank in range(2):
        rows = [json.loads(line) for line in (folder / f"trained.{rank}").read_text().splitlines()]
        assert [(call, step) for _, call, step in rows] == [
            (1, 1), (1, 2), (2, 3), (2, 4), (3, 5), (3, 6), (3, 7), (3, 8),
        ]  # fmt: skip
        assert len({process for process, _, _ in rows}) == 1
