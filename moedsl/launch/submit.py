"""Submit all jobs of an experiment, or none: after a failure or a signal, cancel what was submitted."""

from __future__ import annotations

import errno
import gc
import json
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from moedsl.launch import kubeflow, nemo, store
from moedsl.launch.derive import Chain
from moedsl.launch.nemo import no_input, whole_files
from moedsl.support.diagnostics import Diagnostic, error

_OF_DISKS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
"""The errno values that mean this machine's own files cannot be written."""


@frozen
class Task:
    """One job: a NeMo-Run script on a NeMo-Run executor."""

    name: str
    script: Any
    executor: Any
    after: tuple[str, ...] = ()
    """The names of the jobs that must end first."""
    whatever: bool = False
    """Whether the job starts even if the jobs in `after` fail; otherwise their failure cancels it."""


@frozen
class Submitted:
    """The result of a submission: the experiment, or the reason why there is none.

    `signal` is the number of the signal that interrupted the submission, or 0.
    """

    id: str
    experiment: store.Experiment | None = None
    why_not: Diagnostic | None = None
    signal: int = 0


def sequential(tasks: Sequence[Task]) -> list[Task]:
    """Make each task wait until the previous one has ended, even if that one fails."""
    after = [(), *((task.name,) for task in tasks)]
    return [evolve(task, after=names, whatever=True) for task, names in zip(tasks, after, strict=False)]


def following(first: Sequence[Task], tasks: Sequence[Task]) -> list[Task]:
    """Return all tasks; any of `tasks` that waits for no other starts only after all in `first` have succeeded."""
    names = tuple(task.name for task in first)
    return [*first, *(task if task.after else evolve(task, after=names, whatever=False) for task in tasks)]


def chained(task: Task, chain: Chain | None) -> list[Task]:
    """Make the jobs of a task's chain, each of which starts when the previous one has ended, even if it failed."""
    if chain is None:
        return [task]
    return sequential([evolve(task, name=name) for name in chain.names(task.name)])


def submit(tasks: Sequence[Task], title: str, home: Path, named: Callable[[str], None]) -> Submitted:
    """Submit every task as one experiment below `home`, or cancel what was submitted and report why.

    `named` is called with the experiment's id before anything is submitted. Call this on the main thread: from then on,
    Ctrl-C, SIGTERM and SIGHUP cancel the whole submission, even if they are sent several times.
    """
    store.use_home(home)
    in_pods = any(isinstance(task.executor, store.nemo_run().KubeflowExecutor) for task in tasks)
    try:
        tunnels: dict[str, Any] = {}
        for tunnel in [task.executor.clone().tunnel for task in tasks if hasattr(task.executor, "tunnel")]:
            if tunnel.key not in tunnels:  # each connection is opened once, with a password if needed
                store.without_input(tunnel)
                nemo.connect(tunnel)
                tunnels[tunnel.key] = tunnel
        if in_pods:
            from kubernetes import client

            with suppress(client.ApiException):  # even a refusal shows that the API server answers
                client.VersionApi().get_code()
    except _refusals() as problem:
        if in_pods:
            return Submitted("", why_not=error("launch.refused:api", reason=getattr(problem, "reason", problem)))
        tunnel = tasks[0].executor.tunnel
        said = {"host": tunnel.host, "why_not": nemo.why_not(problem), "help": nemo.try_it(tunnel.user, tunnel.host)}
        return Submitted("", why_not=error("launch.refused:connection", **said))
    with ExitStack() as stack:
        try:
            copied = any(isinstance(tunnel, store.nemo_run().SSHTunnel) for tunnel in tunnels.values())
            id = stack.enter_context(_reserved(title, home, store.id_ending(home, copied)))
            store.remember_home(home)
        except OSError as problem:
            return Submitted("", why_not=store.unwritable_home(home, problem))
        named(id)
        made = store.new_experiment(title, id, executor=tasks[0].executor)  # nothing is written yet
        for key, tunnel in tunnels.items():
            tunnel._set_job_dir(id)
            made.tunnels[key] = tunnel
        experiment = store.Experiment(id, home, made)
        wrong: list[Diagnostic] = []

        def undo() -> None:
            """Cancel what was submitted, or remove the empty folder, and report what could not be cancelled."""
            if any(experiment.handles.values()):
                wrong.extend(filter(None, [not_cancelled(id, experiment.cancel())]))
                return
            shutil.rmtree(made._exp_dir, ignore_errors=True)
            kubeflow.file_of(home, id).unlink(missing_ok=True)

        with deferred_signals() as signals:
            refused = run_without_signals(lambda: _run(made, tasks))
            taken = refused is None and not signals
            problem = None if taken else run_without_signals(undo)
    if taken:
        return Submitted(id, experiment)
    unmeant = [p for p in (refused, problem) if p is not None and not isinstance(p, _refusals())]
    if unmeant:
        raise unmeant[0]
    if problem:
        wrong.append(error("launch.not_cancelled:failed", name=id, reason=_said(problem)))
    if isinstance(refused, OSError) and refused.errno in _OF_DISKS:
        wrong.append(store.unwritable_home(home, refused))
    elif refused:
        wrong.append(error("launch.refused:submitted", answer=_said(refused)))
    return Submitted(id, why_not=wrong[0] if wrong else None, signal=signals[0] if signals else 0)


