"""A chain on a real Slurm: after a killed rank, at the time limit, when nothing helps, and followed by `moedsl watch`.

On a clock that draws failures, the jobs of a chain suffice, and few are spare.
"""

import json
import statistics
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve
from failure_clock import Training, jobs_of

from moedsl.cli.commands import launch as run_command
from moedsl.cli.commands import results as watch
from moedsl.cli.main import main
from moedsl.compiler import compile_source
from moedsl.launch import follow, store
from moedsl.launch.derive import Chain, Launch
from moedsl.launch.store import Experiment
from moedsl.launch.submit import chained, submit
from moedsl.planner.plan import Plan
from moedsl.rules.check.cluster_reader import Setting
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.launch import launches
from tests.launch.launches import Capture, Patch
from tests.launch.slurm_cluster import Slurm
from tests.launch.slurm_launch import payload, planned, run_text

EXIT = Setting("preempt_time", 40, "rule", None, None)
NEAR, MINUTES = "00:02:00", "00:05:00"
"""A limit that a job reaches, and one that none comes near. Slurm signals up to a minute early: a job of one minute at its
start, one of two minutes 20 to 80 s after it.
"""


def chain(
    login_node: Path, jobs: int, steps: int, starts: str, facts: str = "", time: str = NEAR
) -> tuple[Experiment, Path]:
    """The experiment of a chain of stand-ins on 8 ranks, and its folder of checkpoints."""
    made, folder = planned(8, facts), login_node / "run of weeks"
    launch = evolve(made.launch, chain=Chain(jobs, steps, str(folder)), settings=(*made.launch.settings, EXIT))
    limited = evolve(made, launch=launch, cluster=evolve(made.cluster, time=time))
    task = limited.task(login_node, payload("steps.py", str(folder), str(steps), starts))
    done = submit(chained(task, launch.chain), "chain", login_node, print)
    assert done.experiment is not None, done.why_not
    return done.experiment, folder


def logs(experiment: Experiment) -> list[str]:
    return ["\n".join(p.read_text() for p in sorted(Path(job.folder).glob("log*"))) for job in experiment.jobs()]


def goes_on_from_the_last_checkpoint(_: Slurm, login_node: Path) -> None:
    experiment, folder = chain(login_node, 4, 100, "kill,slow,train")
    ends = [job.state for job in follow.wait(experiment)]
    said = logs(experiment)
    assert ends == ["FAILED", "SUCCEEDED", "SUCCEEDED", "SUCCEEDED"], said
    trained = [tuple(map(int, line.split())) for line in (folder / "trained.txt").read_text().splitlines()]
    by_start = {start: [step for s, step in trained if s == start] for start in (1, 2, 3)}
    assert by_start[1] == [1, 2, 3]
    assert by_start[2][0] == 3  # the checkpoint is of step 2: what was killed after it is trained again
    assert by_start[3] == [*range(by_start[2][-1] + 1, 101)]
    assert all(later == earlier + 1 for steps in by_start.values() for earlier, later in pairwise(steps))
    assert "killed by SIGKILL" in said[0]
    assert f"goes on from step {by_start[2][-1]} of 100" in said[2]
    assert "step 100 of 100: the run is complete" in said[3]


def hangs_and_is_ended_by_its_limit_and_followed(_: Slurm, login_node: Path) -> None:
    experiment, folder = chain(login_node, 2, 10, "hang,train")
    hung, whole = follow.wait(experiment)
    assert (hung.state, hung.says, whole.state) == ("FAILED", "TIMEOUT", "SUCCEEDED"), logs(experiment)
    assert (folder / "trained.txt").read_text().split("\n2 ")[1:] == [f"{n}" for n in range(3, 10)] + ["10\n"]


def goes_on_without_a_node_that_is_lost(slurm: Slurm, login_node: Path) -> None:
    experiment, folder = chain(login_node, 2, 10, "slow,train", "requeue off", MINUTES)
    while not (folder / "trained.txt").exists():
        time.sleep(0.2)
    nodes = slurm.ask("squeue", "-h", "-t", "R", "-o", "%N").strip()
    lost = slurm.ask("scontrol", "show", "hostnames", nodes).split()[-1]
    slurm.tell("lose", lost)
    slurm.ask("scontrol", "update", f"nodename={lost}", "state=down", "reason=lost")  # at once, not after SlurmdTimeout
    try:
        jobs = follow.wait(experiment)
        assert [(job.state, job.says) for job in jobs] == [("FAILED", "NODE_FAIL"), ("SUCCEEDED", "COMPLETED")]
        assert follow.report(experiment, jobs) == 1
        assert (folder / "latest_checkpointed_iteration.txt").read_text() == "10"
    finally:
        slurm.tell("node", lost)


