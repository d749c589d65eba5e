"""Run a launch on this machine: report what is missing, and run its script, which starts torchrun."""

from __future__ import annotations

import fcntl
import os
import shlex
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE
from tempfile import TemporaryDirectory

from attrs import evolve

from moedsl.diagnose import scan
from moedsl.launch import follow
from moedsl.launch.derive import Launch
from moedsl.launch.script import RANK_LOG, RANKS, Payload, script
from moedsl.rules.check.cluster_facts import Cluster
from moedsl.support import children, resources
from moedsl.support.diagnostics import Diagnostic, error, warning
from moedsl.support.text import counted

PACKAGES = ("torch", "megatron.bridge")
"""The packages that a recipe imports."""
TRAINING = ("nvidia_resiliency_ext", "transformer_engine")
"""The packages that training imports in addition, on GPUs (bridge training/pretrain.py:19)."""
COPIED_S = 5.0
"""Most seconds to wait for the ranks' last lines; a process that a rank started may keep its output open."""


def refusals(launches: Sequence[Launch], converts: str = "", rehearses: bool = True) -> list[Diagnostic]:
    """Report runs that cannot start here: too few GPUs, or packages that are not installed.

    If the jobs convert weights instead of training, `converts` names the conversion; `rehearses` is whether CPUs can
    run a small version.
    """
    help = "submit it with `--cluster NAME`, or show it with `--dryrun`"
    if rehearses and not converts:
        help += "; `moedsl rehearse` runs a small version on CPUs"

    def lacking(packages: Sequence[str], why: str) -> list[Diagnostic]:
        missing: list[str] = []
        for package in packages:
            try:
                missing += [] if find_spec(package) else [package]
            except ModuleNotFoundError:  # its parent package is missing
                missing.append(package)
        return [error("launch.no_packages", why=why, packages=", ".join(missing), help=help)] if missing else []

    if found := lacking(PACKAGES, f"{converts} needs" if converts else "a recipe imports"):
        return found
    have, wanted = gpus(), max(launch.world for launch in launches)
    if have < wanted:
        said = {"needs": f"{converts} needs" if converts else "the plan is for", "have": have or "none"}
        values = {"wanted": wanted, "have": have}
        return [error("launch.no_gpus", wanted=counted(wanted, "GPU"), help=help, values=values, **said)]
    return lacking(TRAINING, "Bridge's training imports")


def gpus() -> int:
    """Count the GPUs that PyTorch sees, in a separate process, because a CUDA context uses memory."""
    asked = "import torch; print(torch.cuda.device_count())"
    command = [sys.executable, "-c", asked]
    done = children.run(command, env=resources.child_environment(), stdout=PIPE, stderr=PIPE)
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip().isdigit() else 0


def missing_secrets(cluster: Cluster, dryrun: bool = False) -> list[Diagnostic]:
    """Report secrets that this shell lacks, if the job inherits its environment; a dry run only warns.

    Over ssh, the job inherits the login node's environment instead; on Kubernetes, the keys of a Secret.
    """
    inherits = cluster.executor == "local" or (cluster.executor == "slurm" and cluster.tunnel == "local")
    missing = [n for n in cluster.secrets if inherits and not os.environ.get(n)]
    if not missing:
        return []
    said = {"cluster": cluster.name, "missing": ", ".join(missing), "first": missing[0]}
    return [warning("launch.unset_secret", **said) if dryrun else error("launch.no_secret", **said)]


def interpreted(cluster: Cluster) -> Cluster:
    """Return the cluster with this interpreter, if jobs run on this machine: `python3` in PATH may be another one."""
    return evolve(cluster, python=sys.executable) if cluster.executor == "local" else cluster


def text(launch: Launch, cluster: Cluster, payload: Payload) -> str:
    """Return the script for this machine, which uses this interpreter."""
    return "#!/usr/bin/env bash\n" + script(launch, interpreted(cluster), payload)


def train(launch: Launch, cluster: Cluster, payload: Payload) -> int:
    """Run the launch's script and return its exit code. Ctrl-C reaches torchrun, which ends its ranks."""
    started, logs = datetime.now(UTC), rank_logs(launch)
    with TemporaryDirectory(prefix="moedsl-run-") as folder:
        file = Path(folder) / f"{launch.name}.sh"
        file.write_text(text(launch, cluster, payload), encoding="ascii")
        environment = {**os.environ, "TMPDIR": folder, "MOEDSL_RANK_LOGS": str(logs)}
        code = children.run(["bash", str(file)], env=environment).returncode
        copied(Path(folder))
    if code:
        explain(logs, started)
    return code


def copied(folder: Path) -> None:
    """Wait until the ranks' last lines are in their logs: a killed rank does not wait for its copier (rank_log.py)."""
    until = time.monotonic() + COPIED_S
    for program in folder.glob(f"*/{RANK_LOG}"):
        with program.open() as copies:
            while time.monotonic() < until:
                try:
                    fcntl.flock(copies, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    time.sleep(0.02)


def rank_logs(launch: Launch) -> Path:
    """Return the folder of the ranks' logs, next to the recipe's checkpoints."""
    return Path("nemo_experiments").absolute() / launch.name / RANKS


def explain(logs: Path, started: datetime) -> None:
    """Print on stderr which rank failed first, why, and where its log is."""
    found = (f for log in logs.glob("rank-*.log*") for f in scan.failures(log.read_bytes()))
    first = scan.first_to_fail(f for f in found if datetime.fromisoformat(f.time) >= started)
    if first is None:
        return
    log = logs / f"rank-{first.rank}.log"
    for line in ["", *follow.cause_lines(first), f"its log: {log}", f"moedsl diagnose {shlex.quote(str(log))}"]:
        print(line, file=sys.stderr)
