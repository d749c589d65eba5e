"""Run a script in a fork of this process, which has imported what the script needs: its own process, without the
seconds of imports."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NoReturn


def run(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run([sys.executable, *words])` with its output captured."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        pid = started(words, {1: out, 2: err}, str(cwd or os.getcwd()), os.environ)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        texts = [(file.seek(0), file.read())[1] for file in (out, err)]
    return subprocess.CompletedProcess(words, status, *texts)


def started(
    words: Sequence[str],
    files: Mapping[int, IO[Any]],
    cwd: str,
    environment: Mapping[str, str],
    closed: Sequence[IO[Any]] = (),
) -> int:
    """The number of a fork that runs the words with these files as its own, without those that are `closed`."""
    pid = os.fork()
    if not pid:
        for number, file in files.items():
            os.dup2(file.fileno(), number)
        for file in closed:
            os.close(file.fileno())
        end(words, cwd, {**environment})
    return pid


def end(words: Sequence[str], cwd: str, environment: Mapping[str, str]) -> NoReturn:
    """Run the words as Python runs its arguments, `-c CODE` or FILE, and end this process, without what it would do at
    its exit: it is a copy of another."""
    status = 1
    try:
        status = _script(words, cwd, environment)
    except BaseException:
        traceback.print_exc()
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def _script(words: Sequence[str], cwd: str, environment: Mapping[str, str]) -> int:
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False)
    try:
        if words[0] == "-c":
            sys.argv = ["-c", *words[2:]]
            exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv = [*words]
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    except Exception:
        traceback.print_exc()
        return 1
    return 0
