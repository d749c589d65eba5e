"""Several processes write one folder: each writes all of its files, and removes what killed ones left."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moedsl.support import folder_lock
from moedsl.support.owned_files import write_all
from tests.helpers.paths import ROOT

NAMES = (*(f"{i}.txt" for i in range(12)), "below/recipe.py")
WRITER = f"""
import os, random, signal, sys, time
from moedsl.support import folder_lock
from moedsl.support.owned_files import write_all
folder_lock.PATIENCE_S = 600  # a busy disk takes its time
folder, me, until = sys.argv[1], sys.argv[2], int(sys.argv[3])
real, done = os.replace, []
def replace(source, target):
    if len(done) == until:
        os.kill(os.getpid(), signal.SIGKILL if me == "killed" else signal.SIGSTOP)
    done.append(target)
    real(source, target)
    time.sleep(random.random() / 100)
os.replace = replace
for turn in sys.stdin:
    wrong = write_all(folder, {{name: f"{{me}} {{turn}}" for name in {NAMES!r}}})
    print(wrong, flush=True)
"""
NEVER = 10**9


@contextmanager
def writer(folder: Path, me: str, until: int = NEVER) -> Generator[subprocess.Popen[str]]:
    """A process that writes all files unevenly for each line of its input; it stops or kills itself before a rename."""
    command = [sys.executable, "-c", WRITER, str(folder), me, str(until)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def told(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def authors(folder: Path) -> set[str]:
    return {(folder / name).read_text().partition("\n")[2] for name in NAMES}


def hidden(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.name.startswith("."))


def test_writers_do_not_mix_their_files(tmp_path: Path) -> None:
    with writer(tmp_path, "a") as a, writer(tmp_path, "b") as b, writer(tmp_path, "c") as c:
        for turn in range(15):
            for process in (a, b, c):
                told(process, str(turn))
            assert [heard(process) for process in (a, b, c)] == ["[]"] * 3
            assert len(authors(tmp_path)) == 1
    assert not hidden(tmp_path)


@pytest.mark.parametrize("until", [0, 5, len(NAMES) - 1])
def test_what_a_killed_writer_left_is_removed(until: int, tmp_path: Path) -> None:
    write_all(tmp_path, dict.fromkeys(NAMES, "first"))
    for name in ("notes", "otherhost-12345678"):  # not of a writer, and of one that may live on another host
        (tmp_path / f".moedsl-{name}").mkdir()
    mine = tmp_path / f"{folder_lock.STAGE}notes"
    mine.mkdir()
    (mine / "todo.md").write_text("mine")
    others = hidden(tmp_path)
    with writer(tmp_path, "killed", until) as process:
        told(process, "1")
        assert process.wait(60) == -signal.SIGKILL
    assert len(hidden(tmp_path)) > len(others)
    assert write_all(tmp_path, dict.fromkeys(NAMES, "second")) == []
    assert hidden(tmp_path) == others
    assert authors(tmp_path) == {"second"}


def test_a_writer_that_lives_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_all(tmp_path, dict.fromkeys(NAMES, "first"))
    monkeypatch.setattr(folder_lock, "PATIENCE_S", 0.3)
    with writer(tmp_path, "stopped", 3) as process:
        told(process, "1")
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        (stage,) = (n for n in hidden(tmp_path) if n.startswith(folder_lock.STAGE))
        (wrong,) = write_all(tmp_path, dict.fromkeys(NAMES, "second"))
        assert wrong.id == "emit.unwritable" and "another moedsl" in wrong.message
        assert stage in hidden(tmp_path)
        process.send_signal(signal.SIGCONT)
        assert heard(process) == "[]"
    assert authors(tmp_path) == {"stopped 1\n"}
    assert write_all(tmp_path, dict.fromkeys(NAMES, "second")) == []
    assert not hidden(tmp_path)


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    left = tmp_path / f"{folder_lock.STAGE}12345678"
    left.mkdir()
    monkeypatch.setattr(fcntl, "flock", refuse)
    start = time.monotonic()
    assert write_all(tmp_path, dict.fromkeys(NAMES, "first")) == []
    assert time.monotonic() - start < folder_lock.PATIENCE_S
    assert left.is_dir()
