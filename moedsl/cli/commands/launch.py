"""`moedsl run`: train on this machine, or submit to a cluster and wait; `--dryrun` prints what would be sent."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from attrs import evolve, frozen

from moedsl.cli import console
from moedsl.cli.console import compiled
from moedsl.compiler import Result
from moedsl.emit.recipe import recipe_text
from moedsl.facts.families import family
from moedsl.launch import dryrun, executors, follow, local, nemo, preflight, script, store
from moedsl.launch.derive import Launch, derive, to_json
from moedsl.launch.script import Payload
from moedsl.launch.submit import Task, chained, following, sequential, submit
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
    # without a job that checks its nodes, or somebody who waits for it, nothing is found to exclude
    checks = cluster.executor == "slurm" and not a.detach and not a.no_preflight
    refused = [] if checks else [error("launch.exclude_bad")]
    cluster = evolve(cluster, node_check=True)
    for _ in range(SUBMISSIONS):
        bad: list[str] = []
        code = _run(a, result, cluster, [*found, *refused], named, bad)
        if not bad:
            break
        cluster, found = preflight.without_nodes(cluster, bad), []
        console.tell(f"{', '.join(bad)}: excluded from now on")
    return code


def _run(
    a: Namespace, result: Result, cluster: Cluster | None, found: Sequence[Diagnostic], named: Named | None,
    bad: list[str] | None = None,
) -> int:  # fmt: skip
    """Start the runs on a cluster; `bad` gets the nodes that a job named as bad."""
    made: list[Job] = []
    before: list[Job] = []
    if cluster is not None:
        made, more = jobs(result, cluster, a.run)
        found = [*found, *more]
        if not a.no_preflight:
            here = local.interpreted(cluster)
            made = [evolve(j, payload=script.with_preflight(j.payload, j.plan, j.launch, here)) for j in made]
    if cluster is not None and not any(d.is_error for d in found):
        # NeMo-Run would keep this process until the last of sequential jobs that the scheduler cannot order
        unordered = a.sequential and cluster.executor == "kubeflow" and len(made) > 1
        sequential = [error("launch.sequential", cluster=cluster.name)] if unordered else []
        found = [*found, *refusals(cluster, made, a.dryrun), *sequential]
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
        from moedsl.launch import kubeflow

        refused = [kubeflow.refusal(j.launch, cluster, j.payload) for j in jobs]
        refused += [] if dryrun else [kubeflow.context_refusal(cluster)]
        found += [d for d in refused if d is not None]
    return found


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
    """Print the derived settings, then train here or submit all jobs as one experiment; those `before` must succeed
    first. Returns the exit code when they have ended, or, detached, are submitted."""
    if a.dryrun:
        return _dryrun(a, cluster, [*before, *jobs], source)
    for job in (*before, *jobs):
        print(dryrun.derived(job.launch), file=sys.stderr)
    if cluster.executor == "local":
        return next((code for j in (*before, *jobs) if (code := local.train(j.launch, cluster, j.payload))), 0)
    home = executors.home(cluster)
    store.use_home(home)

    def task(j: Job) -> Task:
        runs = executors.task(j.launch, cluster, j.payload)
        return Task(j.launch.name, runs, executors.executor(j.launch, cluster, home))

    first, tasks = [*map(task, before)], [*map(task, jobs)]
    title = store.experiment_title([t.name for t in tasks], source)
    chains = [(j.plan, chained(t, j.launch.chain)) for j, t in zip(jobs, tasks, strict=True)]
    plans = {t.name: plan for plan, chain in chains for t in chain}
    tasks = [t for _, chain in chains for t in chain]
    tasks = sequential(tasks) if a.sequential else tasks
    return submit_and_wait(following(first, tasks), title, home, a.detach, plans, named, bad)


def submit_and_wait(
    tasks: Sequence[Task], title: str, home: Path, detach: bool, plans: Mapping[str, Plan], named: Named | None,
    bad: list[str] | None,
) -> int:  # fmt: skip
    """Submit and wait. Exit code: 0 if all succeeded (or, detached, were submitted), 1 if not, 130 after Ctrl-C.

    `named` gets the id before the submission; without it, only the id is on stdout. `plans`, by the names of tasks, are
    stored with their logs. If `bad` is a list, it gets the nodes that a job named as bad, and all jobs are cancelled.
    """
    done = submit(tasks, title, home, named or partial(print, flush=True))
    console.say([done.why_not] if done.why_not else [], {})
    if done.signal and not done.why_not:
        print("all submitted jobs were cancelled", file=sys.stderr)
    if done.signal:
        return 128 + done.signal
    experiment = done.experiment
    if experiment is None:
        return 1
    try:
        for job in experiment.of_nemo.jobs:  # `moedsl results` reads plan.json with the log
            if job.id in plans:
                text = json.dumps(plans[job.id].to_json(), indent=2, ensure_ascii=False) + "\n"
                (Path(job.executor.job_dir) / "plan.json").write_text(text, encoding="utf-8")
        if not detach:
            return _ended(experiment, bad)
        for name in experiment.names:
            print(f"{name}  {store.number_of(experiment.handles[name])}", file=sys.stderr)
        code = 0
    except KeyboardInterrupt:
        print("\nthe jobs go on without this process", file=sys.stderr)
        code = 130
    except nemo.failures() as problem:
        if not experiment.is_far:
            raise
        console.say([experiment.disconnected(problem)], {})
        code = 1
    for words in ("jobs {}", "watch {}", "logs {} -f", "results {}", "cancel {}"):
        print(f"  moedsl {words.format(experiment.id)}", file=sys.stderr)
    return code


def _ended(experiment: store.Experiment, bad: list[str] | None) -> int:
    """Wait for all jobs, or until one has failed with bad nodes, which go into `bad`; the exit code."""
    asked = set[str]()

    def names_bad(jobs: Sequence[store.Job]) -> bool:
        if bad is None:
            return False
        for job in (job for job in jobs if job.state == "FAILED" and job.name not in asked):
            asked.add(job.name)
            bad.extend(follow.bad_nodes(experiment, job))
        return bool(bad)

    jobs = follow.wait(experiment, enough=names_bad)
    code = follow.report(experiment, [job for job in jobs if job.ended])
    if bad:
        experiment.cancel()
    return code