def goes_on_after_the_daemon_of_a_node_is_killed(slurm: Slurm, login_node: Path) -> None:
    """Slurm finds out by itself, after a minute of SlurmdTimeout; the ranks train meanwhile, and save when it ends them."""
    experiment, folder = chain(login_node, 2, 150, "slow,train", "requeue off", MINUTES)
    while not (folder / "trained.txt").exists():
        time.sleep(0.2)
    nodes = slurm.ask("squeue", "-h", "-t", "R", "-o", "%N").strip()
    lost = slurm.ask("scontrol", "show", "hostnames", nodes).split()[-1]
    slurm.tell("daemon", lost)
    try:
        jobs = follow.wait(experiment)
        assert [(job.state, job.says) for job in jobs] == [("FAILED", "NODE_FAIL"), ("SUCCEEDED", "COMPLETED")]
    finally:
        slurm.tell("node", lost)
    steps = [int(line.split()[1]) for line in (folder / "trained.txt").read_text().splitlines()]
    assert steps == [*range(1, 151)]
    assert "goes on from step 0" not in logs(experiment)[1]


SLOW: Mapping[str, Callable[[Slurm, Path], None]] = {
    "checkpoint": goes_on_from_the_last_checkpoint,
    "hang": hangs_and_is_ended_by_its_limit_and_followed,
    "lost node": goes_on_without_a_node_that_is_lost,
    "killed slurmd": goes_on_after_the_daemon_of_a_node_is_killed,
}
"""What waits for Slurm's shortest limit, a minute, or for a node to return."""


@pytest.mark.parametrize("what", rotation.some("slow chains", [*SLOW], 1))
def test_a_chain_goes_on(what: str, slurm: Slurm, login_node: Path) -> None:
    SLOW[what](slurm, login_node)


def test_a_job_that_fails_starts_again_before_the_next_one(slurm: Slurm, login_node: Path) -> None:
    experiment, folder = chain(login_node, 2, 10, "kill,train", "retries 1", MINUTES)
    first = experiment.jobs()[0].number
    while slurm.ask("sacct", "-DnXj", first, "-o", "state").split() != ["REQUEUED", "PENDING"]:
        time.sleep(0.2)
    while "JobState=PENDING" not in slurm.ask("scontrol", "show", "job", first):
        time.sleep(0.2)
    # Slurm lets it wait for two minutes; a node that still ends the first start would end the second one with it
    nodes = slurm.ask("sacct", "-DnXj", first, "-o", "nodelist%50").split()[0]
    slurm.ask("scontrol", "update", f"jobid={first}", f"excnodelist={nodes}", "starttime=now")
    assert [job.state for job in follow.wait(experiment)] == ["SUCCEEDED"] * 2, logs(experiment)
    starts = [line.split() for line in (folder / "moedsl_starts.txt").read_text().splitlines()]
    assert starts == [[f"{first}.0", "0"], [f"{first}.1", "2"]]


def test_a_chain_that_saves_nothing_ends_with_its_cause(login_node: Path, capsys: Capture) -> None:
    experiment, _ = chain(login_node, 5, 100, "fail", time=MINUTES)
    jobs = follow.wait(experiment)
    assert [job.state for job in jobs] == ["FAILED"] * 5
    assert follow.report(experiment, jobs) == 1
    told = capsys.readouterr().err
    assert "FileNotFoundError: no data" in told
    assert "\n2 jobs did not train: moedsl: 3 jobs in a row began at step 0 and saved nothing: " in told, logs(
        experiment
    )
    said = logs(experiment)
    assert all("no data" in text for text in said[:3])
    assert all(
        "3 jobs in a row began at step 0 and saved nothing" in text and "no data" not in text for text in said[3:]
    )


