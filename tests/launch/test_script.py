"""The shell around a training process: signals, its end as it was, and the files that it leaves behind.

Real bash and real signals, without a scheduler.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from moedsl.launch.script import _RANKS, FT_LAUNCHER, Payload, _watched, script
from tests.helpers.plans import changed
from tests.helpers.tables import table_of
from tests.launch.launches import STEP, Patch, cluster, launch, plan, slurm

LISTENS = """
import signal, sys, time
heard = []
def hear(number, _):
    heard.append(number)
    print(signal.Signals(number).name, flush=True)
for name in ("HUP", "INT", "QUIT", "TERM", "USR1", "USR2"):
    signal.signal(getattr(signal, f"SIG{name}"), hear)
print("ready", flush=True)
while len(heard) < int(sys.argv[1]):
    time.sleep(0.02)
sys.exit(int(sys.argv[2]))
"""
FAILED = r"moedsl: rank 3 on \S+ failed at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00"
HAS_WORKER = """
import signal, subprocess, sys, time
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))
said = "import os; os.write(1, b'ready\\\\n'); input()"  # at once: the workers of two ranks share a pipe
worker = subprocess.Popen([sys.executable, "-c", said], stdin=subprocess.PIPE)
while not told:  # the worker may be ready before this line
    time.sleep(0.02)
worker.communicate(b"the last save\\n")
print(f"worker: {worker.returncode}", flush=True)
"""
POD = 'executor kubeflow; hardware h100; container "image"; numa off'
SLEEPS = "import signal\nprint('ready', flush=True)\nsignal.pause()\n"


def started(folder: Path, program: str, *arguments: str, preflight: str = "") -> subprocess.Popen[str]:
    """The script of a rank, as srun starts it; only its own process is sent signals."""
    on = evolve(slurm("h100"), python=sys.executable)
    payload = Payload({"p.py": program}, "p.py", arguments=arguments, preflight=preflight)
    (folder / "job.sh").write_text(script(launch(plan("h100", 16, {"ep": 8}), on), on, payload))
    (folder / "tmp").mkdir()
    environment = {**os.environ, **STEP, "TMPDIR": str(folder / "tmp")}
    command, pipe = ["bash", str(folder / "job.sh")], subprocess.PIPE
    both: Any = {"stdout": pipe, "stderr": subprocess.STDOUT, "start_new_session": True}
    return subprocess.Popen(command, env=environment, text=True, **both)


def until(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    while (said := process.stdout.readline().strip()) != line:
        assert said or process.poll() is None


def left(folder: Path) -> list[Path]:
    return [*(folder / "tmp").iterdir()]


def test_ft_launcher_gets_the_limits_of_the_sections() -> None:
    on = slurm("h100", "spare_nodes 1")
    made = changed(plan("h100", 16, {"ep": 8}), set={"ft.enable_ft_package": True, "checkpoint.save": "/shared/run"})
    lines = script(launch(made, on), on, Payload({"p.py": ""}, "p.py")).splitlines()
    (line,) = [line for line in lines if FT_LAUNCHER in line]
    _, _, words = line.removesuffix(" \\").partition(f"python3 -P -m {FT_LAUNCHER} ")
    assert words.split()[:2] == ["--nnodes=2", "--nproc-per-node=8"]
    assert words.split()[-3:] == [
        "--ft-rank-section-timeouts=setup:1800,step:180,checkpointing:420",
        "--max-restarts=3",
        "--ft-rank-out-of-section-timeout=300",
    ]
    assert not any(line.startswith("export RANK=") for line in lines)


def test_each_signal_reaches_the_process_once(tmp_path: Path) -> None:
    signals = [signal.SIGUSR1, signal.SIGTERM, signal.SIGUSR2, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT]
    process = started(tmp_path, LISTENS, str(len(signals)), "7")
    until(process, "ready")
    for number in signals:
        process.send_signal(number)
        if number is not signals[-1]:
            until(process, number.name)
    said, of_rank = process.communicate()[0].splitlines()
    assert said == signals[-1].name
    assert re.fullmatch(f"{FAILED}: exit code 7", of_rank)
    assert process.returncode == 7
    assert left(tmp_path) == []


def test_the_processes_that_a_rank_started_outlive_the_signal_to_save(tmp_path: Path) -> None:
    """PyTorch's data loaders and Bridge's writer of checkpoints end by SIGTERM, and a rank without them saves nothing."""
    process = started(tmp_path, HAS_WORKER)
    until(process, "ready")
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=30)
    assert (said, process.returncode) == ("worker: 0\n", 0)


@pytest.mark.parametrize("executor", ["slurm", "kubeflow"])
def test_torchrun_passes_the_signal_to_save_to_its_ranks_alone(executor: str, tmp_path: Path) -> None:
    """By itself it signals the process group of each rank. A pod that is told to end is told by its first process."""
    of = {"train.exit_signal_handler": True, "checkpoint.save": "/saves"}
    made = changed(plan("h100", 16, {"ep": 8}), set=of)
    on = slurm("h100", "launcher torchrun") if executor == "slurm" else cluster(POD)
    node = evolve(launch(made, on), nodes=1, ranks_per_node=2)
    (tmp_path / "job.sh").write_text(
        script(node, evolve(on, python=sys.executable), Payload({"p.py": HAS_WORKER}, "p.py"))
    )
    own = {"SLURM_NODEID": "0", "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1", "SLURM_JOB_ID": str(os.getpid())}
    own |= {"PET_NODE_RANK": "0", "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(20000 + os.getpid() % 12000)}
    environment, pipe = {**os.environ, **own, "TMPDIR": str(tmp_path)}, subprocess.PIPE
    both: Any = {"stdout": pipe, "stderr": subprocess.STDOUT, "start_new_session": True}
    process = subprocess.Popen(["bash", str(tmp_path / "job.sh")], env=environment, text=True, **both)
    until(process, "ready")
    until(process, "ready")
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert (said.count("worker: 0"), process.returncode) == (2, 0), said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_a_process_that_a_signal_ends_is_seen_to_end_by_it(tmp_path: Path, number: signal.Signals) -> None:
    process = started(tmp_path, SLEEPS)
    until(process, "ready")
    assert len(left(tmp_path)) == 1
    process.send_signal(number)
    said, _ = process.communicate()
    assert (said.strip(), process.returncode) == (signal.strsignal(number), -number)
    assert left(tmp_path) == []


@pytest.mark.parametrize("end", [0, 1, 79, -signal.SIGKILL, -signal.SIGSEGV, -signal.SIGABRT])
def test_the_end_is_that_of_the_process(tmp_path: Path, end: int) -> None:
    """A number that it exits with, or a signal that it dies of, without a core file of the shell."""
    program = f"import os, sys\nos.kill(os.getpid(), {-end}) if {end} < 0 else sys.exit({end})\n"
    process = started(tmp_path, program)
    said, _ = process.communicate()
    assert process.returncode == end
    assert left(tmp_path) == []
    error = f"killed by {signal.Signals(-end).name}" if end < 0 else f"exit code {end}"
    assert bool(re.search(f"^{FAILED}: {error}$", said, re.MULTILINE)) == (end != 0)


def test_an_error_is_one_line_with_its_rank(tmp_path: Path) -> None:
    """Before the traceback, whose last lines an error of several lines fills."""
    said, _ = started(tmp_path, "raise ValueError('a\\n  b')").communicate()
    assert re.match(f"{FAILED}: ValueError: a b\n(.*\n)+ValueError: a\n  b\n$", said)


@pytest.mark.parametrize("whom", [os.kill, os.killpg], ids=["the shell", "all"])
@pytest.mark.parametrize(("program", "body"), table_of("launch", "script: a cancelled job"))
def test_a_job_that_is_cancelled_while_it_makes_its_files_leaves_none(
    program: str, body: str, whom: Callable[[int, int], None], tmp_path: Path, monkeypatch: Patch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / program).write_text(f"#!/bin/bash\n{body}\n")
    (tmp_path / "bin" / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("HERE", str(tmp_path / "here"))
    process = started(tmp_path, SLEEPS)
    while not (tmp_path / "here").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    whom(process.pid, signal.SIGTERM)
    process.communicate()
    assert process.returncode == -signal.SIGTERM
    assert left(tmp_path) == []


def test_a_preflight_that_fails_leaves_no_files(tmp_path: Path) -> None:
    process = started(tmp_path, SLEEPS, preflight="exit 79\n")
    process.communicate()
    assert process.returncode == 79
    assert left(tmp_path) == []


ENDS = """
import os, signal, sys
def hear(number, _):
    signal.signal(number, signal.SIG_IGN)
    sys.exit(7)
