"""A process that imports Megatron Bridge once and is forked for each task: the import takes ten seconds, a fork 40 ms.

`Host` starts `python -m moedsl.bridge.verify.host MODULE`. The module has two functions:

- `load() -> dict` imports what its tasks need. Its result is the host's first message.
- `work(task, tell)` does one task in a fork. It may `tell` the parent a text before it ends.

Both sides write JSON lines. The parent sends ``{"start": [[ID, TASK], ...]}`` and ``{"end": [ID, ...]}``. The host
sends ``{"ready": true, ...}`` or ``{"ready": false, "error"}`` first, then

- ``{"id", "told"}`` from a fork, and ``{"id", "raised"}`` from one that fails by an exception;
- ``{"ended": [[ID, STATUS], ...]}`` as soon as the kernel reports that forks have ended, however they ended.

A fork writes its output to the file `task["log"]`, and its answer to another file: processes that it leaves running
would keep a pipe open. The host ends when its stdin closes, and the forks end with the host.

`concurrent.futures.ProcessPoolExecutor` does not fit: one crash fails the tasks of all its processes without the exit
status, tasks have no deadline, and a forkserver cannot have its own environment, which an older release of Bridge
needs.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol

from moedsl.bridge.verify import environments
from moedsl.support import resources
from moedsl.support.resources import stdlib_dir

Message = Mapping[str, Any]
Tell = Callable[[str], object]
_QUIET = {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
_LOOK = 0.5
"""Seconds between checks whether a silent host has ended: a process that a task left running may hold its pipe open."""
_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


class Process(Protocol):
    """The part of `subprocess.Popen` that a host needs."""

    pid: int
    stdin: IO[bytes] | None
    stdout: IO[bytes] | None

    def poll(self) -> int | None: ...
    def wait(self) -> int: ...


class HostEndedError(Exception):
    """The host ended, perhaps while it imported Bridge. `log` has the end of its output."""

    def __init__(self, status: int | None, log: str) -> None:
        super().__init__(log)
        self.status, self.log = status, log


def popen(words: Sequence[str], log: IO[bytes], environment: Mapping[str, str]) -> Process:
    """Start the host in its own session, so that Ctrl-C reaches only the parent, which ends the host."""
    return subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment, start_new_session=True
    )


def child_environment(home: Path) -> dict[str, str]:
    """Return the environment of a host, with a folder of Hugging Face files that `environments.build_hub` made."""
    return resources.child_environment() | environments.hub_environment(home) | _QUIET


Start = Callable[[Sequence[str], IO[bytes], Mapping[str, str]], Process]
"""A function like `popen`; the tests' function forks a process that has already imported Bridge."""


class Host(AbstractContextManager["Host"]):
    """The parent's side. `folder` is a temporary folder for logs and answers; `close` removes it."""

    def __init__(self, module: str, environment: Mapping[str, str] | None = None, start: Start = popen) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="moedsl-hf-")
        self.folder = Path(self._home.name)
        environments.build_hub(self.folder, stdlib_dir() / "hf", environments.user_cache())
        self._log = tempfile.TemporaryFile()  # noqa: SIM115, closed in close()
        words = [sys.executable, "-m", "moedsl.bridge.verify.host", module]
        self._process = start(words, self._log, {**child_environment(self.folder), **(environment or {})})
        self._messages: deque[Message] = deque()
        self._unread = b""
        self._first: Message | None = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def first(self, deadline: float = float("inf")) -> Message | None:
        """Return the first message; None if it has not come by the deadline, a value of `time.monotonic`."""
        if self._first is None:
            self._first = self._message(deadline)
        return self._first

    def next(self, deadline: float = float("inf")) -> Message | None:
        """Return the next message after the first; None at the deadline. Raises HostEndedError."""
        return self._message(deadline) if self.first(deadline) is not None else None

    def _message(self, deadline: float) -> Message | None:
        assert self._process.stdout
        while not self._messages:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            ended = self._process.poll() is not None  # first, so that what it wrote before is read below
            if select.select([self._process.stdout], [], [], 0 if ended else min(left, _LOOK))[0]:
                data = os.read(self._process.stdout.fileno(), 1 << 16)
                *lines, self._unread = (self._unread + data).split(b"\n")
                self._messages.extend(json.loads(line) for line in lines)
                ended = not data
            if ended and not self._messages:
                with suppress(ProcessLookupError):  # it is ending, or it has closed the pipe and lives on
                    os.killpg(self._process.pid, signal.SIGKILL)
                status = self._process.wait()
                self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 8000))
                raise HostEndedError(status, self._log.read().decode(errors="replace"))
        return self._messages.popleft()

    def start(self, tasks: Iterable[tuple[int, Mapping[str, Any]]]) -> None:
        """Fork a process for each (ID, task). An ID is not used twice at the same time."""
        self._send({"start": [*tasks]})

    def end(self, ids: Iterable[int]) -> None:
        """End forks and the processes that they started; forks that have already ended are skipped."""
        self._send({"end": [*ids]})

    def _send(self, message: Message) -> None:
        assert self._process.stdin
        with suppress(BrokenPipeError):  # it has ended: `next` raises
            self._process.stdin.write(f"{json.dumps(message)}\n".encode())
            self._process.stdin.flush()

    def close(self) -> None:
        """End the host and all forks, and remove the folder."""
        assert self._process.stdin and self._process.stdout
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        if self._first is None or not self._first["ready"]:  # it is still importing, and does not read stdin
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.stdout.close()  # so that a message that nobody reads cannot block it
        self._process.wait()
        self._log.close()
        self._home.cleanup()