def test_a_chain_without_a_job_left_fails(login_node: Path, capsys: Capture) -> None:
    experiment, _ = chain(login_node, 2, 10, "part", time=MINUTES)
    jobs = follow.wait(experiment)
    assert [job.state for job in jobs] == ["SUCCEEDED", "FAILED"], logs(experiment)
    assert follow.report(experiment, jobs) == 1
    told = capsys.readouterr().err
    assert "moedsl: job 2 of the chain was the last: step 6 of 10 is saved; submit the run again" in told
    assert "first to fail" not in told


def test_a_chain_is_cancelled_as_one(login_node: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    folder = tmp_path / "saves"
    fields = f'set checkpoint.save = "{folder}"; set train.train_iters = 200; data "/d"; resilience preemption\n'
    text = fields + run_text(8, "chain on")
    (tmp_path / "run.moe").write_text(text.replace("00:05:00", "01:00:00"))
    slow = f"import sys; sys.argv[1:] = [{str(folder)!r}, '200', 'slow']\n" + payload("steps.py").files["steps.py"]
    monkeypatch.setattr(run_command, "recipe_text", lambda plan: slow)
    assert main(["run", str(tmp_path / "run.moe"), "--cluster", "--no-preflight", "--detach"]) == 0
    id = capsys.readouterr().out.strip()
    while not (folder / "trained.txt").exists():
        time.sleep(0.2)
    assert main(["cancel", id]) == 0
    experiment = store.find(id)
    assert isinstance(experiment, store.Experiment)
    jobs = experiment.jobs()
    assert len(jobs) > 1 and [int(job.name.rpartition(".")[2]) for job in jobs] == [*range(1, len(jobs) + 1)]
    assert all(job.ended for job in jobs)
    assert len((folder / "moedsl_starts.txt").read_text().splitlines()) == 1


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


def test_a_chain_is_followed_as_one_run(login_node: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
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


MINUTE, HOUR = 60.0, 3600.0
RUNS = 100


def simulated_chain(facts: str, length: str) -> tuple[Plan, Launch]:
    """A run of Qwen3-30B on 64 GB200 with its chain of jobs."""
    text = f"""qwen3_30b_a3b; gb200 x 64; data "/data/c"; set checkpoint.save = "/shared/c"; resilience preemption; {length}
cluster ours {{ default on; executor slurm; hardware gb200; chain on; {facts} }}"""
    result = compile_source(Source("run.moe", text))
    assert result.plans, result.diagnostics
    (made,) = result.plans
    return made, launches.launch(made, launches.cluster(f"executor slurm; hardware gb200; chain on; {facts}"))


CHAINS = [(0, 4, 3), (0, 24, 20), (1, 24, 3), (1, 4, 20), (5, 24, 20), (5, 4, 20)]
"""How often a job starts again, its limit in hours, and the days of the run."""
CASES = [(*each, mtbf_days) for each in CHAINS for mtbf_days in (8, 64, 2000)]


@pytest.mark.parametrize(
    ("retries", "limit", "length", "mtbf_days"), rotation.one_of_each("chains", CASES, lambda case: case[:3])
)
def test_the_jobs_of_a_chain_suffice(retries: int, limit: int, length: int, mtbf_days: int) -> None:
    """A failure every 3 hours, every day, or every month: of 20 runs, 19 are complete, and 6 of 10 jobs at most are
    spare, those of runs whose jobs start again with their whole limit."""
    again = f"retries {retries}" if retries else ""
    made, launch = simulated_chain(f'time "{limit}:00:00"; gpu_mtbf_days {mtbf_days}; {again}', f"for {length} days")
    assert launch.chain is not None and made.checkpoints is not None and made.estimate.interval is not None
    (lead,) = (s.value for s in launch.settings if s.name == "preempt_time")
    saves = made.checkpoints
    how = Training(
        step=made.estimate.interval.upper_s,
        every=saves.interval_steps,
        blocked=saves.blocked_s,
        durable=saves.write_s,
        mtbf=saves.failure_every_s,
        back=max(saves.return_s, 15 * MINUTE),
        limit=limit * HOUR - 15 * MINUTE,
        lead=lead,
        start=15 * MINUTE,
        retries=retries,
    )
    needed = sorted(jobs_of(how, launch.chain.steps, seed) for seed in range(RUNS))
    assert sum(n <= launch.chain.jobs for n in needed) >= 0.95 * RUNS, (launch.chain.jobs, needed)
    assert launch.chain.jobs <= 2.5 * statistics.median(needed) + 2, (launch.chain.jobs, needed)
