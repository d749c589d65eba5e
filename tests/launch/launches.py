"""Launches for tests, from plans written by hand (tests/helpers/plans.py) and clusters written in the language."""

from __future__ import annotations

from functools import cache
from typing import Any

from moedsl.compiler import load_stdlib
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

SLURM = 'executor slurm; hardware {hardware}; account acct; partition batch; job_dir "/shared/runs"'
STEP = {
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NTASKS": "16",
    "SLURM_NODEID": "0",
    "SLURM_JOB_ID": "4711",
    "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.1",
}
"""What srun sets for one task of a job of 16."""


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
