"""A rank is bound to the NUMA node of its own GPU and has a rotated log of its own, and neither ends a rank.

Real bash and real processes on this CPU, with a stand-in for the machine; the first of several ranks that fail is named.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import pytest
from attrs import evolve, field, frozen

from moedsl.launch import local
from moedsl.launch.in_job.rank_log import PIECE
from moedsl.launch.script import RANK, RANK_LOG, Payload, script
from moedsl.rules.check.cluster_facts import Cluster
from tests.helpers import bridge_process
from tests.launch.launches import STEP, Capture, Patch, launch, plan, slurm

NUMACTL = """#!/bin/bash
# numactl's part: refuses a node that the machine does not have
node="${1#--cpunodebind=}"
if [[ " $NODES " != *" $node "* ]]; then
  echo "libnuma: Warning: node argument $node is out of range" >&2
  exit 1
fi
bound=()
while [[ "$1" == --* ]]; do bound+=("$1"); shift; done
export BOUND="${bound[*]}"; exec "$@"
"""
PROBE = """import json, os
os.write(1, json.dumps([int(os.environ["LOCAL_RANK"]), os.environ.get("BOUND")]).encode() + b"\\n")
"""
ADDRESSES = [f"0000:{number:X}B:00.0" for number in range(8)]
"""As CUDA writes them, in capitals; the kernel's folders have small letters."""


