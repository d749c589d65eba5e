"""`moedsl run`: train on this machine, or submit to a cluster and wait; `--dryrun` prints what would be sent."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from attrs import evolve

from moedsl.cli import console
from moedsl.compiler import Result
from moedsl.emit.recipe import recipe_text
from moedsl.facts.families import family
from moedsl.launch import dryrun, executors, follow, local, nemo, preflight, script, store
from moedsl.launch.derive import derive, to_json
from moedsl.launch.script import Job, Payload
from moedsl.launch.submit import Task, chained, following, sequential, submit
from moedsl.planner.plan import Plan
from moedsl.rules.check import cluster_rules, suspicious
from moedsl.rules.check.cluster_facts import Cluster
from moedsl.rules.library import Library
from moedsl.support.diagnostics import Diagnostic, error, note, suggest

Named = Callable[[str], None]
SUBMISSIONS = 4
"""The most submissions with `--exclude-bad`."""


def run(a: Namespace, named: Named | None = None) -> int:
    """Start the runs of a file; `named` gets the id of their experiment, which is printed if there is no `named`."""
    result = console.compiled(a, "plan", asks="recipe")
    cluster, found = cluster_rules.choose(result.library, asked(a.cluster))
    if cluster is None:
        console.say(found, result.sources)
        return 1
    if not a.exclude_bad:
        return _run(a, result, cluster, found, named)
    # bad nodes are found only by a Slurm job that checks its nodes, and only while this process waits for it
    if cluster.executor != "slurm" or a.detach or a.no_preflight:
        found = [*found, error("launch.exclude_bad")]
    cluster = evolve(cluster, node_check=True)
    code = 1
    for _ in range(SUBMISSIONS):
        bad: list[str] = []
        code = _run(a, result, cluster, found, named, bad)
        if not bad:
            break
        cluster, found = preflight.without_nodes(cluster, bad), []
        console.tell(f"{', '.join(bad)}: excluded from now on")
    return code


def _run(
    a: Namespace, result: Result, cluster: Cluster, found: Sequence[Diagnostic], named: Named | None,
    bad: list[str] | None = None,
) -> int:  # fmt: skip
    """Start the runs on a cluster; the nodes that a job names as bad are added to `bad`."""
    before: list[Job] = []
    made, more = jobs(result, cluster, a.run, a.backend)
    found = [*found, *more]
    if not a.no_preflight:
        here = local.interpreted(cluster)
        made = [evolve(j, payload=script.with_preflight(j.payload, j.plan, j.launch, here)) for j in made]
    if not any(d.is_error for d in found):
        found += refusals(cluster, made, a.dryrun)
        # Kubeflow does not order jobs, so NeMo-Run would keep this process until the last of sequential jobs
        if a.sequential and cluster.executor == "kubeflow" and len(made) > 1:
            found.append(error("launch.sequential", cluster=cluster.name))
    if not any(d.is_error for d in found):
        needed = imports(made, result.library)  # jobs for missing weights
        found += map(script.memory_of_import, needed)
        if needed and cluster.executor == "kubeflow":
            found.append(note("launch.weights_first", cluster=cluster.name))
        elif a.dryrun or a.no_preflight or not needed:
            before = needed
        else:
            absent = preflight.absent([f for j in needed for f in script.imported_folders(j.plan)], cluster)
            before = [j for j in needed if script.imported_folders(j.plan)[0] in absent]
            found += (d for j in before for d in preflight.hub_refusals(str(j.plan.hub_weights), None, cluster))
        if a.dryrun:  # asks neither Bridge nor the cluster
            if not a.no_preflight:
                found += [
                    *preflight.unmounted([j.plan for j in made], cluster),
                    *local.missing_secrets(cluster, dryrun=True),
                ]
        elif a.no_preflight:
            found.append(preflight.SKIPPED)
        else:
            found += preflight.before(made, cluster, result.source, result.library, console.tell)
    console.say(found, result.sources)
    if any(d.is_error for d in found):
        return 1
    return start(a, cluster, made, result.source.name, before, named, bad)


def imports(made: Sequence[Job], library: Library) -> list[Job]:
    """Return one import job for each folder of weights that the runs import."""
    of = {folder: j for j in made for folder in script.imported_folders(j.plan)}
    models = {folder: library.model(j.plan.model)[0] for folder, j in of.items()}
    return [script.import_job(j, model) for folder, j in of.items() if (model := models[folder]) is not None]


def asked(cluster: str | None) -> str:
    """Return the cluster's name: `local` without `--cluster`, "" (the default cluster) for `--cluster` without a
    name."""
    return "local" if cluster is None else cluster


def jobs(
    result: Result, cluster: Cluster, only: str | None, backend: str = "bridge"
) -> tuple[list[Job], list[Diagnostic]]:
    """Make the job of each run, or of the requested one."""
    names = [p.name for p in result.plans]
    if only is not None and only not in names:
        help = suggest(only, names) or (f"there are {', '.join(names)}",)
        return [], [error("launch.no_run:run", only=only, help=help)]
    jobs: list[Job] = []
    found: list[Diagnostic] = []
    models = {p.name: c.problem.program.model for p, c in zip(result.plans, result.chosen, strict=True)}
    for plan in (script.with_imported_weights(p, cluster) for p in result.plans if only in (None, p.name)):
        found += [d for d in script.weights_refusals(plan, cluster) if d not in found]
        launch, more = derive(plan, cluster, result.library)
        found += [d for d in more if d not in found]
        if launch is None:
            continue
        if backend == "bridge":
            payload = Payload({"recipe.py": recipe_text(plan)})
        else:
            payload, more = script.megatron_lm(plan, models[plan.name], cluster)
            found += [d for d in more if d not in found]
        if payload is not None:
            jobs.append(Job(plan, launch, payload))
    return jobs, found


def refusals(cluster: Cluster, jobs: Sequence[Job], dryrun: bool, converts: str = "") -> list[Diagnostic]:
    """Report why these jobs cannot start from here; `converts` says what they do with weights if they do not train."""
    if cluster.executor != "local" and (wrong := store.has_nemo_run() or store.home_refusal(executors.home(cluster))):
        return [wrong]
    found: list[Diagnostic | None] = []
    if cluster.executor == "slurm":
        texts = (t for j in jobs for t in j.payload.files.values())
        found.append(next(filter(None, (script.refusal(t, bool(cluster.container)) for t in texts)), None))
    if not dryrun:
        for p in (j.plan for j in jobs):
            found += suspicious.refused(p.name, p.task, {**p.derived, **p.set})
    if cluster.executor == "local" and not dryrun:
        hybrid = any(family(j.plan.family).hybrid for j in jobs)  # Mamba layers cannot run on a CPU
        found += local.refusals([j.launch for j in jobs], converts, rehearses=not hybrid)
    if not dryrun:
        found += local.missing_secrets(cluster)
    if cluster.executor == "kubeflow":
        from moedsl.launch import kubeflow

        found += [kubeflow.refusal(j.launch, cluster, j.payload) for j in jobs]
        found += [] if dryrun else [kubeflow.context_refusal(cluster)]
    return [d for d in found if d is not None]


def start(
    a: Namespace, cluster: Cluster, jobs: Sequence[Job], source: str, before: Sequence[Job] = (),
    named: Named | None = None, bad: list[str] | None = None,
) -> int:  # fmt: skip
    """Print the derived settings, then train here or submit all jobs as one experiment; the jobs in `before` must
    succeed first.

    Returns the exit code when the jobs have ended or, if detached, are submitted: 130 after Ctrl-C. `named` gets the id
    before the submission; without `named`, the id is printed, and nothing else on stdout. If `bad` is a list, the nodes
    that a job names as bad are added to it, and all jobs are cancelled.
    """
    every = [*before, *jobs]
    if a.dryrun:
        return _dryrun(a, cluster, every, source)
    for job in every:
        print(dryrun.derived(job.launch), file=sys.stderr)
    if cluster.executor == "local":
        return next((code for j in every if (code := local.train(j.launch, cluster, j.payload))), 0)
    home = executors.home(cluster)
    store.use_home(home)

    def task(j: Job) -> Task:
        runs = executors.task(j.launch, cluster, j.payload)
        return Task(j.launch.name, runs, executors.executor(j.launch, cluster, home))

    first, chains = [*map(task, before)], [(j.plan, chained(task(j), j.launch.chain)) for j in jobs]
    title = store.experiment_title([j.launch.name for j in jobs], source)
    plans = {t.name: plan for plan, chain in chains for t in chain}
    tasks = [t for _, chain in chains for t in chain]
    tasks = following(first, sequential(tasks) if a.sequential else tasks)
    done = submit(tasks, title, home, named or partial(print, flush=True))
    console.say([done.why_not] if done.why_not else [], {})
    if done.signal and not done.why_not:
        print("all submitted jobs were cancelled", file=sys.stderr)
    if done.signal:
        return 128 + done.signal
    return _attend(done.experiment, plans, a.detach, bad) if done.experiment else 1


def _dryrun(a: Namespace, cluster: Cluster, jobs: Sequence[Job], source: str) -> int:
    """Print the derived settings, then every file to send."""
    try:
        sent = dryrun.dryrun([(j.launch, j.payload) for j in jobs], cluster, source)
    except OSError as problem:  # in the home, where an id's mark is kept, or in the temporary folder
        console.say([store.unwritable_home(executors.home(cluster), problem)], {})
        return 1
    if a.json:
        runs = [to_json(j.launch) for j in jobs]
        console.print_json({"version": 1, "experiment": sent.experiment, "folder": sent.folder, "files": sent.files,
                         "runs": runs})  # fmt: skip
        return 0
    if a.only:
        texts = [text for name, text in sent.files.items() if dryrun.KINDS[a.only](name)]
        if not texts:
            print(f"a {cluster.executor} launch has no {a.only}: it sends {', '.join(sent.files)}", file=sys.stderr)
            return 1
        print("\n".join(texts), end="")
        return 0
    for job in jobs:
        print(dryrun.derived(job.launch) + dryrun.lasts(job.plan, cluster))
    print(dryrun.sent(sent, a.full), end="")
    return 0


def _attend(experiment: store.Experiment, plans: Mapping[str, Plan], detach: bool, bad: list[str] | None) -> int:
    """Store each task's plan with its log, and wait unless detached; return the exit code."""
    asked = set[str]()

    def names_bad(jobs: Sequence[store.Job]) -> bool:
        """Whether a failed job has named bad nodes, which are added to `bad`."""
        if bad is None:
            return False
        for job in (job for job in jobs if job.state == "FAILED" and job.name not in asked):
            asked.add(job.name)
            bad.extend(follow.bad_nodes(experiment, job))
        return bool(bad)

    try:
        for job in experiment.of_nemo.jobs:  # `moedsl results` reads plan.json with the log
            if job.id in plans:
                text = json.dumps(plans[job.id].to_json(), indent=2, ensure_ascii=False) + "\n"
                (Path(job.executor.job_dir) / "plan.json").write_text(text, encoding="utf-8")
        if not detach:
            jobs = follow.wait(experiment, enough=names_bad)
            code = follow.report(experiment, [job for job in jobs if job.ended])
            if bad:
                experiment.cancel()
            return code
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
