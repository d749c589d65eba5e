"""`moedsl run`: train on this machine, or submit to a cluster; `--dryrun` prints what would be sent."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import Any

from attrs import evolve, frozen

from moedsl.cli import console
from moedsl.cli.console import compiled
from moedsl.compiler import Result
from moedsl.emit.recipe import recipe_text
from moedsl.facts.families import family
from moedsl.launch import dryrun, executors, local, preflight, script, store
from moedsl.launch.derive import Launch, derive, to_json
from moedsl.launch.script import Payload
from moedsl.planner.plan import Plan
from moedsl.rules.check import cluster_rules, suspicious
from moedsl.rules.check.cluster_facts import Cluster
from moedsl.support.diagnostics import Diagnostic, error, note, suggest


@frozen
class Job:
    """One plan before its start: its launch, and what its ranks run."""

    plan: Plan
    launch: Launch
    payload: Payload


Named = Callable[[str], None]


SUBMISSIONS = 4
"""The most submissions with `--exclude-bad`."""


def run(a: Namespace, named: Named | None = None) -> int:
    """Start the runs of a file; `named` gets the id of their experiment, which is printed without it."""
    result, code = compiled(a, "plan")
    if result is None or code:
        return code
    cluster, found = cluster_rules.choose(result.library, asked(a.cluster))
    if cluster is None or not a.exclude_bad:
        return _run(a, result, cluster, found, named)
    refused = _unexcluded(a, cluster)
    cluster = evolve(cluster, node_check=True)
    for _ in range(SUBMISSIONS):
        bad: list[str] = []
        code = _run(a, result, cluster, [*found, *refused], named, bad)
        if not bad:
            break
        cluster, found = preflight.without_nodes(cluster, bad), []
        console.tell(f"{', '.join(bad)}: excluded from now on")
    return code


def _unexcluded(a: Namespace, cluster: Cluster) -> list[Diagnostic]:
    """Refuse `--exclude-bad` where no job checks its nodes, or nobody waits for it."""
    if cluster.executor == "slurm" and not a.detach and not a.no_preflight:
        return []
    return [error("launch.exclude_bad")]


def _run(
    a: Namespace, result: Result, cluster: Cluster | None, found: Sequence[Diagnostic], named: Named | None,
    bad: list[str] | None = None,
) -> int:  # fmt: skip
    """Start the runs on a cluster; `bad` gets the nodes that a job named as bad."""
    made: list[Job] = []
    before: list[Job] = []
    if cluster is not None:
        made, more = jobs(result, cluster, a.run)
        made = made if a.no_preflight else [_headed(j, cluster) for j in made]
        found = [*found, *more]
    if cluster is not None and not any(d.is_error for d in found):
        found = [*found, *refusals(cluster, made, a.dryrun), *_unordered(cluster, made, a.sequential)]
    if cluster is not None and not any(d.is_error for d in found):
        before, more = _before(a, cluster, made)
        found = [*found, *more, *_preflight(a, result, cluster, made)]
    console.say(found, result.sources)
    if cluster is None or any(d.is_error for d in found):
        return 1
    return start(a, cluster, made, result.source.name, before, named, bad)


def _before(a: Namespace, cluster: Cluster, made: Sequence[Job]) -> tuple[list[Job], list[Diagnostic]]:
    """The jobs that import weights which are not there, and why the hub does not give them."""
    from moedsl.launch import preflight

    needed = imports(made, cluster)
    if needed and cluster.executor == "kubeflow":
        return [], [note("launch.weights_first", cluster=cluster.name)]
    if a.dryrun or a.no_preflight or not needed:
        return needed, []
    absent = preflight.absent([f for j in needed for f in script.imported_folders(j.plan)], cluster)
    needed = [j for j in needed if script.imported_folders(j.plan)[0] in absent]
    return needed, [d for j in needed for d in preflight.hub_refusals(str(j.plan.hub_weights), None, cluster)]


def imports(made: Sequence[Job], cluster: Cluster) -> list[Job]:
    """The job for each folder of weights that runs import."""
    of = {folder: j for j in made for folder in script.imported_folders(j.plan)}
    return [Job(j.plan, *script.import_job(j.plan, j.launch)) for j in of.values()]


def _headed(job: Job, cluster: Cluster) -> Job:
    """Make the job with the preflight check."""
    return evolve(job, payload=script.with_preflight(job.payload, job.plan, job.launch, local.interpreted(cluster)))


def _preflight(a: Namespace, result: Result, cluster: Cluster, jobs: Sequence[Job]) -> list[Diagnostic]:
    """Run the checks before a submission; a dry run asks neither Bridge nor the cluster."""
    from moedsl.launch import preflight

    if a.no_preflight:
        return [] if a.dryrun else [preflight.SKIPPED]
    if a.dryrun:
        return preflight.unmounted([j.plan for j in jobs], cluster)
    checked = [preflight.Checked(j.plan, j.launch) for j in jobs]
    return preflight.before(checked, cluster, result.source, result.library, console.tell)


def asked(cluster: str | None) -> str:
    """Choose the cluster: without `--cluster` this machine, without a name the default."""
    return "local" if cluster is None else cluster


def jobs(result: Result, cluster: Cluster, only: str | None) -> tuple[list[Job], list[Diagnostic]]:
    """Make the job of each run, or of the requested one."""
    names = [p.name for p in result.plans]
    if only is not None and only not in names:
        help = suggest(only, names) or (f"there are {', '.join(names)}",)
        return [], [error("launch.no_run:run", only=only, help=help)]
    jobs: list[Job] = []
    found: list[Diagnostic] = []
    for plan in (script.with_imported_weights(p, cluster) for p in result.plans if only in (None, p.name)):
        found += [d for d in script.weights_refusals(plan, cluster) if d not in found]
        launch, more = derive(plan, cluster, result.library)
        found += [d for d in more if d not in found]
        if launch is not None:
            jobs.append(Job(plan, launch, Payload({"recipe.py": recipe_text(plan)})))
    return jobs, found


def refusals(cluster: Cluster, jobs: Sequence[Job], dryrun: bool, converts: str = "") -> list[Diagnostic]:
    """Report why these jobs cannot start from here; `converts` says what they do with weights if they do not train."""
    if cluster.executor != "local" and (missing := store.has_nemo_run()):
        return [missing]
    if cluster.executor != "local" and (wrong := store.home_refusal(executors.home(cluster))):
        return [wrong]
    held = [script.refusal(t, bool(cluster.container)) for j in jobs for t in j.payload.files.values()]
    found = [d for d in held if d is not None and cluster.executor == "slurm"][:1]
    if not dryrun:
        for p in (j.plan for j in jobs):
            found += suspicious.refused(p.name, p.task, {**p.derived, **p.set})
    if cluster.executor == "local" and not dryrun:
        hybrid = any(family(j.plan.family).hybrid for j in jobs)  # Mamba layers cannot run on a CPU
        found += local.refusals([j.launch for j in jobs], converts, rehearses=not hybrid)
    if cluster.executor != "local" and not dryrun:
        found += local.missing_secrets(cluster)
    if cluster.executor == "kubeflow":
        found += _kubeflow_refusals(cluster, jobs, dryrun)
    return found


def _unordered(cluster: Cluster, jobs: Sequence[Job], sequential: bool) -> list[Diagnostic]:
    """Refuse sequential jobs if the scheduler cannot order them: NeMo-Run would keep this process until the last
    one."""
    if not sequential or cluster.executor != "kubeflow" or len(jobs) < 2:
        return []
    return [error("launch.sequential", cluster=cluster.name)]


def _kubeflow_refusals(cluster: Cluster, jobs: Sequence[Job], dryrun: bool) -> list[Diagnostic]:
    from moedsl.launch import kubeflow

    found = [kubeflow.refusal(j.launch, cluster, j.payload) for j in jobs]
    found += [] if dryrun else [kubeflow.context_refusal(cluster)]
    return [d for d in found if d is not None]


def _dryrun(a: Namespace, cluster: Cluster, jobs: Sequence[Job], source: str) -> int:
    """Print the derived settings, then every file to send."""
    from moedsl.launch.dryrun import dryrun_all

    try:
        sent = dryrun_all([(j.launch, j.payload) for j in jobs], cluster, source)
    except OSError as problem:  # of the home, where an id's mark is kept, or of the temporary folder
        console.say([store.unwritable_home(executors.home(cluster), problem)], {})
        return 1
    if a.json:
        runs = [to_json(j.launch) for j in jobs]
        console.print_json({"version": 1, "experiment": sent.experiment, "folder": sent.folder, "files": sent.files,
                         "runs": runs})  # fmt: skip
        return 0
    for job in jobs:
        print(dryrun.derived(job.launch))
    print(dryrun.sent(sent), end="")
    return 0


def start(
    a: Namespace, cluster: Cluster, jobs: Sequence[Job], source: str, before: Sequence[Job] = (),
    named: Named | None = None, bad: list[str] | None = None,
) -> int:  # fmt: skip
    """Print the derived settings, then train here or submit; the jobs `before` must succeed first."""
    if a.dryrun:
        return _dryrun(a, cluster, [*before, *jobs], source)
    for job in (*before, *jobs):
        print(dryrun.derived(job.launch), file=sys.stderr)
    if cluster.executor == "local":
        return next((code for j in (*before, *jobs) if (code := local.train(j.launch, cluster, j.payload))), 0)
    return _submit(a, cluster, jobs, source, before, named, bad)


def _script(job: Job, cluster: Cluster) -> Any:
    return executors.task(job.launch, cluster, job.payload)


def _submit(
    a: Namespace, cluster: Cluster, jobs: Sequence[Job], source: str, before: Sequence[Job], named: Named | None,
    bad: list[str] | None,
) -> int:  # fmt: skip
    """Submit all jobs as one experiment; returns the exit code when they have ended, or, detached, are submitted."""
    from moedsl.cli import foreground
    from moedsl.launch.submit import Task, chained, following, sequential

    home = executors.home(cluster)
    store.use_home(home)
    first, tasks = (
        [Task(j.launch.name, _script(j, cluster), executors.executor(j.launch, cluster, home)) for j in some]
        for some in (before, jobs)
    )
    title = store.experiment_title([t.name for t in tasks], source)
    chains = [(j.plan, chained(t, j.launch.chain)) for j, t in zip(jobs, tasks, strict=True)]
    plans = {t.name: plan for plan, chain in chains for t in chain}
    tasks = [t for _, chain in chains for t in chain]
    tasks = sequential(tasks) if a.sequential else tasks
    return foreground.run(following(first, tasks), title, home, a.detach, plans, named, bad)
