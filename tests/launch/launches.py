"""Launches for tests: from plans written by hand and clusters written in the language, or from the text of a run file.

One run on Kubernetes has every fact, and values that readers on the way could take for their own.
"""

import os
from functools import cache
from typing import Any

import pytest

from moedsl.compiler import compile_source, load_stdlib
from moedsl.lang import ast
from moedsl.lang.parser import parse
from moedsl.launch.derive import Launch, derive
from moedsl.planner.plan import Plan
from moedsl.rules.check import cluster_reader
from moedsl.rules.check.cluster_facts import Cluster
from moedsl.rules.library import Library
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.source import Source
from tests.helpers import plans
from tests.helpers.tables import table_of

SLURM = 'executor slurm; hardware {hardware}; account acct; partition batch; job_dir "/shared/runs"'
STEP = {
    "SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NTASKS": "16", "SLURM_NODEID": "0", "SLURM_JOB_ID": "4711",
    "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.1",
}  # fmt: skip
"""What srun sets for one task of a job of 16."""


Capture, Patch = pytest.CaptureFixture[str], pytest.MonkeyPatch


def unable(reason: str) -> None:
    """Skips with the reason, and fails where everything must run."""
    if os.environ.get("CI") or os.environ.get("MOEDSL_REQUIRE_ALL"):
        pytest.fail(reason)
    pytest.skip(reason)


@cache
def library() -> Library:
    """The stdlib; tests do not add to it."""
    return load_stdlib()


def read(facts: str, name: str = "lab") -> tuple[Cluster | None, list[Diagnostic]]:
    """The cluster of that name with those facts, and what is wrong with them."""
    module, wrong = parse(Source("run.moe", f"cluster {name} {{ {facts} }}"))
    assert module is not None and not wrong, wrong
    (decl,) = module.items
    assert isinstance(decl, ast.ClusterDecl)
    return cluster_reader.read(decl, library())


def cluster(facts: str) -> Cluster:
    made, found = read(facts)
    assert made is not None and not found, found
    return made


def slurm(hardware: str, more: str = "") -> Cluster:
    """A Slurm cluster of that hardware with further facts."""
    return cluster(f"{SLURM.format(hardware=hardware)}; {more}" if more else SLURM.format(hardware=hardware))


def plan(hardware: str, gpus: int, layout: dict[str, Any], **policy: Any) -> Plan:
    """A plan of Qwen3-235B with that layout."""
    return plans.plan("qwen3_235b_a22b", hardware, gpus, layout, policy)


def launch(made: Plan, on: Cluster) -> Launch:
    derived, found = derive(made, on, library())
    assert derived is not None, found
    return derived


def ids(made: Plan, on: Cluster) -> list[tuple[str, str]]:
    """Severity and id of what deriving says."""
    return [(d.severity, d.id) for d in derive(made, on, library())[1]]


@cache
def launched(text: str, name: str) -> tuple[Plan, Launch, Cluster]:
    """The plan of a file's first run, and its launch on the cluster of that name, which the file declares."""
    result = compile_source(Source("run.moe", text))
    assert not result.failed, result.diagnostics
    cluster, found = cluster_reader.read(result.library.clusters[name], result.library)
    assert cluster is not None, found
    launch, found = derive(result.plans[0], cluster, result.library)
    assert launch is not None, found
    return result.plans[0], launch, cluster


KUBE_RUN = table_of("launch", "kubeflow run")
HARD = table_of("launch", "hes: hard")


@cache
def kube_launched() -> tuple[Launch, Cluster]:
    """The run above on its cluster."""
    _, launch, cluster = launched(KUBE_RUN, "k8s")
    return launch, cluster
