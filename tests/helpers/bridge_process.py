"""A Python that has imported Megatron Bridge: one process for a whole run of the tests, which forks for each script.

Importing torch and Bridge costs 10 to 15 s of a core. `run` gives a script a process of its own without it: the same
code, in a fork of a process that has only imported, with Transformer Engine and Mamba's kernels stood in for as in
`moedsl verify`. What needs another Megatron, or one without Transformer Engine, is a fork of what the process was before
it imported NVIDIA's code: of a `Stage`.
"""

import array
import ctypes
import fcntl
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Literal

from moedsl.bridge.verify import environments
from moedsl.facts.releases import Release
from tests.helpers import forks, run_folder
from tests.helpers.paths import ROOT

Stage = Literal["torch", "transformers", "bridge"]
"""What a fork has imported: torch and packages that know no Transformer Engine, Hugging Face's too, and all of it."""
OTHERS: Mapping[Stage, Sequence[str]] = {
    "torch": (
        "torch", "torch._dynamo", "torch.distributed.checkpoint", "torch.distributed.run", "scipy.stats", "pandas", "datasets",
        "onnx_ir", "tensorboard",
    ),
    "transformers": ("transformers.models.auto.modeling_auto", "diffusers"),
}  # fmt: skip
"""The packages that are not NVIDIA's and take the longest; an older release of Bridge has a `transformers` of its own."""
IMPORTED = (
    "megatron.bridge",
    "megatron.bridge.recipes",
    "megatron.bridge.models.model_provider",
    "megatron.bridge.training.config",
    "megatron.bridge.training.initialize",
    "megatron.bridge.training.comm_overlap",
    "megatron.bridge.training.mixed_precision",
    "megatron.core.pipeline_parallel.schedules",
)
_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2)."""
START = 300
"""Seconds after which a process that is not ready has failed."""


def run(
    *words: str, text: str = "", stage: Stage = "bridge", environment: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run([sys.executable, *words], input=text, env=environment)` with its output captured."""
    given, out, err = (tempfile.TemporaryFile("w+") for _ in range(3))  # noqa: SIM115, closed below
    with given, out, err:
        given.write(text)
        given.seek(0)
        _, answer = _forked(words, (given, out, err), environment, stage)
        status = _status(answer)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(words, status, out.read(), err.read())


