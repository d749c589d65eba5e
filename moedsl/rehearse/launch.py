"""Start the ranks of a rehearsal, report their progress, and end them all on failure, Ctrl-C or a deadline.

`Ranks` trains on the CPU and `Gpus` on GPUs, where torchrun starts the ranks over NCCL with Transformer Engine's own
modules. `lacking` finds models that this machine cannot rehearse because kernel packages are missing: a Mamba-2 mixer
needs mamba_ssm and causal_conv1d, which need a GPU. A gated delta net needs fla, but Megatron-Core also has a PyTorch
path, which a rehearsal on a CPU uses (moedsl.rehearse.cpu.layers).
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from attrs import frozen

from moedsl.bridge.verify import environments, stand_ins
from moedsl.bridge.verify.host import Host, HostEndedError, Start, popen
from moedsl.facts.facts import Model
from moedsl.rehearse.prepare import TASK, Prepared, rank_files
from moedsl.support import resources
from moedsl.support.children import guarded
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.resources import stdlib_dir

Progress = Callable[[str], object]
TAIL = 15
"""Lines of a failing rank's log to print."""
MOST = 1 << 16
"""The distance between the task ids of two rehearsals: more than a rehearsal has ranks."""
ENVIRONMENT = {"TORCHDYNAMO_DISABLE": "1", "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo")}


@frozen
class Failure:
    """Why a rehearsal ended early."""

    kind: str
    """rank, timeout or start."""
    rank: int | None
    status: int | None
    """The exit code; negative for a signal."""
    lines: tuple[str, ...]
    """The last lines of the rank's log."""


@frozen
class Outcome:
    """The results of the ranks. `answers` has one for each rank that finished training (worker.train)."""

    answers: tuple[dict[str, Any], ...]
    failure: Failure | None
    seconds: float


class Ranks:
    """Trains rehearsals on a CPU: `with Ranks() as ranks: ranks.run(prepared)`.

    A host process imports Bridge once and forks for each rank. A missed deadline ends the host; the next rehearsal
    starts another.
    """

    device = "cpu"

    def __init__(self, start: Start = popen) -> None:
        self._start = start
        self._host: Host | None = None
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the host and all ranks."""
        host, self._host = self._host, None
        if host is not None:
            host.close()

    def run(self, prepared: Prepared, timeout: float, progress: Progress = lambda _: None) -> Outcome:
        """Train one rehearsal; `timeout`, in seconds, includes the import of Bridge. Failures are returned, not
        raised."""
        start = time.monotonic()
        forget(prepared)
        if self._host is None:
            self._host = Host("moedsl.rehearse.worker", ENVIRONMENT, self._start)
            progress("starting the real Megatron Bridge (about ten seconds)")
        try:
            failure = self._train(self._host, prepared, start + timeout, progress)
        except HostEndedError as ended:
            failure = Failure("start", None, ended.status, last_lines(ended.log))
        if failure is not None and failure.kind != "rank":
            self.close()
        return Outcome(answers(prepared), failure, round(time.monotonic() - start, 1))

    def _train(self, host: Host, prepared: Prepared, deadline: float, progress: Progress) -> Failure | None:
        """Start the ranks, follow them, and end all when one fails; return the failure, or None."""
        folder, count = prepared.folder.resolve(), prepared.rehearsal.ranks
        first = next(self._numbers) * MOST
        common = {"task": str(folder / TASK), "ranks": count, "store": str(host.folder / f"store{first}")}
        host.start([(first + r, {**common, "rank": r, "log": str(folder / f"rank_{r}.log")}) for r in range(count)])
        left, raised, failure = {*range(count)}, list[int](), None
        while left:
            message = host.next(deadline)
            if message is None:
                done = {a["rank"] for a in answers(prepared)}
                rank = min({*range(count)} - done, default=0)  # the first rank without an answer stands for all
                return Failure("timeout", rank, None, tail(prepared, rank))
            rank = message.get("id", first) - first
            if "raised" in message:
                raised.append(rank)
            elif "told" in message and rank == count - 1:  # a rank of the last stage
                progress(f"{message['told']} of {prepared.iterations}")
            ended = {id - first: status for id, status in message.get("ended", ())}
            left -= ended.keys()
            if failure is None and (failed := [rank for rank, status in ended.items() if status]):
                # a rank that raised nothing was killed, and others failed because it was gone
                rank = min(failed, key=lambda r: raised.index(r) if r in raised else -1)
                failure = Failure("rank", rank, ended[rank], tail(prepared, rank))
                host.end(first + r for r in left)
        return failure


def forget(prepared: Prepared) -> None:
    """Remove the output of an earlier rehearsal from this folder."""
    for old in rank_files(prepared.folder):
        old.unlink()


def answers(prepared: Prepared) -> tuple[dict[str, Any], ...]:
    """Read the answers of the ranks."""
    files = (prepared.folder / f"rank_{rank}.json" for rank in range(prepared.rehearsal.ranks))
    return tuple(json.loads(f.read_text(encoding="utf-8")) for f in files if f.exists())


def tail(prepared: Prepared, rank: int) -> tuple[str, ...]:
    """Return the last lines of a rank's log; empty if there is no log."""
    log = prepared.folder / f"rank_{rank}.log"
    return last_lines(log.read_text(encoding="utf-8", errors="replace")) if log.exists() else ()


