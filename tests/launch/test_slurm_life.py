"""The life of a submitted run on a real Slurm: it fails, is cancelled, loses its launcher, is one of several."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moedsl.cli.commands import launch as run_command
from moedsl.cli.main import main
from moedsl.launch import follow, store
from moedsl.launch.submit import Submitted, submit
from tests.helpers import forks, rotation
from tests.launch.launches import Capture, Patch
from tests.launch.slurm_cluster import Slurm
from tests.launch.slurm_launch import planned, program, run_text

WAITS = """
import os, pathlib, time
rank, job = os.environ["RANK"], os.environ["SLURM_JOB_ID"]
os.write(1, f"rank {{rank}} of job {{job}} waits\\n".encode())
while not pathlib.Path({go!r}).exists():
    time.sleep(0.1)
os.write(1, f"rank {{rank}} goes\\n".encode())
"""
FAILS = """
import os, sys
if os.environ["RANK"] == "1":
    sys.exit("rank 1 found no data at /lustre/data")
os.write(1, b"this rank is fine\\n")
"""
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."
Cli, Launcher = Callable[..., int], Callable[..., subprocess.Popen[str]]


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    """A run on one node."""
    path = tmp_path / "run.moe"
    path.write_text(run_text(4, pins="tp=2 pp=1 ep=2"))
    return path


@pytest.fixture
def moedsl(login_node: Path, monkeypatch: Patch) -> Cli:
    """The command line in this process, `text` in the recipe's place, and nothing that looks for GPUs before it."""

    def call(*words: object, text: str = "") -> int:
        monkeypatch.setattr(run_command, "recipe_text", lambda plan: text)
        monkeypatch.setenv("NEMORUN_HOME", str(login_node))  # as the person has it: a command changes its own
        return main([str(word) for word in words])

    return call


@pytest.fixture
def launcher(tmp_path: Path, login_node: Path) -> Iterator[Launcher]:
    """The command line in a process group of its own, as a terminal's job is: a fork of this process."""
    started: list[subprocess.Popen[str]] = []
    store.nemo_run()  # imported before the forks

    def call(text: str, *words: object, path: str = "") -> subprocess.Popen[str]:
        (tmp_path / "program.py").write_text(text)
        command = [str(Path(__file__).with_name("drive.py")), str(tmp_path / "program.py"), *map(str, words)]
        environment = {**os.environ, "PATH": path + os.environ["PATH"]}
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        started.append(forks.Process(command, env=environment, text=True, start_new_session=True, **pipes))
        return started[-1]

    yield call
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def until(holds: Callable[[], bool], *lives: subprocess.Popen[str] | store.Experiment) -> None:
    """Waits, as long as the launchers and the jobs that bring it about live."""
    while not holds():
        for life in lives:
            over = what_ended(life)
            assert not over or holds(), over
        time.sleep(0.2)


def what_ended(life: subprocess.Popen[str] | store.Experiment) -> str:
    """What a launcher that has ended, or an experiment whose jobs have, leaves behind; else nothing."""
    if isinstance(life, subprocess.Popen):
        return "" if life.poll() is None else "\n".join(life.communicate())
    jobs = life.jobs()
    return "\n".join([str(jobs), *map(log_of, jobs)]) if all(job.ended for job in jobs) else ""


def log_of(job: store.Job) -> str:
    return "".join(path.read_text() for path in Path(job.folder).glob("log*"))


def until_they_run(slurm: Slurm, *numbers: str) -> None:
    """Waits for jobs to start, as long as each may."""
    while (now := set(states(slurm, *numbers))) != {"RUNNING"}:
        assert now <= {"PENDING", "RUNNING"}, now
        time.sleep(0.2)


def until_its_ranks_wait(id: str) -> None:
    """Waits until the four ranks of a run have said so: a job runs before its ranks do."""
    run = store.find(id)
    assert isinstance(run, store.Experiment)
    (job,) = run.jobs()
    until(lambda: log_of(job).count("waits") == 4, run)


