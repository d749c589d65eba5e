"""No process outlives the command that started it, however that ends. Each test starts the process that a user starts."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil
import pytest

from tests.helpers.paths import ROOT

RUN = 'qwen3_30b_a3b; h100 x 16; seq 4k; pin tp=1 pp=1; cluster lab { executor slurm; hardware h100; job_dir "/tmp" }\n'
HERE = """import sys
from moedsl.cli.main import main
from moedsl.launch import local, script
local.refusals = lambda *_, **__: []  # as where GPUs are
script.with_preflight = lambda payload, *_: payload
sys.argv = ["moedsl", "run", "one.moe", "--no-preflight"]
sys.exit(main())
"""
"""`moedsl run` on this machine, which has no GPUs: torchrun starts the ranks of one node."""
STUBBORN = """import subprocess, sys
from moedsl.support import children
leaves = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(900)"
children.run(["bash", "-c", f"setsid {sys.executable} -c '{leaves}' & wait"])
"""
COMMANDS = {
    "serve": (["-m", "moedsl", "serve", "--port", "0", "--processes", "2"], 4),
    "verify": (["-m", "moedsl", "verify", "run.moe"], 1),
    "rehearse": (["-m", "moedsl", "rehearse", "run.moe"], 1),
    "tune": (["-m", "moedsl", "tune", "run.moe", "--budget", "1"], 1),
    "run": (["-c", HERE], 3),
    "a command that hears no signal": (["-c", STUBBORN], 3),
}
"""What Python runs, and how many processes it starts."""
DEADLINE_S = 120.0


def until(holds: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Look again until a condition holds; fail if the process ends before, or at the deadline."""
    end = time.monotonic() + DEADLINE_S
    ended = os.pidfd_open(process.pid)
    while not holds():
        assert not select.select([ended], [], [], 0.1)[0] and time.monotonic() < end, process.communicate()
    os.close(ended)


def answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.bridge
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux tells a process that another one has ended")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda n: n.name)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_process_outlives_its_command(command: str, number: signal.Signals, tmp_path: Path) -> None:
    words, count = COMMANDS[command]
    (tmp_path / "run.moe").write_text(RUN)
    (tmp_path / "one.moe").write_text("qwen3_30b_a3b; h100 x 8; seq 4k")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NEMORUN_HOME": str(tmp_path / "home")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    process = subprocess.Popen([sys.executable, *words], cwd=tmp_path, env=environment, text=True, **pipes)
    below = psutil.Process(process.pid)
    if command == "serve":
        assert process.stdout
        url = process.stdout.readline().split()[0]
        until(lambda: answers(url), process)
    until(lambda: len(below.children(recursive=True)) >= count, process)
    started = below.children(recursive=True)
    process.send_signal(number)
    _, problems = process.communicate(timeout=DEADLINE_S)
    assert process.returncode or command == "serve", problems
    assert "bug of moedsl" not in problems
    assert psutil.wait_procs(started, timeout=DEADLINE_S)[1] == []
