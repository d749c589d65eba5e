"""Run commands that end with moedsl, however it ends, and with them all processes that they started.

`guarded` puts this file before a command, as a small process of its own. It passes SIGTERM and SIGHUP to the command,
and adopts the processes that the command leaves behind (as a subreaper). If moedsl has ended (pidfd_open(2)), or the
command has ended after a signal, it ends all processes that are left. Ctrl-C reaches the command itself, as both
are in moedsl's process group. Only Linux has what it needs; elsewhere commands run without it.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

PATIENCE_S = 10.0
"""Seconds from SIGTERM to SIGKILL for processes that are left."""
_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2)."""


def guarded(command: Sequence[str]) -> list[str]:
    """Return the command with its guard."""
    guard = [sys.executable, "-I", "-S", __file__, str(os.getpid())] if sys.platform == "linux" else []
    return [*guard, *command]


def run(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a guarded command like `subprocess.run`; an exception such as Ctrl-C ends it and what it started."""
    with subprocess.Popen(guarded(command), text=True, **options) as process:
        try:
            out, err = process.communicate()
        except BaseException:
            process.terminate()
            process.wait()
            raise
    return subprocess.CompletedProcess([*command], process.returncode, out, err)


def main() -> None:
    """Guard ``sys.argv[2:]`` for the process ``sys.argv[1]``, and end as the command ends."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, lambda *_: None)
    try:
        process = subprocess.Popen(sys.argv[2:])
    except OSError as refused:
        sys.exit(f"{sys.argv[2]}: {refused.strerror}")
    told = False
    try:
        parent = os.pidfd_open(int(sys.argv[1]))
        while (status := _ended(process)) is None:
            if parent in select.select([parent, woken], [], [])[0]:
                break
            for number in {signal.SIGTERM, signal.SIGHUP} & {*os.read(woken, 1 << 12)}:
                process.send_signal(number)
                told = True
    except ProcessLookupError:  # moedsl ended before this process looked
        status = None
    if status is None or told:
        _end_all()
    if status is None or status < 0:
        number = signal.SIGTERM if status is None else -status
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    sys.exit(status)


def _ended(process: subprocess.Popen[bytes]) -> int | None:
    """Return the command's status if it has ended, and reap adopted processes before it."""
    while (one := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and one.si_pid != process.pid:
        os.waitpid(one.si_pid, 0)
    return process.poll()


def _end_all() -> None:
    """End every process below this one: by SIGTERM, and after PATIENCE_S by SIGKILL."""
    told, until = set[int](), time.monotonic() + PATIENCE_S
    with suppress(ChildProcessError):  # none is left
        while True:
            is_late = time.monotonic() > until
            below = _below(os.getpid())
            for pid in below if is_late else below - told:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL if is_late else signal.SIGTERM)
            told |= below
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(0.02)


def _below(root: int) -> set[int]:
    """Return the processes that descend from one."""
    parents = dict[int, int]()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as stat:
            parents[int(name)] = int(stat.read().rpartition(")")[2].split()[1])
    found, more = set[int](), {root}
    while more := {pid for pid, parent in parents.items() if parent in found | more} - found:
        found |= more
    return found


if __name__ == "__main__":
    main()