def states(slurm: Slurm, *numbers: str) -> list[str]:
    """What accounting says of jobs, one word each."""
    said = slurm.ask("sacct", "-n", "-X", "-P", "-o", "State", "-j", ",".join(numbers))
    return [line.split()[0] for line in said.splitlines()]


def queued(slurm: Slurm) -> list[str]:
    """Numbers of jobs that wait or run."""
    return slurm.ask("squeue", "-h", "-t", "PENDING,RUNNING,SUSPENDED", "-o", "%A").split()


def numbers_of(id: str, moedsl: Cli, capsys: Capture) -> list[str]:
    capsys.readouterr()
    assert moedsl("jobs", id, "--json") == 0
    return [job["number"] for job in json.loads(capsys.readouterr().out)["experiments"][0]["jobs"]]


def test_a_wait_notices_that_its_job_has_ended(slurm: Slurm, login_node: Path) -> None:
    done = submit([planned(4, pins="tp=2 pp=1 ep=2").task(login_node, program(FAILS))], "ends", login_node, print)
    assert done.experiment is not None, done.why_not
    with pytest.raises(AssertionError, match="rank 1 found no data"):
        until(lambda: False, done.experiment)
    with pytest.raises(AssertionError, match="FAILED"):
        until_they_run(slurm, done.experiment.jobs()[0].number)


def test_what_a_dry_run_prints_is_what_is_sent(moedsl: Cli, login_node: Path, run_file: Path, capsys: Capture) -> None:
    with run_file.open("a") as file:
        file.write("sweep micro_batch in 1, 2, 4\n")
    words = ("run", run_file, "--no-preflight", "--cluster", "--sequential")
    assert moedsl(*words, "--dryrun", "--json", text="print('fine')") == 0
    printed = json.loads(capsys.readouterr().out)
    assert moedsl(*words, text="print('fine')") == 0
    assert capsys.readouterr().out.strip() == printed["experiment"]
    folder = Path(printed["folder"])
    assert len(printed["files"]) == 6
    assert printed["files"] == {name: (folder / name).read_text() for name in printed["files"]}


def test_a_job_that_fails_says_why(moedsl: Cli, run_file: Path, capsys: Capture) -> None:
    assert moedsl("run", run_file, "--no-preflight", "--cluster", text=FAILS) == 1
    said = capsys.readouterr()
    assert "FAILED" in said.err
    assert "rank 1 found no data at /lustre/data" in said.err
    assert "srun: error: n" in said.err
    assert "first to fail: rank 1 on n" in said.err
    assert moedsl("jobs", said.out.strip()) == 0
    assert "FAILED" in capsys.readouterr().out


ONE_OF_64 = f"""
import os, time
if os.environ["RANK"] != "37":
    time.sleep(600)
end = time.time() + 400
while len(os.listdir(os.environ["MOEDSL_RANK_LOGS"])) < 64 and time.time() < end:
    time.sleep(0.1)
raise MemoryError("{OOM}")
"""


def test_the_one_rank_of_64_that_fails_is_named(moedsl: Cli, tmp_path: Path, capsys: Capture) -> None:
    """With what diagnose says of its error; each rank has a log of its own."""
    (tmp_path / "run.moe").write_text(run_text(64, "rank_logs on"))
    assert moedsl("run", tmp_path / "run.moe", "--no-preflight", "--cluster", text=ONE_OF_64) == 1
    said = capsys.readouterr()
    id = said.out.strip()
    assert re.search(rf"\n  first to fail: rank 37 on n10 at \S+: MemoryError: {re.escape(OOM)}\n    cause: ", said.err)
    assert "(std.memory_failures.out_of_memory)" in said.err
    assert f"\n  moedsl diagnose {id}\n" in said.err
    assert "| Terminated" not in said.err
    assert moedsl("diagnose", id) == 1
    assert "first to fail: rank 37 on n10" in capsys.readouterr().out
    assert moedsl("jobs", id) == 0
    ranks = Path(capsys.readouterr().out.split()[-1]) / "ranks"
    assert {log.name for log in ranks.iterdir()} == {f"rank-{rank}.log" for rank in range(64)}
    assert OOM in (ranks / "rank-37.log").read_text()


