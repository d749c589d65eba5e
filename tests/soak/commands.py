"""Commands in forks of a process that has imported moedsl, each with limits of time and memory, and its figures."""

import json
import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

CPU_S, MEMORY = 60, 500 * 10**6
"""What a command may use: seconds of a core, and bytes."""
_ADDRESSES = 4 * MEMORY
"""Where a program that grows is stopped: addresses that are not used cost nothing, so its peak is judged apart."""
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["moedsl.compiler", "moedsl.cli.commands.compile", "moedsl.cli.commands.plan"])


@frozen
class Ended:
    """A command that ended by itself, or at the limit of its time: `code` is then a signal below 0."""

    code: int
    cpu: float
    peak: int
    errors: str

    @property
    def wrong(self) -> str:
        """What must not be; empty if nothing is."""
        if self.code == -signal.SIGXCPU:
            return f"it needs more than {CPU_S} s of a core"
        if self.peak > MEMORY:
            return f"it holds {self.peak / 1e6:.0f} MB, and {MEMORY / 1e6:.0f} is the limit"
        if self.code not in (0, 1) or "Traceback" in self.errors or "error[internal" in self.errors:
            return f"it crashes with exit code {self.code}: {self.errors[-3000:]}"
        if self.code == 1 and "error" not in self.errors:
            return f"it refuses without an error: {self.errors[-3000:]}"
        return ""


class Running:
    """`moedsl WORDS` in a folder; its streams and figures go to files `NAME.*` there."""

    def __init__(self, words: Sequence[str], folder: Path, name: str = "command") -> None:
        self._files = {end: folder / f"{name}.{end}" for end in ("out", "err", "used")}
        for file in self._files.values():
            file.write_bytes(b"")
        self._process = _FORKS.Process(target=_run, args=(words, folder, self._files), daemon=True)
        self._process.start()
        self._killed = False

    def kill(self) -> None:
        """Send SIGKILL."""
        self._killed = True
        self._process.kill()

    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.is_alive()

    def wait(self, until: float = float("inf")) -> Ended | None:
        """Wait for its end; None if `kill` ended it, as it does at `until` of the monotonic clock."""
        self._process.join(None if until == float("inf") else max(0.0, until - time.monotonic()))
        if self._process.exitcode is None:
            self.kill()
            self._process.join()
        code, used = self._process.exitcode or 0, self._files["used"].read_text()
        self._process.close()
        if code == -signal.SIGKILL and self._killed:
            return None
        cpu, peak = json.loads(used) if used else (float(CPU_S), 0)
        return Ended(code, cpu, peak, self._files["err"].read_text(errors="replace"))


def _run(words: Sequence[str], folder: Path, files: dict[str, Path]) -> int:
    from moedsl.cli.main import main

    os.chdir(folder)
    for number, end in ((1, "out"), (2, "err")):
        os.dup2(os.open(files[end], os.O_WRONLY), number)
    for limit, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_CPU, CPU_S), (resource.RLIMIT_AS, _ADDRESSES)):
        resource.setrlimit(limit, (most, resource.getrlimit(limit)[1]))
    try:
        raise SystemExit(main(words))
    finally:
        used = resource.getrusage(resource.RUSAGE_SELF)
        files["used"].write_text(json.dumps((used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)))
