"""Run the warm process: import Bridge once, then fork for each case. JSON lines: cases on stdin, answers on stdout.

First line out: {"ready": true, "seconds", "versions", "stood_in"} or {"ready": false, "error"}. Then {"id", "report"}
for each {"id", "case"} line in, as they finish; the end of stdin ends the process.

usage: python -m moedsl.bridge.verify.server JOBS STAND_INS
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import selectors
import signal
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from attrs import define, field

from moedsl.bridge.verify import case as cases
from moedsl.bridge.verify import hub, mamba, sparse, te
from moedsl.bridge.verify.report import failed

PACKAGES = ("megatron-bridge", "megatron-core", "torch", "transformers", "transformer-engine")
USED = (
    "megatron.bridge",
    "megatron.bridge.models.model_provider",
    "megatron.bridge.training.config",
    "megatron.bridge.recipes",
    "megatron.bridge.training.initialize",
    "moedsl.bridge.verify.resolve",
    "moedsl.bridge.verify.worker",
)
"""The modules that questions import, loaded before any fork."""


@define
class _Child:
    """A fork that works on one case."""

    key: int
    file: str
    pid: int
    pipe: int
    log: BinaryIO
    deadline: float
    timed_out: bool = False
    answer: bytearray = field(factory=bytearray)
    silent: bool = False
    """Whether nobody can write into the pipe any more."""
    status: int | None = None

    def has_ended(self) -> bool:
        """Whether it has ended; `status` is then how."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = status if pid else None
        return self.status is not None


def warm(stand_ins: str) -> dict[str, Any]:
    """Import Bridge and what its questions use, and print the first line."""
    start = time.monotonic()
    engine = te.install()
    mamba.install()
    sparse.install()
    for name in USED:
        importlib.import_module(name)
    import torch

    torch.set_num_threads(1)
    hub.stay_offline(Path(stand_ins))
    gc.freeze()  # a collection in a fork would copy every page
    absent = (
        [] if engine == "real" else [f"transformer_engine_torch ({engine}: classes register parameters, none computes)"]
    )
    gpus = (
        []
        if torch.cuda.is_available()
        else ["the GPU (torch.cuda answers as the target), NCCL (torch's fake process group)"]
    )
    seconds = round(time.monotonic() - start, 2)
    return {"ready": True, "seconds": seconds, "versions": _versions(), "stood_in": absent + gpus}


def _versions() -> dict[str, str]:
    out: dict[str, str] = {}
    for name in PACKAGES:
        try:
            out[name] = version(name)
        except PackageNotFoundError:
            out[name] = "absent"
    return out


def serve(out: TextIO, jobs: int, stand_ins: str) -> None:
    """Answer until stdin ends and every child has finished."""
    waiting: deque[Mapping[str, Any]] = deque()
    children: dict[int, _Child] = {}
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    unread, is_open = bytearray(), True
    while is_open or waiting or children:
        while waiting and len(children) < jobs:
            child = _start(waiting.popleft(), stand_ins)
            children[child.pipe] = child
            selector.register(child.pipe, selectors.EVENT_READ)
        closing = any(child.silent for child in children.values())  # they end about now
        for key, _ in selector.select(timeout=0.01 if closing else 0.5):
            data = os.read(key.fd, 1 << 16)
            if key.fd == 0:
                is_open = bool(data)
                unread += data
                waiting.extend(_lines(unread))
                if not is_open:
                    selector.unregister(0)
            elif data:
                children[key.fd].answer += data
            else:
                selector.unregister(key.fd)
                children[key.fd].silent = True
        _end_late(children)
        for child in [c for c in children.values() if c.has_ended()]:
            if not child.silent:
                selector.unregister(child.pipe)
            print(json.dumps(_finish(children.pop(child.pipe))), file=out, flush=True)


def _lines(unread: bytearray) -> list[Mapping[str, Any]]:
    """Remove the whole lines from `unread` and return them."""
    *whole, rest = bytes(unread).split(b"\n")
    unread[:] = rest
    return [json.loads(line) for line in whole if line.strip()]


def _start(job: Mapping[str, Any], stand_ins: str) -> _Child:
    case = cases.from_json(job["case"])
    log = tempfile.TemporaryFile()  # noqa: SIM115, closed in _finish
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        _work(case, write, log.fileno(), stand_ins)
    os.close(write)
    with suppress(PermissionError, ProcessLookupError):  # the child has done it, or has ended
        os.setpgid(pid, pid)
    return _Child(job["id"], case.file, pid, read, log, time.monotonic() + case.seconds)


def _work(case: cases.Case, write: int, log: int, stand_ins: str) -> None:
    """Run the child: its prints go to the log, its report into the pipe; never returns."""
    status = 1
    try:
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        data = json.dumps(_answer(case, stand_ins), default=str).encode()
        with os.fdopen(write, "wb") as pipe:
            pipe.write(data)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _answer(case: cases.Case, stand_ins: str) -> dict[str, Any]:
    from moedsl.bridge.verify import resolve, worker

    return (resolve.resolve(case) if case.question == "resolve" else worker.judge(case, stand_ins)).to_json()


def _end_late(children: Mapping[int, _Child]) -> None:
    for child in children.values():
        if time.monotonic() > child.deadline and not child.timed_out and not child.has_ended():
            child.timed_out = True
            _end_group(child)


def _end_group(child: _Child) -> None:
    """End the child, and what its recipe has started."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _finish(child: _Child) -> dict[str, Any]:
    """Read the report of a child that has ended; a crash and a timeout are reports too."""
    _end_group(child)
    if not child.silent:  # a process of the recipe's may hold the pipe open
        os.set_blocking(child.pipe, False)
        with suppress(BlockingIOError):
            while data := os.read(child.pipe, 1 << 16):
                child.answer += data
    os.close(child.pipe)
    status = child.status or 0
    if child.timed_out:
        report = failed(child.file, "verify.timeout", "no answer in time; the process was ended").to_json()
    elif status or not child.answer:
        report = failed(child.file, "verify.crash", f"{_ended(status)}: {_tail(child.log)}").to_json()
    else:
        report = json.loads(child.answer)
    child.log.close()
    return {"id": child.key, "report": report}


def _ended(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    how = f"{signal.Signals(-code).name} ended the process" if code < 0 else f"the process ended with exit code {code}"
    return f"{how} before it answered, perhaps by the recipe itself"


def _tail(log: BinaryIO) -> str:
    log.seek(max(0, log.seek(0, os.SEEK_END) - 3000))
    return log.read().decode(errors="replace").strip()


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the imports print is no answer
    try:
        first = warm(sys.argv[2])
    except Exception:
        first = {"ready": False, "error": traceback.format_exc()[-3000:]}
    print(json.dumps(first), file=out, flush=True)
    if first["ready"]:
        serve(out, int(sys.argv[1]), sys.argv[2])


if __name__ == "__main__":
    main()