@pytest.mark.parametrize(
    ("end", "says"), [("os.kill(os.getpid(), 9)", "killed by SIGKILL"), ("os._exit(3)", "Exited with exit code 3")]
)
def test_a_rank_that_ends_without_a_word_is_named(
    end: str, says: str, moedsl: Cli, run_file: Path, capsys: Capture
) -> None:
    ends = f"import os, time\nif os.environ['RANK'] == '2':\n    {end}\ntime.sleep(600)"
    assert moedsl("run", run_file, "--no-preflight", "--cluster", text=ends) == 1
    assert re.search(rf"\n  first to fail: rank 2 on n\d+( at \S+)?: {says}\n", capsys.readouterr().err)


def test_a_cancelled_job_ends(slurm: Slurm, moedsl: Cli, run_file: Path, tmp_path: Path, capsys: Capture) -> None:
    words = ("run", run_file, "--no-preflight", "--cluster", "here", "--detach")
    assert moedsl(*words, text=WAITS.format(go=str(tmp_path / "go"))) == 0
    id = capsys.readouterr().out.strip()
    (number,) = numbers_of(id, moedsl, capsys)
    until_its_ranks_wait(id)
    assert moedsl("cancel", id) == 0
    assert "CANCELLED" in capsys.readouterr().out
    assert states(slurm, number) == ["CANCELLED"]
    assert moedsl("logs", id, "-f") == 1
    assert f"of job {number} waits" in capsys.readouterr().out


def test_two_launches_do_not_meet_and_their_jobs_outlive_them(
    slurm: Slurm, launcher: Launcher, moedsl: Cli, run_file: Path, tmp_path: Path, capsys: Capture
) -> None:
    text = WAITS.format(go=str(tmp_path / "go"))
    killed, interrupted = (launcher(text, "run", run_file, "--no-preflight", "--cluster") for _ in range(2))
    assert killed.stdout is not None and interrupted.stdout is not None
    first, second = killed.stdout.readline().strip(), interrupted.stdout.readline().strip()
    assert first != second
    until(lambda: len(queued(slurm)) == 2, killed, interrupted)
    until_they_run(slurm, *queued(slurm))
    for process in (killed, interrupted):  # waiting by now: both have said that their jobs run
        stderr = process.stderr
        assert stderr is not None
        until(lambda stderr=stderr: not stderr.closed and "RUNNING" in stderr.readline(), process)

    killed.kill()
    os.killpg(interrupted.pid, signal.SIGINT)
    _, said = interrupted.communicate()
    assert interrupted.returncode == 130
    assert f"moedsl logs {second} -f" in said
    assert states(slurm, *queued(slurm)) == ["RUNNING", "RUNNING"]

    numbers = [*numbers_of(first, moedsl, capsys), *numbers_of(second, moedsl, capsys)]
    assert sorted(numbers) == sorted(queued(slurm))
    (tmp_path / "go").touch()
    for id, number in zip((first, second), numbers, strict=True):
        assert moedsl("logs", id, "-f") == 0
        said = capsys.readouterr().out
        assert said.count(f"of job {number} waits") == 4
        assert said.count("goes") == 4
    assert moedsl("jobs") == 0
    assert capsys.readouterr().out.count("SUCCEEDED") == 2


LISTENS = """
import os, signal, sys
def hear(number, _):
    os.write(1, f"rank {os.environ['RANK']} has {signal.Signals(number).name}\\n".encode())
    if number == signal.SIGTERM:
        signal.signal(number, signal.SIG_IGN)  # this Slurm tracks processes by their parents, and sends it twice
        sys.exit(7)
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, hear)
os.write(1, b"listens\\n")
while True:
    signal.pause()
"""


