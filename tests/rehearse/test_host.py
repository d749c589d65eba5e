"""Which rank the host of a rehearsal names, without torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

TOGETHER = """
import os, sys
from moedsl.rehearse import host

(gate, opened), (news, say), (raised, raising) = os.pipe(), os.pipe(), os.pipe()
def fork(rank):
    pid = os.fork()
    if not pid:
        if rank == 0:
            os.read(gate, 1)
        elif sys.argv[1] == "killed":
            os.kill(os.getpid(), 9)
        host._raise(raising, rank)
        os._exit(1)
    return pid
children = {fork(rank): rank for rank in range(2)}
for pid in reversed(children):  # rank 1 ends, then rank 0, and then the host looks
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    os.write(opened, b".")
host._wait(children, say, raised)
print(os.read(news, 100).decode(), end="")
"""


@pytest.mark.parametrize(("how", "status"), [("raises", 1), ("killed", -9)])
def test_of_ranks_that_have_ended_the_first_that_failed_is_named(how: str, status: int) -> None:
    """Rank 0 fails because rank 1 is gone; on a busy machine both have ended when the host looks."""
    ran = subprocess.run([sys.executable, "-c", TOGETHER, how], capture_output=True, text=True, check=True)
    assert ran.stdout == f"rank 1 failed {status}\n"