# ------------------------------------------------------------------ the host's own side


def main() -> None:
    """Load the module, then start and end forks as the parent asks and report each end, until stdin ends."""
    out = os.dup(1)
    os.dup2(2, 1)  # what the imports print must not look like a message
    work: Callable[[Mapping[str, Any], Tell], None]
    try:
        with _ended_by_stdin():
            module = importlib.import_module(sys.argv[1])
            first, work = {"ready": True, **module.load()}, module.work
    except Exception:
        traceback.print_exc()
        _write(out, {"ready": False, "error": traceback.format_exc()[-3000:]})
        sys.exit(1)
    gc.freeze()  # a collection in a fork would copy every page
    _write(out, first)
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)  # without a handler the pipe gets no byte
    forks: dict[int, int] = {}
    """Process id -> task ID of each running fork."""
    unread = b""
    while True:
        ready = select.select([0, woken], [], [])[0]
        if woken in ready:
            os.read(woken, 1 << 12)
        if 0 in ready:
            data = os.read(0, 1 << 16)
            if not data:
                for pid in forks:
                    _end_group(pid)
                return
            *lines, unread = (unread + data).split(b"\n")
            for message in map(json.loads, lines):
                for id, task in message.get("start", ()):
                    forks[_fork(work, id, task, out)] = id
                for pid in [pid for pid, id in forks.items() if id in message.get("end", ())]:
                    _end_group(pid)
        ended: list[tuple[int, int]] = []
        for pid in [*forks]:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                _end_group(pid)
                ended.append((forks.pop(pid), os.waitstatus_to_exitcode(status)))
        if ended:
            _write(out, {"ended": ended})


@contextmanager
def _ended_by_stdin() -> Generator[None]:
    """End this process when stdin closes inside, where nothing reads it: the parent has ended."""
    over, stop = os.pipe()
    watched = select.poll()
    watched.register(0, 0)  # for POLLHUP
    watched.register(over, 0)

    def watch() -> None:
        if 0 in dict(watched.poll()):
            os._exit(1)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.close(stop)
        thread.join()
        os.close(over)


def _write(out: int, message: Message) -> None:
    os.write(out, f"{json.dumps(message)}\n".encode())  # one write, shorter than PIPE_BUF, so lines do not mix


def _end_group(pid: int) -> None:
    """End a fork and the processes that it started, unless they have left its process group."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _fork(work: Callable[[Mapping[str, Any], Tell], None], id: int, task: Mapping[str, Any], out: int) -> int:
    """Fork for one task, and return the process id in the parent. In the child it never returns."""
    host, pid = os.getpid(), os.fork()
    if pid:
        with suppress(PermissionError, ProcessLookupError):  # the child has done it, or has ended
            os.setpgid(pid, pid)
        return pid
    status = 1
    try:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != host:
            os._exit(1)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        log = os.open(task["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        work(task, lambda text: _write(out, {"id": id, "told": text}))
        status = 0
    except BaseException:
        with suppress(OSError):  # the task may have closed the pipe
            _write(out, {"id": id, "raised": True})  # before its connections close, which makes other tasks fail too
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