def test_signals_reach_the_ranks_and_their_files_go(slurm: Slurm, login_node: Path, tmp_path: Path) -> None:
    """As sent by scancel; the end of a rank is that of its program, and the folder of its files is removed."""
    done = submit([planned(4, pins="tp=2 pp=1 ep=2").task(login_node, program(LISTENS))], "signals", login_node, print)
    assert done.experiment is not None, done.why_not
    ((job,), node_tmp) = done.experiment.jobs(), tmp_path / "tmp"
    until(lambda: log_of(job).count("listens") == 4, done.experiment)
    assert len([*node_tmp.glob("moedsl.*")]) == 4
    slurm.ask("scancel", "--signal=USR1", job.number)
    until(lambda: all(f"rank {rank} has SIGUSR1" in log_of(job) for rank in range(4)), done.experiment)
    assert queued(slurm) == [job.number]
    slurm.ask("scancel", "--signal=TERM", f"{job.number}.1")  # of the ranks' step, after the one that asks for the head
    assert [job.state for job in follow.wait(done.experiment)] == ["FAILED"]
    assert all(f"rank {rank} has SIGTERM" in log_of(job) for rank in range(4))
    codes = slurm.ask("sacct", "-n", "-P", "-o", "ExitCode", "-j", f"{job.number}.1").split()
    assert codes == ["7:0"]
    assert [*node_tmp.glob("moedsl.*")] == []


def test_a_cancelled_job_leaves_no_files(slurm: Slurm, login_node: Path, tmp_path: Path) -> None:
    """Its program has no handler, so the signal ends it."""
    wait = program(WAITS.format(go="/never"))
    done = submit([planned(4, pins="tp=2 pp=1 ep=2").task(login_node, wait)], "cancelled", login_node, print)
    assert done.experiment is not None, done.why_not
    (job,) = done.experiment.jobs()
    until(lambda: log_of(job).count("waits") == 4, done.experiment)
    assert [job.state for job in done.experiment.cancel()] == ["CANCELLED"]
    until(lambda: not slurm.ask("squeue", "-h", "-o", "%A").split())  # one that completes has processes
    assert [*(tmp_path / "tmp").glob("moedsl.*")] == []


def slow_slurm(tmp_path: Path) -> str:
    """The front of a PATH whose sbatch says `taken` when Slurm has the job, and its number when it `may_say` it; its
    scancel says `cancelling` and asks when it `may_cancel`."""
    waits = "for _ in {{1..3000}}; do [ ! -e {0}/{1} ] || break; sleep 0.1; done\n"
    told, cancels = (waits.format(tmp_path, name) for name in ("may_say", "may_cancel"))
    programs = {
        "sbatch": f'number=$(/usr/bin/sbatch "$@")\ntouch {tmp_path}/taken\n{told}echo "$number"\n',
        "scancel": f'touch {tmp_path}/cancelling\n{cancels}exec /usr/bin/scancel "$@"\n',
    }
    (tmp_path / "bin").mkdir()
    for name, body in programs.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{body}")
        (tmp_path / "bin" / name).chmod(0o755)
    return f"{tmp_path}/bin:"


@pytest.mark.parametrize("impatient", rotation.some("interrupted submission", [False, True], 1))
def test_an_interrupted_submission_leaves_nothing(
    impatient: bool, slurm: Slurm, launcher: Launcher, moedsl: Cli, run_file: Path, tmp_path: Path, capsys: Capture
) -> None:
    path = slow_slurm(tmp_path)
    with run_file.open("a") as file:
        file.write("sweep micro_batch in 1, 2\n")
    process = launcher(WAITS.format(go="/never"), "run", run_file, "--no-preflight", "--cluster", path=path)
    until((tmp_path / "taken").exists, process)
    os.killpg(process.pid, signal.SIGINT)
    (tmp_path / "may_say").touch()
    if impatient:
        until((tmp_path / "cancelling").exists, process)
        os.killpg(process.pid, signal.SIGINT)
    (tmp_path / "may_cancel").touch()
    out, said = process.communicate()
    assert process.returncode == 130, said
    assert "all submitted jobs were cancelled" in said
    assert queued(slurm) == []
    assert moedsl("jobs", out.strip(), "--json") == 0
    jobs = json.loads(capsys.readouterr().out)["experiments"][0]["jobs"]
    assert [job["state"] for job in jobs] == ["CANCELLED", "CANCELLED"]