@frozen
class Machine:
    """A node of eight GPUs: the NUMA node of each, those that numactl accepts, and the programs that it has."""

    folder: Path
    driver: Path | None
    of_gpus: list[int]
    nodes: list[int]
    programs: dict[str, str] = field(factory=lambda: {"numactl": NUMACTL})
    hardware: str = "h100"
    cpulists: tuple[str, ...] = ()
    """The CPUs of each NUMA node, as the kernel writes them."""

    def make(self) -> None:
        (self.folder / "sys/devices/system/node").mkdir(parents=True)
        most = max(0, *self.of_gpus)
        (self.folder / "sys/devices/system/node/online").write_text(f"0-{most}\n" if most else "0\n")
        for address, node in zip(ADDRESSES, self.of_gpus, strict=True):
            device = self.folder / "sys/bus/pci/devices" / address.lower()
            device.mkdir(parents=True)
            (device / "numa_node").write_text(f"{node}\n")
        for node, cpus in enumerate(self.cpulists):
            (self.folder / f"sys/devices/system/node/node{node}").mkdir()
            (self.folder / f"sys/devices/system/node/node{node}/cpulist").write_text(f"{cpus}\n")
        (self.folder / "bin").mkdir()
        (self.folder / "tmp").mkdir()
        for program in ("bash", "mktemp", "mkdir", "cat", "rm", "true", "uname"):
            (self.folder / "bin" / program).symlink_to(shutil.which(program) or program)
        for name, body in self.programs.items():
            (self.folder / "bin" / name).write_text(body)
            (self.folder / "bin" / name).chmod(0o755)

    def run(self, facts: str, warm: Path | None = None, **step: str) -> tuple[list[tuple[int, str | None]], str]:
        """What each rank of the script says, and what stands on stderr; torchrun runs in a warm Python."""
        on = evolve(slurm(self.hardware, facts), python=sys.executable)
        text = script(launch(plan(self.hardware, 8, {"ep": 8}), on), on, Payload({"p.py": PROBE}, "p.py"))
        own = text.replace('SYS = "/sys"', f'SYS = "{self.folder}/sys"')
        own = own.replace(f"{sys.executable} -P", f"{warm or sys.executable} -P")
        of_job = {"PATH": f"{self.folder}/bin", "TMPDIR": f"{self.folder}/tmp", "NODES": " ".join(map(str, self.nodes))}
        cuda = {"LD_LIBRARY_PATH": str(self.driver), "STANDIN_PCI": ";".join(ADDRESSES)} if self.driver else {}
        environment = {**STEP, **of_job, **cuda, "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1", **step}
        done = subprocess.run(["bash", "-c", own], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said = [json.loads(line) for line in done.stdout.splitlines()]
        return sorted((rank, bound) for rank, bound in said), done.stderr

    def ranks(self, facts: str = "numa on", of: Sequence[int] = range(8)) -> tuple[list[str | None], str]:
        """How ranks of eight are bound, each as srun starts it."""
        self.make()
        each = [self.run(facts, SLURM_LOCALID=str(rank), SLURM_PROCID=str(rank)) for rank in of]
        assert [rank for said, _ in each for rank, _ in said] == [*of]
        return [bound for said, _ in each for _, bound in said], "".join(err for _, err in each)


def to(*nodes: int) -> list[str]:
    return [f"--cpunodebind={node} --membind={node}" for node in nodes]


def test_a_rank_is_next_to_its_gpu(tmp_path: Path, driver: Path) -> None:
    """The kernel says where a GPU is; no half of the ranks is on one side."""
    bound, said = Machine(tmp_path, driver, [1, 1, 0, 0, 1, 1, 0, 0], [0, 1]).ranks()
    assert bound == to(1, 1, 0, 0, 1, 1, 0, 0)
    assert said == ""


def test_torchrun_binds_the_same_way(tmp_path: Path, driver: Path) -> None:
    machine = Machine(tmp_path, driver, [3, 3, 1, 1, 2, 2, 0, 0], [0, 1, 2, 3])
    machine.make()
    said, _ = machine.run("launcher torchrun", bridge_process.python(tmp_path, "torch"), OMP_NUM_THREADS="1")
    assert said == [*enumerate(to(3, 3, 1, 1, 2, 2, 0, 0))]


def test_a_rank_on_b300_has_two_cores_of_its_own(tmp_path: Path, driver: Path) -> None:
    """NVIDIA's launcher gives local rank N the cores 16N and 16N + 1 (scripts/performance/utils/executors.py:184)."""
    cpus = ("0-63,128-191", "64-127,192-255")
    bound, said = Machine(tmp_path, driver, [0] * 4 + [1] * 4, [0, 1], hardware="b300", cpulists=cpus).ranks()
    pairs = ("0,1", "16,17", "32,33", "48,49", "64,65", "80,81", "96,97", "112,113")
    assert bound == [f"{b} --physcpubind={p}" for b, p in zip(to(*[0] * 4, *[1] * 4), pairs, strict=True)]
    assert said == ""


def test_a_rank_is_not_pinned_to_cores_away_from_its_gpu(tmp_path: Path, driver: Path) -> None:
    cpus = ("0-31", "32-63")
    machine = Machine(tmp_path, driver, [0] * 4 + [1] * 4, [0, 1], hardware="b300", cpulists=cpus)
    bound, said = machine.ranks(of=(0, 1, 2, 7))
    assert [b and "--physcpubind" in b for b in bound] == [True, True, False, False]
    assert "local rank 2 is not pinned to cores: NUMA node 0 of its GPU does not have core 33" in said


def test_one_numa_node_needs_no_binding(tmp_path: Path, driver: Path) -> None:
    assert Machine(tmp_path, driver, [0] * 8, [0]).ranks(of=(0, 7)) == ([None] * 2, "")


@pytest.mark.parametrize(
    ("of_gpus", "nodes", "programs", "has_driver", "why"),
    [
        ([0, 0, 0, 0, -1, -1, 1, 1], [0, 1], {"numactl": NUMACTL}, True, "the kernel names no NUMA node for GPU 4"),
        ([0] * 4 + [1] * 4, [0], {"numactl": NUMACTL}, True, "numactl --cpunodebind=1 --membind=1 is refused"),
        ([0] * 4 + [1] * 4, [0, 1], {}, True, "numactl is not installed here"),
        ([0] * 4 + [1] * 4, [0, 1], {"numactl": NUMACTL}, False, "CUDA's driver cannot be loaded"),
    ],
    ids=["no node", "refused", "no numactl", "no driver"],
)
def test_a_rank_that_cannot_be_bound_runs_and_says_why(
    of_gpus: list[int], nodes: list[int], programs: dict[str, str], has_driver: bool, why: str,
    tmp_path: Path, driver: Path,
) -> None:  # fmt: skip
    bound, said = Machine(tmp_path, driver if has_driver else None, of_gpus, nodes, programs).ranks(of=(0, 4))
    assert f"is not bound to a NUMA node: {why}" in said
    assert bound == [to(0)[0] if programs and has_driver else None, None]


def test_the_word_off(tmp_path: Path, driver: Path) -> None:
    assert Machine(tmp_path, driver, [0] * 4 + [1] * 4, [0, 1]).ranks("numa off", of=(0, 4)) == ([None] * 2, "")


SAYS = """import os, sys, time
rank = int(os.environ["RANK"])
log = f"{os.environ['MOEDSL_RANK_LOGS']}/rank-{rank}.log"
before = os.path.getsize(log)
print("rank", rank, "starts", flush=True)
print("a warning of rank", rank, file=sys.stderr, flush=True)
while "warning" not in open(log).read()[before:]:  # its output has this line, too
    time.sleep(0.05)
mark = f"{os.getppid()}.{{}}"  # of this run
open(mark.format(rank), "w").close()
if rank != 2:
    time.sleep(600)
while not all(os.path.exists(mark.format(other)) for other in range(4)):
    time.sleep(0.05)
"""
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."


def trained(folder: Path, monkeypatch: Patch, end: str) -> tuple[int, Path]:
    """The exit code of a run of four ranks on this machine, whose rank 2 ends as `end` says; the folder of their logs."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    on, warm = Cluster("here", "local"), str(bridge_process.python(folder))
    made = launch(plan("h100", 4, {"ep": 4}), on)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", warm)  # of torchrun; the ranks start Python
        code = local.train(made, on, Payload({"p.py": SAYS + end}, "p.py"))
    return code, local.rank_logs(made)


def test_the_first_rank_that_fails_is_named_with_its_cause(tmp_path: Path, monkeypatch: Patch, capfd: Capture) -> None:
    """The other three are ended by torchrun, a moment later. A rank that is killed leaves no cause, and the next run of
    the folder does not find that of the run before."""
    code, logs = trained(tmp_path, monkeypatch, f"sys.exit('{OOM}')")
    said = capfd.readouterr()
    assert code == 1
    assert re.search(rf"\nfirst to fail: rank 2 on \S+ at \S+: {re.escape(OOM)}\n  cause: ", said.err)
    assert "(std.memory_failures.out_of_memory)" in said.err and "  fix: " in said.err
    assert said.err.endswith(f"its log: {logs}/rank-2.log\nmoedsl diagnose {logs}/rank-2.log\n")
    assert "rank 3 starts" in said.out and "a warning of rank 3" in said.err
    assert [log.name for log in sorted(logs.iterdir())] == [f"rank-{n}.log" for n in range(4)]
    assert (logs / "rank-3.log").read_text().startswith("rank 3 starts\na warning of rank 3\n")
    code, logs = trained(tmp_path, monkeypatch, "os.kill(os.getpid(), 9)")
    said = capfd.readouterr()
    assert code == 1
    assert re.search(r"\nfirst to fail: rank 2 on \S+ at \S+: killed, or ended without", said.err)
    assert OOM not in said.err
    assert "warning of rank 2" in (logs / "rank-2.log").read_text()


def test_torchrun_is_told_the_error(tmp_path: Path, monkeypatch: Patch, capfd: Capture) -> None:
    trained(tmp_path, monkeypatch, "import torch\nraise ValueError('no data')")
    said = capfd.readouterr().err
    assert "ValueError: no data" in said[said.index("Root Cause (first observed failure)") :].partition("=====")[0]


# ---------------------------------------------------------------- one rank


def rank(
    folder: Path, program: str, logs: Path | str, out: int = subprocess.PIPE, **changes: str
) -> subprocess.Popen[bytes]:
    """One rank as a job starts it, with other values of constants; it has no log without a folder for them."""
    for name, source in ((RANK, "rank.py"), (RANK_LOG, "rank_log.py")):
        text = files("moedsl.launch.in_job").joinpath(source).read_text()
        for constant, value in changes.items() if source == "rank_log.py" else ():
            text, found = re.subn(f"^{constant} = .*$", f"{constant} = {value}", text, flags=re.MULTILINE)
            assert found == 1
        (folder / name).write_text(text)
    (folder / "p.py").write_text(program)
    environment = {**os.environ, "RANK": "5", "MOEDSL_RANK_LOGS": str(logs)}
    command = [sys.executable, "-u", str(folder / RANK), str(folder / "p.py")]
    return subprocess.Popen(command, env=environment, stdout=out, stderr=out)


LINES = "".join(f"line {number} of two hundred thousand\n" for number in range(200_000)).encode()
PRINTS = "for number in range(200_000):\n    print('line', number, 'of two hundred thousand')\n"


def test_a_log_is_rotated_and_the_output_is_whole(tmp_path: Path) -> None:
    out, _ = rank(tmp_path, PRINTS, tmp_path / "ranks", LARGEST="1 << 20").communicate()
    assert out == LINES
    older, newer = ((tmp_path / "ranks" / f"rank-5.log{end}").read_bytes() for end in (".1", ""))
    assert LINES.endswith(older + newer)
    assert 0 < len(newer) <= 1 << 20 and (1 << 19) < len(older) <= 1 << 20


def test_a_line_is_one_write_and_none_is_lost(tmp_path: Path) -> None:
    """Ranks share the file of their output: a line in several writes mixes with those of the others."""
    program = """import os, sys
print("rank", 5, "starts step", 1)
print("a warning of rank", 5, file=sys.stderr)
print("rank", 5, "ends")
os.kill(os.getpid(), 9)
"""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)  # what one call writes is read as one piece
    with ours, theirs:
        process = rank(tmp_path, program, "", out=theirs.fileno())
        assert process.wait() == -signal.SIGKILL
        ours.setblocking(False)
        said = [ours.recv(1000) for _ in range(3)]
    assert said == [b"rank 5 starts step 1\n", b"a warning of rank 5\n", b"rank 5 ends\n"]


def test_a_handler_prints_while_the_program_prints(tmp_path: Path) -> None:
    """As that of Bridge does before it saves: a buffered stream refuses a write within a write."""
    program = """import signal, sys
signal.signal(signal.SIGALRM, lambda *_: print("heard"))
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
for number in range(100_000):
    print("line", number)
signal.setitimer(signal.ITIMER_REAL, 0)
"""
    process = rank(tmp_path, program, "")
    out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert out.count(b"heard") > 10


@pytest.mark.parametrize("end", ["raise SystemExit(3)", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"])
def test_the_last_line_is_not_lost(tmp_path: Path, end: str) -> None:
    out, _ = rank(tmp_path, f"print('unfinished', end='', flush=True)\n{end}", tmp_path / "ranks").communicate()
    assert out == b"unfinished"
    said = (tmp_path / "ranks" / "rank-5.log").read_text()
    assert said.count("unfinished") == said.count("moedsl: rank 5 on ") == 1


def test_many_lines_at_once_are_copied_whole(tmp_path: Path) -> None:
    """Ranks share the file of their output, and one that prints faster than its copier is not cut within a line."""
    program = "import os\nos.write(1, b'a line of a table\\n' * 1000 + b'x' * 5000 + b'\\n')\n"
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    pieces: list[bytes] = []
    with ours, theirs:
        process = rank(tmp_path, program, tmp_path / "ranks", out=theirs.fileno())
        ours.settimeout(60)
        while len(b"".join(pieces)) < 18 * 1000 + 5001:
            pieces.append(ours.recv(1 << 16))
        assert process.wait() == 0
    assert b"".join(pieces) == b"a line of a table\n" * 1000 + b"x" * 5000 + b"\n"
    assert max(map(len, pieces)) <= PIECE
    assert [piece[:1] for piece in pieces if not piece.endswith(b"\n")] == [b"x"], "a line that is longer than a piece"
    assert all(piece.startswith((b"a line", b"x")) for piece in pieces)


def test_the_log_of_a_rank_that_is_killed_is_waited_for(tmp_path: Path) -> None:
    """Nobody but its copier knows that it has ended, and that may be late on a busy machine."""
    (tmp_path / "files").mkdir()
    program = "import signal\nprint('ready', flush=True)\nsignal.pause()"
    process = rank(tmp_path / "files", program, tmp_path / "ranks")
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    (copier,) = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
    os.kill(copier, signal.SIGSTOP)
    process.kill()
    process.wait()
    later = threading.Timer(0.5, os.kill, (copier, signal.SIGCONT))
    later.start()
    local.copied(tmp_path)
    assert "killed, or ended without" in (tmp_path / "ranks" / "rank-5.log").read_text()
    process.communicate()


def test_a_log_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "rank-5.log").symlink_to("mine")
    rank(tmp_path, "print('runs')", tmp_path).communicate()
    assert (tmp_path / "mine").read_text() == "mine"
    assert (tmp_path / "rank-5.log").read_text() == "runs\n"


def test_a_folder_that_takes_no_log_costs_the_log_alone(tmp_path: Path) -> None:
    process = rank(tmp_path, "print('runs')", Path("/proc/nowhere"))
    out, err = process.communicate()
    assert (process.returncode, out) == (0, b"runs\n")
    assert b"this rank has no log of its own: " in err


def test_signals_are_the_programs(tmp_path: Path) -> None:
    """The copier hears them too, and goes on until the rank has ended."""
    program = """import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: (print("saves", flush=True), sys.exit(7)))
print("ready", flush=True)
signal.pause()
"""
    process = rank(tmp_path, program, tmp_path / "ranks")
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for pid in (*map(int, children), process.pid):
        os.kill(pid, signal.SIGTERM)
    out, _ = process.communicate()
    assert (process.returncode, out) == (7, b"saves\n")
