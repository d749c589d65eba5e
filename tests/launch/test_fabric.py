"""The environment of a job on each fabric: what NVIDIA's launchers set, what a user's own variables change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from attrs import evolve

from moedsl.launch.derive import derive
from moedsl.launch.script import Payload, script
from moedsl.rules.rule import Rule
from tests.launch.launches import STEP, cluster, ids, launch, library, plan, slurm
from tests.launch.test_rules import KNOWN

BLOCKS = ("std.fabric.", "std.verbs.", "std.efa.", "std.gib.", "std.tcpxo.")
SLURM = 'executor slurm; hardware {}; job_dir "/runs"'
PODS = "executor kubeflow; hardware {}; container image"


def of_fabric(hardware: str, facts: str) -> dict[str, str]:
    """The variables that the rules of fabrics give a job of 16 GPUs."""
    made = launch(plan(hardware, 16, {"ep": 8}), cluster(f"{facts.format(hardware)}"))
    return {s.name: s.text for s in made.environment if s.rule and s.rule.startswith(BLOCKS)}


@pytest.mark.parametrize(
    ("hardware", "facts", "expected"),
    [
        ("gb200", SLURM, {"NCCL_NET_GDR_LEVEL": "PHB", "NCCL_NET_GDR_C2C": "1"}),
        ("gb300", SLURM, {}),
        ("h100", f"{SLURM}; fabric infiniband", {}),
        ("h100", f"{PODS}; fabric efa", {
            "FI_PROVIDER": "efa", "FI_EFA_USE_HUGE_PAGE": "0",
            "NCCL_NET_PLUGIN": "/opt/amazon/ofi-nccl/lib/libnccl-net.so"}),
        ("gb200", PODS, {}),
        ("gb200", f"{PODS}; fabric gib", {
            "NCCL_NET": "gIB", "NCCL_SOCKET_IFNAME": "eth0,eth1", "NCCL_NET_GDR_LEVEL": "PIX", "NCCL_NET_GDR_C2C": "1"}),
    ],
)  # fmt: skip
def test_a_job_gets_what_nvidias_launcher_sets(hardware: str, facts: str, expected: dict[str, str]) -> None:
    """Bare Slurm, EKS and GKE; Kubernetes jobs get no variable of Slurm's (executors.py, csp_plugins.py)."""
    assert of_fabric(hardware, facts) == expected


@pytest.mark.parametrize("fabric", ["infiniband", "roce", "efa", "gib", "tcpx", "tcpxo"])
@pytest.mark.parametrize("dispatcher", ["alltoall", "deepep", "hybridep"])
def test_a_flex_dispatcher_between_nodes_needs_rdma(fabric: str, dispatcher: str) -> None:
    """NCCL's plugins reach what NCCL sends; within a node nothing does."""
    known = {("tcpx", "deepep"), ("tcpx", "hybridep"), ("tcpxo", "deepep"), ("tcpxo", "hybridep"), ("efa", "hybridep")}
    made = {ep: plan("h100", 16, {"ep": ep}, dispatcher=dispatcher) for ep in (8, 16)}
    on = slurm("h100", f"container image; fabric {fabric}")
    assert ids(made[8], on) == []
    found = derive(made[16], on, library())[1]
    assert [d.severity for d in found] == (["warning"] if (fabric, dispatcher) in known else [])
    assert all("pin dispatcher=alltoall" in help for d in found for help in d.help)


def test_a_stated_variable_wins_and_says_what_it_replaces() -> None:
    made = launch(plan("gb200", 16, {"ep": 8}), slurm("gb200", "env { NCCL_NET_GDR_LEVEL SYS }"))
    (said,) = (s for s in made.environment if s.name == "NCCL_NET_GDR_LEVEL")
    assert (said.text, said.origin) == ("SYS", "cluster")
    assert said.because == "stated by cluster lab; std.fabric.NCCL_NET_GDR_LEVEL gives PHB"


def test_a_rule_of_a_fabric_names_its_source() -> None:
    rules: list[Rule] = [r for n, r in KNOWN.items() if n.startswith((*BLOCKS, "std.collisions."))]
    assert len(rules) > 20 and all(r.because and r.cites for r in rules)


PROBE = 'import os\nprint(os.environ["OF_SITE"], os.environ["NCCL_NET"], flush=True)\n'


def run(env_script: Path) -> subprocess.CompletedProcess[str]:
    on = evolve(slurm("h200", f'fabric gib; numa off; env_script "{env_script}"'), python=sys.executable)
    text = script(launch(plan("h200", 16, {"ep": 8}), on), on, Payload({"p.py": PROBE}, "p.py"))
    base = {**STEP, "PATH": "/usr/bin:/bin", "TMPDIR": str(env_script.parent)}
    return subprocess.run(["bash", "-c", text], env=base, capture_output=True, text=True, check=False)


def test_a_script_of_the_image_is_read_before_the_jobs_variables(tmp_path: Path) -> None:
    """Google's `set_nccl_env.sh` may name unset variables and may end with a false test; neither ends the job."""
    (tmp_path / "env.sh").write_text('export OF_SITE="yes$NOT_SET" NCCL_NET=Socket\n[ -n "$NOT_SET" ]\n')
    done = run(tmp_path / "env.sh")
    assert (done.returncode, done.stdout) == (0, "yes gIB\n"), done.stderr


def test_a_job_without_its_script_ends_at_once(tmp_path: Path) -> None:
    done = run(tmp_path / "none.sh")
    assert done.returncode == 79 and "none.sh cannot be read" in done.stderr and not done.stdout