def test_a_job_is_found_whose_launcher_was_killed_before_it_knew_the_number(
    slurm: Slurm, launcher: Launcher, moedsl: Cli, run_file: Path, tmp_path: Path, capsys: Capture
) -> None:
    words = ("run", run_file, "--no-preflight", "--cluster")
    process = launcher(WAITS.format(go="/never"), *words, path=slow_slurm(tmp_path))
    assert process.stdout is not None
    id = process.stdout.readline().strip()
    until((tmp_path / "taken").exists, process)
    process.kill()
    (tmp_path / "may_say").touch()
    until_they_run(slurm, *queued(slurm))
    assert numbers_of(id, moedsl, capsys) == queued(slurm)
    until_its_ranks_wait(id)
    assert moedsl("cancel", id) == 0
    assert "CANCELLED" in capsys.readouterr().out
    until(lambda: not queued(slurm))
    assert moedsl("logs", id) == 0
    assert capsys.readouterr().out.count("waits") == 4


def chain(home: Path, first: str, *more: str) -> Submitted:
    """Jobs a, b after a, c after both; `first` is what a runs."""
    made = planned(4, *more, pins="tp=2 pp=1 ep=2")
    fine = program("print('fine')")
    a = made.task(home, program(first), "a")
    return submit([a, made.task(home, fine, "b", ["a"]), made.task(home, fine, "c", ["a", "b"])], "sweep", home, print)


def times(slurm: Slurm, number: str) -> tuple[str, str]:
    start, end = slurm.ask("sacct", "-n", "-X", "-P", "-o", "Start,End", "-j", number).strip().split("|")
    return start, end


def test_a_sweep_of_three_in_order(slurm: Slurm, login_node: Path) -> None:
    done = chain(login_node, "import time; time.sleep(1.5)")
    assert done.experiment is not None, done.why_not
    jobs = follow.wait(done.experiment)
    assert [job.state for job in jobs] == ["SUCCEEDED"] * 3
    (_, end_a), (start_b, end_b), (start_c, _) = (times(slurm, job.number) for job in jobs)
    assert end_a <= start_b and end_b <= start_c


def test_what_comes_after_a_failure_is_cancelled(login_node: Path) -> None:
    done = chain(login_node, "raise SystemExit(3)")
    assert done.experiment is not None, done.why_not
    assert [job.state for job in follow.wait(done.experiment)] == ["FAILED", "CANCELLED", "CANCELLED"]


def test_what_slurm_refuses_leaves_nothing(slurm: Slurm, login_node: Path, capsys: Capture) -> None:
    made = planned(4, pins="tp=2 pp=1 ep=2")
    wait = program(WAITS.format(go="/never"))
    good, bad = made.task(login_node, wait, "good"), made.task(login_node, wait, "bad", ["good"])
    bad.executor.partition = "nowhere"
    done = submit([good, bad], "refused", login_node, print)
    assert done.why_not is not None
    assert "invalid partition specified: nowhere" in done.why_not.message
    until(lambda: not queued(slurm))  # one that was cancelled takes a moment to go
    opened = store.find(done.id)
    assert isinstance(opened, store.Experiment)
    assert [job.state for job in opened.jobs()] == ["CANCELLED", store.NOT_SUBMITTED]


def test_what_was_never_submitted_leaves_no_folder(login_node: Path) -> None:
    made = planned(4, pins="tp=2 pp=1 ep=2")
    task = made.task(login_node, program("pass"), "only")
    task.executor.account = "nobody"
    done = submit([task], "refused", login_node, print)
    assert done.why_not is not None
    assert "account" in done.why_not.message
    assert list(login_node.glob("experiments/refused/*")) == []
