"""The end of a rank is told as it was, whatever signals come with it: real bash, real signals, no scheduler."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from moedsl.launch.script import _RANKS, _watched

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
