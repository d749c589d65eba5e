"""The process that has imported torch for all tests goes on, whoever asks it."""

from __future__ import annotations

import array
import os
import socket

import pytest

from tests.helpers import bridge_process


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
