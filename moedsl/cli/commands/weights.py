"""`moedsl weights import|export`: convert weights from and to Hugging Face, here or on a cluster."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence

from moedsl.cli import console
from moedsl.cli.commands import run as of_runs
from moedsl.cli.commands.run import Job
from moedsl.launch import preflight, script
from moedsl.rules.check import cluster_rules
from moedsl.rules.check.cluster_facts import Cluster
from moedsl.support.diagnostics import Diagnostic, error


def run(a: Namespace) -> int:
    if a.action is None:
        print("give `moedsl weights import FILE` or `moedsl weights export FILE --to FOLDER`", file=sys.stderr)
        return 1
    result, code = console.compiled(a, "plan")
    if result is None or code:
        return code
    cluster, found = cluster_rules.choose(result.library, of_runs.asked(a.cluster))
    jobs: list[Job] = []
    if cluster is not None:
        planned, more = of_runs.jobs(result, cluster, a.run)
        jobs, wrong = (_imports if a.action == "import" else _exports)(a, cluster, planned)
        found = [*found, *more, *wrong]
        if not any(d.is_error for d in found):
            found = [*found, *of_runs.refusals(cluster, jobs, a.dryrun, f"the {a.action} of weights")]
    console.say(found, result.sources)
    if cluster is None or any(d.is_error for d in found):
        return 1
    a.sequential = False
    return of_runs.start(a, cluster, jobs, result.source.name)


def _imports(a: Namespace, cluster: Cluster, planned: Sequence[Job]) -> tuple[list[Job], list[Diagnostic]]:
    jobs = of_runs.imports(planned, cluster)
    if not jobs:
        text, help = "no run names weights of Hugging Face", 'write `task sft` and `weights hf "ORG/NAME"`'
        return [], [error("launch.weights", text, help=help)]
    return jobs, [] if a.dryrun else [
        d for j in jobs for d in preflight.hub_refusals(str(j.plan.hub_weights), None, cluster)
    ]


def _exports(a: Namespace, _: Cluster, planned: Sequence[Job]) -> tuple[list[Job], list[Diagnostic]]:
    """One run is exported: the folder is for one model."""
    if len(planned) != 1:
        names = ", ".join(j.plan.name for j in planned)
        text, help = "the file has several runs, and one is exported", f"give `--run NAME`: {names}"
        return [], [error("launch.no_run", text, help=help)] if planned else []
    (job,) = planned
    checkpoint = a.checkpoint or job.plan.set.get("checkpoint.save")
    if not checkpoint:
        text, help = "the run names no folder of its checkpoints", "give `--from FOLDER`"
        return [], [error("launch.weights", text, help=help)]
    return [Job(job.plan, *script.export_job(job.plan, job.launch, str(checkpoint), a.to))], []