signal.signal(signal.SIGTERM, hear)
os.write(1, b"listens\\n")
while True:
    signal.pause()
"""
WAITS = 'import os, time; os.write(1, b"listens\\n"); time.sleep(600)'


def ended(program: str, folder: Path, gap: float, slow: str = "") -> int:
    """The end of a watched program after four SIGTERM, `gap` seconds apart, to the shell and to what it started. The shell
    takes half a second before its line `slow`."""
    (folder / "rank.py").write_text(program)
    start = list(_watched(f'"{sys.executable}" "$MOEDSL_FILES/rank.py"'))
    if slow:
        start.insert(start.index(slow), "sleep 0.5 || true")
    lines = ["set -euo pipefail", f'MOEDSL_FILES="{folder}"', *start, 'exit "$code"']
    shell = subprocess.Popen(
        ["bash", "-c", "\n".join(lines)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert shell.stdout is not None and shell.stdout.readline() == b"listens\n"
    for _ in range(4):
        for pid in members(shell.pid):
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:  # it has ended meanwhile
                continue
        time.sleep(gap)
    return shell.wait(timeout=60)


def members(session: int) -> list[int]:
    """The processes of a session, as a scheduler that tracks a step finds them."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if session_of(pid) == session]


def session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


@pytest.mark.parametrize("gap", [0.0, 0.001, 0.003, 0.01])
def test_a_programs_own_end_is_kept(tmp_path: Path, gap: float) -> None:
    assert [ended(ENDS, tmp_path, gap) for _ in range(5)] == [7] * 5


@pytest.mark.parametrize("slow", ['group="$!"', "tell() {"])
def test_a_shell_that_is_slower_than_its_program_hears_signals(tmp_path: Path, slow: str) -> None:
    """The program is ready before the shell has gone on: on a busy machine it is."""
    assert ended(ENDS, tmp_path, 0.003, slow) == 7


@pytest.mark.parametrize("told", ["", _RANKS], ids=["command", "ranks"])
def test_nothing_is_substituted_while_signals_are_heard(told: str) -> None:
    """If one comes while bash 5.2 reads `$(...)` for another one, the shell ends with a syntax error, and the program of
    a job goes on without it: one of a hundred ends with four signals at once."""
    _, traps = "\n".join(_watched("true", told)).split("tell()")
    heard, ignored, _ = traps.partition('trap ""')
    assert "trap" in heard and ignored
    assert "$(" not in heard and "`" not in heard


def test_a_signal_that_ends_the_program_ends_the_shell(tmp_path: Path) -> None:
    assert ended(WAITS, tmp_path, 0.003) == -signal.SIGTERM
    assert not tmp_path.exists()
