"""Import Megatron Bridge once, then fork a process for each rank of each task.

`python -m moedsl.rehearse.host PARENT`, where PARENT is the process that started it and with which it ends. A line of
stdin is a task: {"task": its file, "ranks"}. Lines of stdout are messages: ``ready SECONDS``, then for each task ``rank
R iteration N``, ``rank R failed STATUS`` and ``done``. The output of rank R is in ``rank_R.log`` of the task's folder.
The first rank that fails ends the others; the end of stdin ends the process, and its end ends the ranks.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from moedsl.rehearse import worker

_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2)."""
_NUMBER = 8
"""Bytes of a port or a rank in a pipe."""


def main() -> None:
    """Serve until stdin ends."""
    _die_with(int(sys.argv[1]))
    news, start = os.dup(1), time.monotonic()
    os.dup2(2, 1)  # whatever the imports print is no news
    worker.load_for_cpu()
    gc.freeze()  # a collection in a fork would copy every page
    _say(news, f"ready {time.monotonic() - start:.1f}")
    for line in sys.stdin:
        job = json.loads(line)
        _run(worker.read(job["task"]), job["ranks"], news)
        _say(news, "done")


def _die_with(parent: int) -> None:
    """End this process when `parent` ends, or now if it has ended already."""
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _say(news: int, text: str) -> None:
    os.write(news, f"{text}\n".encode())


def _run(task: worker.Task, ranks: int, news: int) -> None:
    """Make the store at which ranks meet after the forks: it has a thread, and a fork must not copy a running one."""
    (listen, tell), (raised, raising) = os.pipe(), os.pipe()
    children = {_fork(task, rank, ranks, (news, listen, tell, raising)): rank for rank in range(ranks)}
    distributed: Any = importlib.import_module("torch.distributed")
    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # a port of the kernel's
    os.write(tell, f"{store.port:{_NUMBER}d}".encode() * ranks)
    _wait(children, news, raised)
    for end in (listen, tell, raised, raising):
        os.close(end)
    del store


def _meet(listen: int) -> None:
    """Make this rank a client of the store, as under torchrun, when its port is known."""
    port = int(os.read(listen, _NUMBER))
    agent = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), **agent)


def _fork(task: worker.Task, rank: int, ranks: int, pipes: tuple[int, int, int, int]) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _die_with(parent)
        news, listen, tell, raising = pipes
        os.close(tell)
        _be(task, rank, ranks, (news, listen, raising))
    return pid


def _be(task: worker.Task, rank: int, ranks: int, pipes: tuple[int, int, int]) -> NoReturn:
    """Run the child: one rank, with its output in a file of its own."""
    news, listen, raising = pipes
    status = 1
    try:
        log = os.open(Path(task.out, f"rank_{rank}.log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        _meet(listen)
        worker.train(task, rank, ranks, lambda text: _say(news, f"rank {rank} {text}"))
        status = 0
    except BaseException:
        _raise(raising, rank)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _raise(raising: int, rank: int) -> None:
    """Tell that this rank fails, while its connections are open: others fail when they close."""
    os.write(raising, f"{rank:{_NUMBER}d}".encode())


def _wait(children: Mapping[int, int], news: int, raised: int) -> None:
    left, failed = dict(children), False
    while left:
        pid, status = os.wait()
        rank = left.pop(pid, None)
        if rank is not None and status and not failed:
            failed = True
            ended = {rank: status} | _ended(left)
            rank = _first(ended, raised)
            _say(news, f"rank {rank} failed {os.waitstatus_to_exitcode(ended[rank])}")
            _end(left)


def _ended(left: dict[int, int]) -> dict[int, int]:
    """Remove the ranks that have ended too from `left`; returns the statuses of those that failed."""
    ended = {rank: os.waitpid(pid, os.WNOHANG) for pid, rank in left.items()}
    for pid, _ in ended.values():
        left.pop(pid, None)
    return {rank: status for rank, (_, status) in ended.items() if status}


def _first(ended: Mapping[int, int], raised: int) -> int:
    """The rank that failed first of several that have ended: one that raised nothing, because it was killed, else the
    first that raised."""
    os.set_blocking(raised, False)
    try:
        told = os.read(raised, _NUMBER * 4096)
    except BlockingIOError:
        told = b""
    order = [int(told[at : at + _NUMBER]) for at in range(0, len(told), _NUMBER)]
    return min(ended, key=lambda rank: order.index(rank) if rank in order else -1)


def _end(children: Iterable[int]) -> None:
    for pid in children:
        os.kill(pid, signal.SIGKILL)  # not waited for yet, so it is still ours


if __name__ == "__main__":
    main()
