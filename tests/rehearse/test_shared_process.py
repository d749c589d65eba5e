"""The process that has imported torch for all tests goes on, whoever asks it."""

import array
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers import bridge_process, run_folder


@pytest.mark.parametrize("said", ["nothing", "its files", "half a job"])
def test_a_client_that_is_killed_before_it_has_asked_ends_no_process(said: str) -> None:
    """As a rank that torchrun kills while it starts, because another one has failed."""
    assert bridge_process.run("-c", "", stage="torch").returncode == 0  # the process has started
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(bridge_process._started("torch")))
        if said != "nothing":
            numbers = array.array("i", [0, 1, 2])
            line.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)])
        if said == "half a job":
            line.sendall(b'{"words": ["-c"')
    ran = bridge_process.run("-c", f"print({os.getpid()})", stage="torch")
    assert (ran.returncode, ran.stdout) == (0, f"{os.getpid()}\n"), ran.stderr


def test_a_signal_that_comes_before_the_fork_reaches_it(tmp_path: Path) -> None:
    """As of torchrun to a rank that has just started. The client waits for an answer of this test."""
    warm, address = tmp_path / "warm", tmp_path / "address"
    warm.write_text(bridge_process._CLIENT.format(python=sys.executable, address=str(address)))
    warm.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as waiting, subprocess.Popen(["sleep", "600"]) as fork:
        waiting.bind(str(address))
        waiting.listen()
        client = subprocess.Popen([warm, "-c", ""])
        line, _ = waiting.accept()
        with line:
            asked = bridge_process._asked(line)
            assert asked is not None and asked[0]["words"] == ["-c", ""]
            for file in asked[1]:
                os.close(file)
            client.terminate()
            line.sendall(f"{fork.pid}\n".encode())
            try:
                assert fork.wait(60) == -signal.SIGTERM
            finally:
                fork.kill()
            line.sendall(f"{-signal.SIGTERM}\n".encode())
            assert client.wait(60) == -signal.SIGTERM


def test_a_fork_ends_with_a_client_that_is_killed(tmp_path: Path) -> None:
    """It would hold the pipes of the client, and a test that reads them would wait for it."""
    program = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    words = [bridge_process.python(tmp_path, "torch"), "-c", program]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        fork = int(client.stdout.readline())
        client.kill()
    end = time.monotonic() + 60
    while bridge_process.lives(fork):
        assert time.monotonic() < end, "the fork still runs"
        time.sleep(0.01)


def test_a_fork_may_run_another_program_before_its_parent_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent puts it into a group of its own, which is refused by then, and went without a process."""
    real = os.fork

    def slow() -> int:
        pid = real()
        while pid and Path(f"/proc/{pid}/comm").read_text() != "sleep\n":
            time.sleep(0.01)
        return pid

    monkeypatch.setattr(os, "fork", slow)
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.socket() as waiting:
        job = {
            "words": ["-c", "import os; os.execlp('sleep', 'sleep', '600')"],
            "cwd": "/",
            "environment": os.environ.copy(),
        }
        pid = bridge_process._fork(theirs, [waiting], job, [os.dup(number) for number in range(3)])
        assert ours.makefile().readline() == f"{pid}\n" and os.getpgid(pid) == pid
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_the_process_ends_with_its_run_though_something_is_left_in_its_folder(tmp_path: Path) -> None:
    """A fork of it may write there while the run removes the folder; it ran on for good, and held 2 GB."""
    address = tmp_path / "torch"
    with (tmp_path / run_folder.LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        pid = os.fork()
        if not pid:
            bridge_process._answer(address)
            os._exit(0)
        while not address.exists():
            time.sleep(0.01)
        (tmp_path / run_folder.LOCK).unlink()
        end = time.monotonic() + 60
        try:
            while os.waitpid(pid, os.WNOHANG) == (0, 0):
                assert time.monotonic() < end, "it still runs"
                time.sleep(0.01)
        except AssertionError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
