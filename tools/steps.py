"""Run a step of the set-up visibly: its name, its output, a sign of progress, and its time."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

HEARTBEAT_S = 10.0


def say(text: str) -> None:
    """Print a line of the set-up at once."""
    print(f"setup: {text}", flush=True)


class StepFailed(Exception):
    """A command of the set-up failed; the last lines of its output are the message."""


def run(title: str, command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> None:
    """Runs `command`, printing its lines except those that only list packages; raises StepFailed."""
    say(f"{title} ...")
    start, tail = time.monotonic(), list[str]()
    process = subprocess.Popen(
        [str(part) for part in command], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None
    done = threading.Event()
    threading.Thread(target=_heartbeat, args=(title, start, done), daemon=True).start()
    for line in process.stdout:
        tail = [*tail[-19:], line.rstrip()]
        if not line.startswith((" + ", " - ", " ~ ")):
            print(f"       {line.rstrip()}", flush=True)
    code = process.wait()
    done.set()
    if code:
        raise StepFailed(f"{title}: exit status {code}")
    say(f"{title}: {time.monotonic() - start:.1f} s")


def _heartbeat(title: str, start: float, done: threading.Event) -> None:
    while not done.wait(HEARTBEAT_S):
        say(f"{title}: still running after {time.monotonic() - start:.0f} s")


def size(folder: Path) -> str:
    """Describe the disk space that a folder uses."""
    total = sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
    return f"{total / 1e9:.1f} GB" if total >= 1e9 else f"{total / 1e6:.0f} MB"
