"""Run a script in a fork of this process, which has imported what the script needs: its own process, without the
seconds of imports."""

import io
import multiprocessing
import os
import runpy
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, NoReturn, TextIO


class Process(subprocess.Popen[str]):
    """As `subprocess.Popen([sys.executable, *words], text=True, ...)`."""

    def _execute_child(self, words: Sequence[str], *given: Any) -> None:
        """Fork where Popen would start a program: the order of what is given is that of CPython's subprocess.py."""
        cwd, environment, pipes, new_session = given[4], given[5], given[9:15], given[20]
        theirs, ours = (pipes[0], pipes[3], pipes[5]), (pipes[1], pipes[2], pipes[4])
        self.pid = os.fork()
        if not self.pid:
            if new_session:
                os.setsid()
            for number, file in enumerate(theirs):
                os.dup2(number if file == -1 else file, number)
            for file in ours:
                if file != -1:
                    os.close(file)
            end(words, str(cwd or os.getcwd()), {**(environment or os.environ)})
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def run(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run([sys.executable, *words])` with its output captured."""
    with Process(words, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        out, err = process.communicate()
    return subprocess.CompletedProcess(words, process.returncode, out, err)


_FLAGS = ("-I", "-P", "-S", "-u")
"""Options of Python before its arguments."""


def end(words: Sequence[str], cwd: str, environment: Mapping[str, str]) -> NoReturn:
    """Run the words as Python runs its arguments, `-c CODE`, `-m MODULE` or FILE, and end this process, without what it
    would do at its exit: it is a copy of another. Processes of multiprocessing end with it."""
    status = 1
    try:
        status = _script(words, cwd, environment)
    except BaseException:
        traceback.print_exc()
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    for child in multiprocessing.active_children():
        if child._parent_pid == os.getpid():  # type: ignore[attr-defined]  # else it is a child of what this is a copy of
            child.kill()
    os._exit(status)


def _output(number: int, unbuffered: bool) -> TextIO:
    """A standard stream as Python opens it."""
    if unbuffered:
        return io.TextIOWrapper(os.fdopen(number, "wb", 0, closefd=False), write_through=True)
    return os.fdopen(number, "w", closefd=False)


def _script(words: Sequence[str], cwd: str, environment: Mapping[str, str]) -> int:
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    first = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [folder for folder in first if folder and folder not in sys.path]
    sys.stdin = os.fdopen(0, closefd=False)
    flags = [*takewhile(_FLAGS.__contains__, words)]
    unbuffered = "-u" in flags or bool(environment.get("PYTHONUNBUFFERED"))
    sys.stdout, sys.stderr = (_output(number, unbuffered) for number in (1, 2))
    try:
        words = words[len(flags) :]
        if words[0] == "-m":
            sys.argv = [*words[1:]]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        elif words[0] == "-c":
            sys.argv = ["-c", *words[2:]]
            exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv = [*words]
            sys.path.insert(0, str(Path(words[0]).resolve().parent))
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
