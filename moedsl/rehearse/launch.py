"""Start ranks from the parent, report their progress, and end them all on failure, Ctrl-C or a deadline."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from select import select
from types import TracebackType
from typing import Any, Self

from attrs import frozen

from moedsl.bridge.verify import hub
from moedsl.rehearse.prepare import TASK, Prepared, rank_files
from moedsl.support import child_python
from moedsl.support.resources import stdlib_dir

Progress = Callable[[str], object]
TAIL = 15
"""Lines of a failing rank's log to print."""
_NEWS = re.compile(r"(ready|done|rank (\d+) (iteration|failed) (-?\d+))\b")
_QUIET = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "TORCHDYNAMO_DISABLE": "1"}


@frozen
class Failure:
    """The reason why a rehearsal ended early."""

    kind: str
    """rank, timeout or start."""
    rank: int | None
    status: int | None
    """The exit code; negative for a signal."""
    lines: tuple[str, ...]
    """The last lines of its log."""


@frozen
class Outcome:
    """The results of the ranks. `answers` has one for each rank that finished training (worker.train)."""

    answers: tuple[dict[str, Any], ...]
    failure: Failure | None
    seconds: float


class Host:
    """The warm process of a CPU, which imports Bridge once: `with Host() as host: host.run(prepared)`. A deadline ends
    the process; the next rehearsal starts another."""

    device = "cpu"

    def __init__(self) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="moedsl-hf-")
        home = Path(self._home.name)
        hub.build(home, stdlib_dir() / "hf", hub.user_cache())
        self._home_path = home
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def run(self, prepared: Prepared, timeout: float, progress: Progress = lambda _: None) -> Outcome:
        """Train one rehearsal; `timeout` in seconds includes the import of Bridge. Mistakes do not raise."""
        start = time.monotonic()
        forget(prepared)
        if self._process is None:
            self._log = tempfile.TemporaryFile()  # noqa: SIM115, closed in end()
            self._unread = bytearray()
            self._process = self._start()
            progress("starting the real Megatron Bridge (about ten seconds)")
        job = {"task": str(prepared.folder.resolve() / TASK), "ranks": prepared.rehearsal.ranks}
        failure = self._send(self._process, job) or self._follow(self._process, prepared, start + timeout, progress)
        if failure is not None and failure.kind != "rank":
            self.end()
        return Outcome(answers(prepared), failure, round(time.monotonic() - start, 1))

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "moedsl.rehearse.host", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=_environment(self._home_path),
            start_new_session=True,  # Ctrl-C reaches the parent alone, which ends the whole group
        )

    def end(self) -> None:
        """End the process and all remaining ranks."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):  # the whole group has ended already
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdin and process.stdout
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        self._log.close()

    def close(self) -> None:
        """End what runs and remove temporary files."""
        self.end()
        self._home.cleanup()

    def _send(self, process: subprocess.Popen[bytes], job: dict[str, Any]) -> Failure | None:
        assert process.stdin
        try:
            process.stdin.write(f"{json.dumps(job)}\n".encode())
            process.stdin.flush()
        except BrokenPipeError:
            return self._ended(process)
        return None

    def _follow(
        self, process: subprocess.Popen[bytes], prepared: Prepared, deadline: float, progress: Progress
    ) -> Failure | None:
        failure = None
        for news in self._news(process, deadline):
            if news is None:
                return self._late(prepared) if time.monotonic() >= deadline else self._ended(process)
            if news[0] == "done":
                return failure
            failure = failure or _heard(news, prepared, progress)
        return failure

    def _news(self, process: subprocess.Popen[bytes], deadline: float) -> Iterator[re.Match[str] | None]:
        """Yield each line of messages; None at the end of the messages or of the time."""
        assert process.stdout
        while True:
            while b"\n" in self._unread:
                line, _, rest = bytes(self._unread).partition(b"\n")
                self._unread[:] = rest
                if news := _NEWS.match(line.decode()):
                    yield news
            readable, _, _ = select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(process.stdout.fileno(), 1 << 12) if readable else b""
            if not data:
                yield None
                return
            self._unread += data

    def _ended(self, process: subprocess.Popen[bytes]) -> Failure:
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 8000))
        return Failure("start", None, process.poll(), _last(self._log.read().decode(errors="replace")))

    def _late(self, prepared: Prepared) -> Failure:
        """The rank that is least far, which counts for all."""
        done = {a["rank"] for a in answers(prepared)}
        rank = next((r for r in range(prepared.rehearsal.ranks) if r not in done), 0)
        return Failure("timeout", rank, None, tail(prepared, rank))


def _environment(home: Path) -> dict[str, str]:
    own = child_python.environment() | hub.environment(home) | _QUIET | {"CUDA_VISIBLE_DEVICES": ""}
    return {"GLOO_SOCKET_IFNAME": "lo"} | own


def _heard(news: re.Match[str], prepared: Prepared, progress: Progress) -> Failure | None:
    """Report the iterations of the last rank, which is of the last stage; returns a failure if a rank failed."""
    if news[2] is None:
        return None
    rank, number = int(news[2]), int(news[4])
    if news[3] == "failed":
        return Failure("rank", rank, number, tail(prepared, rank))
    if rank == prepared.rehearsal.ranks - 1:
        progress(f"iteration {number} of {prepared.iterations}")
    return None


def forget(prepared: Prepared) -> None:
    """Remove the output of an earlier rehearsal from this folder."""
    for old in rank_files(prepared.folder):
        old.unlink()


def answers(prepared: Prepared) -> tuple[dict[str, Any], ...]:
    """Read the answers of the ranks."""
    files = (prepared.folder / f"rank_{rank}.json" for rank in range(prepared.rehearsal.ranks))
    return tuple(json.loads(f.read_text(encoding="utf-8")) for f in files if f.exists())


def tail(prepared: Prepared, rank: int) -> tuple[str, ...]:
    """The last lines of a rank's log."""
    log = prepared.folder / f"rank_{rank}.log"
    return _last(log.read_text(encoding="utf-8", errors="replace")) if log.exists() else ()


def _last(text: str) -> tuple[str, ...]:
    return tuple(line for line in text.splitlines() if line.strip())[-TAIL:]
