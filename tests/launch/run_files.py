"""From the text of a run file to the launch of its run; a script of its own may import this, tests/ need not be in reach."""

from __future__ import annotations

from moedsl.compiler import compile_source
from moedsl.launch.derive import Launch, derive
from moedsl.planner.plan import Plan
from moedsl.rules.check import cluster_reader
from moedsl.rules.check.cluster_facts import Cluster
from moedsl.support.source import Source


def launched(text: str, name: str) -> tuple[Plan, Launch, Cluster]:
    """The plan of a file's first run, and its launch on the cluster of that name, which the file declares."""
    result = compile_source(Source("run.moe", text))
    assert not result.failed, result.diagnostics
    cluster, found = cluster_reader.read(result.library.clusters[name], result.library)
    assert cluster is not None, found
    launch, found = derive(result.plans[0], cluster, result.library)
    assert launch is not None, found
    return result.plans[0], launch, cluster
