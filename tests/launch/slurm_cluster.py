"""A real Slurm on loopback for the tests: sixteen nodes of four pretend GPUs, two of eight, accounting, own ports.

`started()` yields a `Slurm`. All daemons live in a PID namespace whose first process ends with this one, so nothing
is left behind however the tests end, and two runs of the tests on one machine do not meet.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from string import Template

from attrs import frozen

from tests.helpers import ports

FILES = Path(__file__).parent / "slurm"
PROGRAMS = ("munged", "slurmctld", "slurmd", "slurmdbd", "mariadbd", "mariadb-install-db", "sbatch", "sacct", "gcc")
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
_FIRST_PORT, _BLOCK, _BLOCKS = 17000, 40, 70
_NUMBERS = 250
"""Numbers of jobs that one cluster gives out: a job's number decides at which port its ranks meet."""


@frozen
class Group:
    """Like nodes, which are a partition."""

    partition: str
    first: int
    last: int
    gpus: int
    """GPUs a node, of the type that the partition is named for."""

    @property
    def names(self) -> list[str]:
        return [f"n{number}" for number in range(self.first, self.last + 1)]

    @property
    def range(self) -> str:
        return f"n[{self.first}-{self.last}]"


GROUPS = (Group("gb200", 1, 16, 4), Group("h100", 17, 18, 8))


@frozen
class Slurm:
    """A running Slurm; the account is `acct`, the partitions are `gb200` (default) and `h100`."""

    root: Path
    runs: subprocess.Popen[str]
    """tests/launch/slurm/run.sh"""

    def tell(self, command: str, node: str) -> None:
        """Make a node `lose` all its processes, or its `daemon` alone, or start it again (`node`)."""
        assert self.runs.stdin is not None and self.runs.stdout is not None
        self.runs.stdin.write(f"{command} {node}\n")
        self.runs.stdin.flush()
        assert self.runs.stdout.readline().strip() == "done"

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to be a login node of this cluster."""
        return {"SLURM_CONF": str(self.root / "etc" / "slurm.conf")}

    def ask(self, *command: str) -> str:
        """What a command of Slurm prints; raises CalledProcessError."""
        environment = {**os.environ, **self.environment}
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def why_not() -> str:
    """Why no Slurm can be started here, or nothing."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if missing:
        return f"no {', '.join(missing)}; tools/system installs them"
    if os.geteuid():
        return "Slurm's node daemons need root"
    if not Path("/usr/include/slurm/spank.h").exists():
        return "no libslurm-dev; tools/system installs it"
    namespaces = subprocess.run([*_NAMESPACE, "true"], capture_output=True, text=True, check=False)
    return f"no namespaces here: {namespaces.stderr.strip()}" if namespaces.returncode else ""


_NAMESPACE = ("setpriv", "--pdeathsig=KILL", "unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc")


@contextmanager
def started() -> Iterator[Slurm]:
    """A Slurm, ready; RuntimeError with the daemons' logs where it does not start."""
    with ExitStack() as stack:
        port = stack.enter_context(_port_block())
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="moedsl-slurm-", dir="/tmp")))
        _write(root, port)
        yield Slurm(root, stack.enter_context(_daemons(root, port)))


@contextmanager
def _port_block() -> Iterator[int]:
    """The first of `_BLOCK` ports that are free, and kept from other test runs by a lock."""
    locks = Path("/tmp/moedsl-slurm-ports")
    locks.mkdir(mode=0o1777, exist_ok=True)
    for first in range(_FIRST_PORT, _FIRST_PORT + _BLOCK * _BLOCKS, _BLOCK):
        with (locks / str(first)).open("w") as lock:
            if ports.is_locked(lock) and all(ports.is_free(first + offset) for offset in range(_BLOCK)):
                yield first
                return
    raise RuntimeError(f"no {_BLOCK} free ports in a row from {_FIRST_PORT} on")


def _write(root: Path, port: int) -> None:
    """Every folder and configuration file of the cluster."""
    root.chmod(0o755)
    for name in ("etc", "munge", "state", "spool", "log", "pid", "dev", "nodetmp"):
        (root / name).mkdir(mode=0o755)
    standin = root / "pyxis_standin.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", standin, FILES / "pyxis_standin.c"], check=True)
    values = {
        "root": root, "user": "root", "port": port, "dbd_port": port + 1, "sql_port": port + 2,
        "first_job": 1 + (port - _FIRST_PORT) // _BLOCK * _NUMBERS,
        "last_job": _NUMBERS + (port - _FIRST_PORT) // _BLOCK * _NUMBERS,
        "nodes": "\n".join(line for group in GROUPS for line in _nodes(group, port + 3)),
        "partitions": "\n".join(_partition(group) for group in GROUPS),
    }  # fmt: skip
    for name in ("slurm.conf", "slurmdbd.conf"):
        (root / "etc" / name).write_text(Template((FILES / name).read_text()).substitute(values))
    (root / "etc" / "slurmdbd.conf").chmod(0o600)
    (root / "etc" / "plugstack.conf").write_text(f"required {standin}\n")
    (root / "etc" / "gres.conf").write_text("".join(_devices(group, root / "dev") for group in GROUPS))
    (root / "etc" / "mpi.conf").write_text(f"PMIxCliTmpDirBase={root / 'nodetmp'}\n")
    hosts = [f"127.0.1.{number} n{number}" for group in GROUPS for number in range(group.first, group.last + 1)]
    (root / "etc" / "hosts").write_text("\n".join(["127.0.0.1 localhost", *hosts, ""]))


def _nodes(group: Group, port: int) -> list[str]:
    gres = f"Gres=gpu:{group.partition}:{group.gpus}"
    return [
        f"NodeName=n{number} NodeHostname=n{number} NodeAddr=127.0.1.{number} Port={port + number} {gres}"
        for number in range(group.first, group.last + 1)
    ]


def _partition(group: Group) -> str:
    default = "YES" if group is GROUPS[0] else "NO"
    return f"PartitionName={group.partition} Nodes={group.range} Default={default}"


def _devices(group: Group, folder: Path) -> str:
    """A GPU needs a device file: null devices."""
    for number in range(group.gpus):
        path = folder / f"{group.partition}{number}"
        os.mknod(path, 0o20666, os.makedev(1, 3))
    files = folder / f"{group.partition}[0-{group.gpus - 1}]"
    return f"NodeName={group.range} AutoDetect=off Name=gpu Type={group.partition} File={files}\n"


@contextmanager
def _daemons(root: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    nodes = [name for group in GROUPS for name in group.names]
    command = [*_NAMESPACE, "bash", str(FILES / "run.sh"), str(root), str(port + 2), *nodes]
    with (root / "log" / "run.log").open("w") as log:
        process = subprocess.Popen(
            command,
            env={**os.environ, "PATH": PATH},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdin is not None and process.stdout is not None
    try:
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"Slurm did not start\n{_logs(root)}")
        yield process
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def _logs(root: Path) -> str:
    tails = ("\n".join([f"--- {path.name}", *path.read_text().splitlines()[-40:]]) for path in root.glob("log/*.log"))
    return "\n".join(tails)
