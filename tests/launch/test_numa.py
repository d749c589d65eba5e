"""A rank is bound to the NUMA node of its own GPU, and no binding ends a rank: real bash, a stand-in for the machine."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from attrs import evolve, field, frozen

from moedsl.launch.script import Payload, script
from tests.helpers import bridge_process
from tests.launch.launches import STEP, launch, plan, slurm

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
