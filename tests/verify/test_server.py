"""The process that forks for each case, without Bridge."""

from __future__ import annotations

import io
import os

from moedsl.bridge.verify import server


def test_a_case_that_has_ended_is_not_late() -> None:
    """The server may look only after the deadline, on a busy machine."""
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    child = server._Child(0, "recipe.py", pid, -1, io.BytesIO(), deadline=0.0)
    server._end_late({child.pipe: child})
    assert not child.timed_out and child.status == 0