def last_lines(text: str) -> tuple[str, ...]:
    return tuple(line for line in text.splitlines() if line.strip())[-TAIL:]


_ITERATION = re.compile(r"rank (\d+) iteration (\d+)")


def available() -> int:
    """Count this machine's GPUs for a rehearsal: 0 without Transformer Engine's extension or without CUDA."""
    if stand_ins.compiled() is None or find_spec("torch") is None:
        return 0
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


class Gpus:
    """Trains rehearsals on GPUs, like `Ranks` on a CPU, but each in a torchrun of its own."""

    device = "gpu"

    def __init__(self) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="moedsl-hf-")
        environments.build_hub(Path(self._home.name), stdlib_dir() / "hf", environments.user_cache())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._home.cleanup()

    def run(self, prepared: Prepared, timeout: float, progress: Progress = lambda _: None) -> Outcome:
        """Train one rehearsal; `timeout` in seconds. Ctrl-C ends torchrun, which ends its ranks."""
        start, last = time.monotonic(), prepared.rehearsal.ranks - 1
        folder = prepared.folder.resolve()
        forget(prepared)
        process = subprocess.Popen(
            guarded([
                sys.executable, "-m", "torch.distributed.run", "--standalone", "--nnodes=1",
                f"--nproc-per-node={last + 1}", "-m", "moedsl.rehearse.worker", str(folder / TASK),
            ]),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            env=resources.child_environment() | environments.hub_environment(Path(self._home.name)),
        )  # fmt: skip
        alarm = threading.Timer(timeout, process.terminate)
        alarm.start()
        try:
            assert process.stdout is not None
            with (folder / "rank_0.log").open("w", encoding="utf-8") as file:  # the log of all ranks
                for line in process.stdout:
                    file.write(line)
                    news = _ITERATION.match(line)
                    if news and int(news[1]) == last:
                        progress(f"iteration {news[2]}")
            status = process.wait()
        finally:
            alarm.cancel()
            process.terminate()  # nothing happens if it has ended already
            process.wait()
        seconds = round(time.monotonic() - start, 1)
        kind = "timeout" if seconds >= timeout else "rank"
        failure = Failure(kind, 0, status, tail(prepared, 0)) if status else None
        return Outcome(answers(prepared), failure, seconds)


MAMBA = ("mamba_ssm", "causal_conv1d")
"""The packages that Megatron-Core's Mamba-2 mixer imports (core ssm/mamba_mixer.py:61-81, 200)."""
DELTA_NETS = ("fla",)
"""The packages that its gated delta nets import (core ssm/gated_delta_net/common.py:44-46, 141)."""


def lacking(models: Sequence[Model], on_gpus: bool) -> Diagnostic | None:
    """Report rehearse.no_kernels if a model's layers need a GPU or kernel packages that this run lacks; else None."""
    for m in models:
        mamba = "M" in m.layer_pattern + m.mtp_pattern
        kernels = (("Mamba-2 layers", MAMBA, mamba, True), ("gated delta nets", DELTA_NETS, m.linear, False))
        for layers, packages, needed, needs_gpu in kernels:
            absent = " and ".join(name for name in packages if find_spec(name) is None)
            if needed and (absent if on_gpus else needs_gpu):
                missing = f"{absent if len(packages) > 1 else 'it is'} missing in this Python"
                why = missing if on_gpus else "they cannot run on a CPU"
                layers, named = f"the {layers} of {m.name}", " and ".join(packages)
                return error("rehearse.no_kernels", layers=layers, named=named, why=why)
    return None