def _refusals() -> tuple[type[BaseException], ...]:
    """Return the exceptions of a cluster that rejects a job: an SSH tunnel raises SystemExit, Kubeflow RuntimeError."""
    from invoke.exceptions import UnexpectedExit
    from kubernetes.client import ApiException
    from paramiko import SSHException
    from urllib3.exceptions import HTTPError

    return UnexpectedExit, SSHException, ApiException, HTTPError, RuntimeError, OSError, SystemExit


@contextmanager
def _reserved(title: str, home: Path, ending: str = "") -> Generator[str]:
    """Reserve and yield the first free id of a title; a file that only one process can create marks it until exit.

    NeMo-Run creates the experiment's folder meanwhile, and fails if the folder exists.
    """
    folder = home / "experiments" / title
    folder.mkdir(parents=True, exist_ok=True)
    for id in store.experiment_ids(title, ending):
        mark = folder / f".{id}"
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:  # another launch has reserved it
            continue
        try:
            if not (folder / id).exists():
                yield id
                return
        finally:
            mark.unlink()


def _run(made: Any, tasks: Sequence[Task]) -> None:
    """Submit the tasks through NeMo-Run.

    Slurm is asked to cancel a job that can no longer start, which would otherwise stay pending forever. The names of
    Kubernetes jobs are in a file while the jobs are posted; it remains if the launcher is killed meanwhile. Young
    garbage is collected often, because NeMo-Run leaves the pipes of each submission to the collector, and a chain may
    have hundreds.
    """
    nemo_run = store.nemo_run()
    with redirect_stdout(sys.stderr), no_input(), whole_files(), made:
        for task in tasks:
            executor = task.executor
            if task.after and isinstance(executor, nemo_run.SlurmExecutor):
                executor = executor.clone()
                executor.dependency_type = "afterany" if task.whatever else "afterok"
                if not task.whatever:
                    more = executor.additional_parameters or {}
                    executor.additional_parameters = {**more, "kill-on-invalid-dep": "yes"}
            made.add(task.script, executor=executor, name=task.name, dependencies=list(task.after))
        posted = [job for job in made.jobs if isinstance(job.executor, nemo_run.KubeflowExecutor)]
        names = kubeflow.file_of(Path(made._exp_dir).parents[2], made._id)
        if posted:
            kubeflow.keep(posted, names)
        rarely = gc.get_threshold()
        gc.set_threshold(1_000, 10, 1_000_000)
        try:
            with nemo.copying():
                made.run(detach=True)
        finally:
            gc.set_threshold(*rarely)
        names.unlink(missing_ok=True)
        made.detach = True  # else NeMo-Run waits for jobs of some executors when the `with` block ends


def not_cancelled(id: str, jobs: Sequence[store.Job]) -> Diagnostic | None:
    """Report jobs that still run after they were cancelled."""
    left = [f"{job.name} ({job.number})" for job in jobs if not job.ended]
    said = {"end_within_s": store.END_WITHIN_S, "left": ", ".join(left), "name": id}
    return error("launch.not_cancelled:running", **said) if left else None


def _said(problem: BaseException) -> str:
    """Return the human-readable part of an exception's message, or the exception's type if it has none."""
    text = str(problem)
    if (result := getattr(problem, "result", None)) is not None:  # UnexpectedExit: a command and its output
        text = "; ".join(result.stderr.strip().splitlines())
    elif body := getattr(problem, "body", None):  # ApiException: a Kubernetes Status, else a proxy's text
        try:
            text = str(json.loads(body)["message"])
        except (ValueError, KeyError, TypeError):
            text = f"{getattr(problem, 'reason', '')}: {body}"
    return text or type(problem).__name__


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, the usual request to end, and a lost terminal or connection."""


@contextmanager
def deferred_signals() -> Generator[list[int]]:
    """Collect signals instead of acting on them.

    Signals that this process ignores (nohup, a shell's background job) stay ignored. Main thread only.
    """
    signals: list[int] = []

    def note(number: int, _: Any) -> None:
        signals.append(number)
        with suppress(OSError):  # the terminal is gone
            print("interrupted: finishing the submission, then cancelling all its jobs", file=sys.stderr, flush=True)

    heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, note) for number in heard}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_without_signals(work: Callable[[], None]) -> BaseException | None:
    """Run `work` to its end and return its exception, or None.

    It runs on a thread that blocks signals, and sbatch, scancel and ssh inherit this. Otherwise a Ctrl-C in the
    terminal would reach them too, and could end sbatch after Slurm accepted the job but before its job id is known.
    """
    problems: list[BaseException] = []

    def body() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            work()
        except (Exception, SystemExit) as problem:
            problems.append(problem)

    thread = threading.Thread(target=body, name="submission")
    thread.start()
    thread.join()
    return problems[0] if problems else None