class Process:
    """As `subprocess.Popen([sys.executable, *words], stdin=PIPE, stdout=PIPE, stderr=log, text=text, env=environment)`."""

    def __init__(
        self,
        words: Sequence[str],
        log: IO[bytes],
        environment: Mapping[str, str],
        stage: Stage = "bridge",
        text: bool = True,
    ) -> None:
        read, write = os.pipe(), os.pipe()
        theirs = os.fdopen(read[0]), os.fdopen(write[1], "w")
        self.stdin: IO[Any] = os.fdopen(read[1], "w" if text else "wb")
        self.stdout: IO[Any] = os.fdopen(write[0], "r" if text else "rb")
        self.pid, self._answer = _forked(words, (theirs[0], theirs[1], log), environment, stage)
        self._status: int | None = None
        for file in theirs:
            file.close()

    def terminate(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def poll(self) -> int | None:
        """Its status if it has ended."""
        if self._status is None and select.select([self._answer], [], [], 0)[0]:
            self._status = _status(self._answer)
        return self._status

    def wait(self) -> int:
        """Its status, once it has ended."""
        if self._status is None:
            self._status = _status(self._answer)
        self.stdin.close()
        self.stdout.close()
        return self._status


def stage_of(release: Release | None) -> Stage:
    """What a process of a release of Bridge may have imported before."""
    return "bridge" if release is None else "torch" if release.own else "transformers"


def python(folder: Path, stage: Stage = "bridge", name: str = "warm_python") -> Path:
    """A program in this folder that does as Python does, by a fork of the process: for what starts it by its name."""
    made = folder / name
    made.write_text(_CLIENT.format(python=sys.executable, address=str(_started(stage))))
    made.chmod(0o755)
    return made


_CLIENT = """#!{python} -ISB
import array, json, os, signal, socket, sys
forwarded = (signal.SIGINT, signal.SIGTERM)
signal.pthread_sigmask(signal.SIG_BLOCK, forwarded)  # until it is known where to
line = socket.socket(socket.AF_UNIX)
line.connect({address!r})
line.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
job = {{"words": sys.argv[1:], "cwd": os.getcwd(), "environment": {{**os.environ}}}}
line.sendall(json.dumps(job).encode() + b"\\n")
answer = line.makefile()
pid = int(answer.readline())
def forward(number, frame):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it has ended, and its status is on the way
for number in forwarded:
    signal.signal(number, forward)
signal.pthread_sigmask(signal.SIG_UNBLOCK, forwarded)
status = int(answer.readline())
if status < 0:
    if status != -signal.SIGKILL:
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


def home() -> Path:
    """The folder from which the process reads what is Hugging Face's."""
    return run_folder.path() / "hf"


def _forked(
    words: Sequence[str], files: Sequence[IO[Any]], environment: Mapping[str, str], stage: Stage
) -> tuple[int, IO[str]]:
    """A fork that runs the words, with these files as its input, output and errors: its number, and where its status will
    be read."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.connect(str(_started(stage)))
    job = {"words": words, "cwd": os.getcwd(), "environment": {**environment}}
    numbers = array.array("i", [file.fileno() for file in files])
    line.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)])
    line.sendall(json.dumps(job).encode() + b"\n")
    with line:
        answer = line.makefile()
    return _number(answer), answer


def _status(answer: IO[str]) -> int:
    with answer:
        return _number(answer)


def _number(answer: IO[str]) -> int:
    text = answer.readline()
    assert text, "the process that has imported Bridge ended"
    return int(text)


def _started(stage: Stage) -> Path:
    """The socket of a stage of the process; the first worker that needs it starts the process."""
    folder = run_folder.path()
    address, log = folder / stage, folder / "bridge.log"
    with (folder / "bridge.lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not log.exists():
            with log.open("w") as out:
                words = [sys.executable, "-m", "tests.helpers.bridge_process", str(folder)]
                quiet = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"}
                quiet["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=1"  # huge pages: a fork copies half of the tables
                process = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=os.environ | quiet, cwd=ROOT,
                    start_new_session=True,
                )  # fmt: skip
            lock.write(str(process.pid))
            lock.flush()
        lock.seek(0)
        pid = int(lock.read())
    end = time.monotonic() + START
    while not address.exists():
        assert lives(pid) and time.monotonic() < end, log.read_text()[-3000:]
        time.sleep(0.05)
    return address


def lives(pid: int) -> bool:
    """Whether a process has not ended, even if nobody has asked for its status yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the second if it goes while it is read
        return False


# ---------------------------------------------------------------- the process


def serve(folder: Path) -> None:
    """Imports, and then forks for each script that it is asked to run; a fork of it does so at each stage before."""
    warnings.filterwarnings("ignore")
    gc.set_threshold(20_000)  # imports make hardly any garbage
    environments.build_hub(folder / "hf", ROOT / "stdlib" / "hf", folder / "hf" / "none")
    os.environ.update(environments.hub_environment(folder / "hf"))  # read while transformers is imported
    for stage, names in OTHERS.items():
        for name in names:
            importlib.import_module(name)
        gc.freeze()
        if not os.fork():
            ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
            _answer(folder / stage)
            return
    _load()
    _answer(folder / "bridge")
    shutil.rmtree(folder, ignore_errors=True)


def _answer(address: Path) -> None:
    waiting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    waiting.bind(f"{address}.new")
    waiting.listen()
    Path(f"{address}.new").rename(address)
    ended, wake = socket.socketpair()
    for end in (ended, wake):
        end.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    lines: dict[int, socket.socket] = {}
    while not run_folder.is_left(address.parent, begun=True):
        ready = select.select([waiting, ended, *lines.values()], [], [], 1)[0]
        if ended in ready:
            ended.recv(1 << 12)
        for pid, line in lines.items():
            if line in ready:  # who asked was killed, which nobody can forward
                os.kill(pid, signal.SIGKILL)
        if waiting in ready:
            line, _ = waiting.accept()
            if asked := _asked(line):
                lines[_fork(line, [waiting, *lines.values()], *asked)] = line
            else:
                line.close()
        for pid in [*lines]:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                with suppress(ConnectionError), lines.pop(pid) as line:
                    line.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _load() -> None:
    from moedsl.bridge.verify import stand_ins

    engine = stand_ins.install_engine()
    stand_ins.install_engine = lambda: engine  # a second stand-in would be another module than the one that is imported
    from moedsl.bridge.verify import client

    client.load()
    stand_ins.install_sparse_attention = lambda: None  # what is missing is not asked of its stand-in
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()  # a collection in a fork would copy every page


def _fork(line: socket.socket, others: Sequence[socket.socket], job: Mapping[str, Any], files: Sequence[int]) -> int:
    """Fork for a job whose client is at `line`; the fork holds no end of a line, so all see it if this process ends."""
    pid = os.fork()
    if not pid:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)  # it ends with the process that it is a copy of
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for end in (line, *others):
            end.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
        forks.end(job["words"], job["cwd"], job["environment"])
    with suppress(PermissionError, ProcessLookupError):  # it has done so itself, and runs another program or has ended
        os.setpgid(pid, pid)  # who asked may end the whole group
    for file in files:
        os.close(file)
    with suppress(ConnectionError):
        line.sendall(f"{pid}\n".encode())
    return pid


def _asked(line: socket.socket) -> tuple[Mapping[str, Any], list[int]] | None:
    """The words and the files of who asks; None if that was killed before it had asked."""
    files, text = array.array("i"), ""
    with suppress(ConnectionError):
        _, more, _, _ = line.recvmsg(1, socket.CMSG_SPACE(3 * files.itemsize))
        for level, kind, data in more:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                files.frombytes(data)
        text = line.makefile().readline()
    if text.endswith("\n"):
        return json.loads(text), list(files)
    for file in files:
        os.close(file)
    return None


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
