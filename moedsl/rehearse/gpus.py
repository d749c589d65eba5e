"""Rehearse on GPUs: torchrun starts the ranks over NCCL, with Transformer Engine's own modules."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from moedsl.bridge.verify import hub, te
from moedsl.rehearse.launch import Failure, Outcome, Progress, answers, forget, tail
from moedsl.rehearse.prepare import TASK, Prepared
from moedsl.support import child_python
from moedsl.support.resources import stdlib_dir

_ITERATION = re.compile(r"rank (\d+) iteration (\d+)")


def available() -> int:
    """Count this machine's GPUs for a rehearsal: 0 without Transformer Engine's extension or without CUDA."""
    if te.compiled() is None or find_spec("torch") is None:
        return 0
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


class Gpus:
    """Runs rehearsals like `launch.Ranks`, but each is a torchrun of its own."""

    device = "gpu"

    def __init__(self) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="moedsl-hf-")
        hub.build(Path(self._home.name), stdlib_dir() / "hf", hub.user_cache())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._home.cleanup()

    def run(self, prepared: Prepared, timeout: float, progress: Progress = lambda _: None) -> Outcome:
        """Train one rehearsal; `timeout` in seconds. Ctrl-C ends torchrun, which ends its ranks."""
        start, last = time.monotonic(), prepared.rehearsal.ranks - 1
        folder = prepared.folder.resolve()
        forget(prepared)
        process = subprocess.Popen(
            [
                sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={last + 1}",
                "-m", "moedsl.rehearse.worker", str(folder / TASK),
            ],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            env=child_python.environment() | hub.environment(Path(self._home.name)),
        )  # fmt: skip
        alarm = threading.Timer(timeout, process.terminate)
        alarm.start()
        try:
            _listen(process, folder / "rank_0.log", last, progress)
            status = process.wait()
        finally:
            alarm.cancel()
            process.terminate()  # of one that has ended already nothing comes
            process.wait()
        seconds = round(time.monotonic() - start, 1)
        kind = "timeout" if seconds >= timeout else "rank"
        failure = Failure(kind, 0, status, tail(prepared, 0)) if status else None
        return Outcome(answers(prepared), failure, seconds)


def _listen(process: subprocess.Popen[str], log: Path, last: int, progress: Progress) -> None:
    """Write the output of all ranks into one log, and the last rank's iterations to `progress`."""
    assert process.stdout is not None
    with log.open("w", encoding="utf-8") as file:
        for line in process.stdout:
            file.write(line)
            news = _ITERATION.match(line)
            if news and int(news[1]) == last:
                progress(f"iteration {news[2]}")
