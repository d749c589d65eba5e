"""Manage NeMo-Run's experiments: choose their folders and ids, list and open them, query and cancel their jobs.

NeMo-Run writes an experiment's folder below ``$NEMORUN_HOME/experiments`` (default ``~/.nemo_run``), so any process
that has the folder can query the jobs. This module uses the scheduler only through NeMo-Run.

A home is a folder in which NeMo-Run keeps experiments; a file lists the homes of clusters, for other processes. An id
is a title and the first number that is free in the home, such as ``TITLE_3``: creating the experiment's folder reserves
the number. If the jobs use a copy of that folder over ssh, the id also ends with the home's mark, such as
``TITLE_3-k7f3qx``, because two machines that submit to the same `job_dir` count separately. The mark is drawn once for
each home, so that a dry run prints what will be sent.
"""

from __future__ import annotations

import difflib
import gc
import itertools
import os
import re
import secrets
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path, PurePath
from stat import S_ISDIR
from typing import Any

from attrs import define, frozen

from moedsl.launch import executors, kubeflow, nemo
from moedsl.launch.nemo import HOME, nemo_run
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.resources import xdg_folder

TERMINAL = ("SUCCEEDED", "FAILED", "CANCELLED")
NOT_SUBMITTED = "NOT SUBMITTED"
UNKNOWN = "UNKNOWN"
END_WITHIN_S = 60.0
"""Seconds that a cancelled job may take to end before it is reported as running."""
KNOWN_WITHIN_S = 20.0
"""Seconds that the scheduler may take to list a submitted job."""


@frozen
class Job:
    """One job of an experiment, with its current state."""

    experiment: str
    name: str
    handle: str
    """NeMo-Run's id of the submitted job; empty if it was not submitted."""
    state: str
    """TorchX's state: PENDING, RUNNING, SUCCEEDED, FAILED, CANCELLED, UNKNOWN; or NOT SUBMITTED."""
    says: str
    """The scheduler's own state, such as TIMEOUT or `CANCELLED by 1000`."""
    folder: str
    """The folder of the job's script and logs, on the submitting machine."""

    @property
    def number(self) -> str:
        """The scheduler's id or name of the job."""
        return number_of(self.handle)

    @property
    def ended(self) -> bool:
        return self.state in (*TERMINAL, NOT_SUBMITTED)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "state": self.state, "says": self.says, "number": self.number, "folder": self.folder}


def number_of(handle: str) -> str:
    """Return the scheduler's id of a job from NeMo-Run's handle (``slurm_tunnel://nemo_run/1234``)."""
    return handle.partition("://")[2].split("/")[1] if handle else ""


def new_experiment(title: str, id: str, **more: Any) -> Any:
    """Make a nemo_run.Experiment that prints nothing; nothing is written yet. `more` are further arguments."""
    return nemo_run().Experiment(
        title,
        id=id,
        log_level="WARNING",
        clean_mode=True,
        enable_goodbye_message=False,
        skip_status_at_exit=True,
        serialize_metadata_for_scripts=False,
        **more,
    )


@define(slots=False)
class Experiment:
    """One experiment; a query about a job asks the job's scheduler."""

    id: str
    home: Path
    of_nemo: Any
    """nemo_run.Experiment"""

    @cached_property
    def runner(self) -> Any:
        from nemo_run.run.torchx_backend.runner import get_runner

        return get_runner(experiment=self.of_nemo)

    @cached_property
    def handles(self) -> dict[str, str]:
        """The handle of each job by name; looked up again if NeMo-Run was killed before it wrote them."""
        use_home(self.home)
        return {job.id: job.handle or self._found_again(job) for job in self.of_nemo.jobs}

    def _found_again(self, job: Any) -> str:
        """Look up the handle of a submitted job; empty if there is none.

        For Kubernetes, this uses the name that was drawn for the job. For Slurm, it uses NeMo-Run's list, else sacct
        with the path of the script.
        """
        if isinstance(job.executor, nemo_run().KubeflowExecutor):
            return kubeflow.found(job, self.id, kubeflow.file_of(self.home, self.id))
        if not isinstance(job.executor, nemo_run().SlurmExecutor):
            return ""
        script = f"{job.executor.tunnel.job_dir}/{job.id}_sbatch.sh"
        number = executors.listed_number(job.executor.job_dir) or executors.accounted_number(
            self.tunnel(job.id), script
        )
        if number:
            executors.enlist(number, job.executor.job_dir, self.tunnel(job.id), self.log_folder(job.id))
        return f"slurm_tunnel://nemo_run/{number}" if number else ""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(job.id for job in self.of_nemo.jobs)

    @property
    def in_pods(self) -> bool:
        """Whether Kubernetes runs its jobs."""
        return any(isinstance(job.executor, nemo_run().KubeflowExecutor) for job in self.of_nemo.jobs)

    @property
    def is_far(self) -> bool:
        """Whether queries about its jobs use ssh."""
        return any(isinstance(tunnel, nemo_run().SSHTunnel) for tunnel in self.of_nemo.tunnels.values())

    def disconnected(self, problem: BaseException) -> Diagnostic:
        """Report that the connection was lost while waiting for the jobs."""
        return nemo.unreached(next(iter(self.of_nemo.tunnels.values())), self.id, problem)

    def jobs(self, only: Sequence[str] = ()) -> list[Job]:
        """Query all jobs, or those in `only`.

        NeMo-Run leaves each query's pipes to the garbage collector, which rarely runs in a command. `watch` queries for
        days, and `select` fails when 1,024 pipes are open, so garbage is collected here.
        """
        use_home(self.home)
        found: list[Job] = []
        for job in self.of_nemo.jobs:
            if not only or job.id in only:
                state, says = self._state(self.handles[job.id], job.executor)
                found.append(Job(self.id, job.id, self.handles[job.id], state, says, str(job.executor.job_dir)))
        gc.collect(0)
        return found

    def _state(self, handle: str, executor: Any) -> tuple[str, str]:
        if not handle:
            return NOT_SUBMITTED, ""
        if handle.startswith("kubeflow:"):
            if lost := kubeflow.lost(executor, handle):
                return lost
            kubeflow.enlist(handle, executor)
        try:
            status = self.runner.status(handle)
        except AssertionError as problem:  # a state that NeMo-Run has no name for
            return UNKNOWN, str(problem)
        return (status.state.name, status.msg) if status else (UNKNOWN, "the scheduler does not know it")

    def executor(self, name: str) -> Any:
        return next(job.executor for job in self.of_nemo.jobs if job.id == name)

    def tunnel(self, name: str) -> Any:
        """Return the tunnel that runs commands on a Slurm job's cluster."""
        tunnel = self.executor(name).tunnel
        return self.of_nemo.tunnels.get(tunnel.key, tunnel)

    def log_folder(self, name: str) -> str:
        """Return the folder in which a Slurm job writes, as its cluster sees it."""
        executor = self.executor(name)
        return f"{executor.tunnel.job_dir}/{Path(executor.job_dir).name}"

    def cancel(self) -> list[Job]:
        """Cancel every job that has not ended, wait until the scheduler confirms it, and return the jobs.

        The scheduler may not know a new job yet, so requests are repeated. The last job is cancelled first, and a job
        that is still unknown delays those before it by up to `KNOWN_WITHIN_S`: it would start when the job that it
        follows ends.
        """
        began = time.monotonic()
        known_by, until = began + KNOWN_WITHIN_S, began + END_WITHIN_S
        jobs = self.jobs()
        while any(not job.ended for job in jobs) and time.monotonic() < until:
            for job in reversed(jobs):
                if not job.ended:
                    self.runner.cancel(job.handle)
                if job.state == UNKNOWN and time.monotonic() < known_by:
                    break
            time.sleep(1.0)
            jobs = self.jobs()
        return jobs


def use_home(home: Path) -> None:
    """Make NeMo-Run keep everything below `home`, including its list of Slurm's job ids."""
    nemo_run()
    executors.use_home(home)
    executors.use_list(home / ".slurm_jobs")


def known() -> dict[str, Path]:
    """Return every experiment's home by id, newest first, without experiments that are deleted meanwhile."""
    found: list[tuple[float, str, Path]] = []
    for home in known_homes():
        for path in home.glob("experiments/*/*_*"):
            with suppress(FileNotFoundError):
                about = path.stat()
                found += [(about.st_ctime, path.name, home)] if S_ISDIR(about.st_mode) else []
    return {name: home for _, name, home in sorted(found, key=lambda one: -one[0])}


def find(id: str) -> Experiment | Diagnostic:
    """Find an experiment by its id, or report what is wrong with it."""
    ids = known()
    if id in ids:
        return open_experiment(ids[id], id)
    close = difflib.get_close_matches(id, ids, 1)
    help = f"did you mean {close[0]}?" if close else "`moedsl jobs` lists them"
    return error("launch.no_experiment:experiment", name=id, homes=homes_text(), help=help)


def open_experiment(home: Path, id: str) -> Experiment | Diagnostic:
    """Open the experiment with that id in `home`, or return an error."""
    use_home(home)
    from kubernetes.config import ConfigException

    try:
        made = nemo_run().Experiment.from_id(id)
    except FileNotFoundError as missing:
        return error("launch.no_experiment:incomplete", name=id, path=Path(str(missing.filename)).name)
    except (ValueError, zlib.error) as problem:
        return error("launch.no_experiment:nemo", name=id, reason=str(problem) or type(problem).__name__)
    except ConfigException as problem:
        return kubeflow.unread(id, problem)
    made.clean_mode = True
    # a launcher that was killed early did not store the tunnels of its Slurm jobs with the experiment
    own = [job.executor.tunnel for job in made.jobs if isinstance(job.executor, nemo_run().SlurmExecutor)]
    made.tunnels = {tunnel.key: tunnel for tunnel in own} | made.tunnels
    for tunnel in made.tunnels.values():
        without_input(tunnel)
        try:
            nemo.connect(tunnel)
        except nemo.failures() as problem:
            return nemo.unreached(tunnel, id, problem)
    return Experiment(id, home, made)


def without_input(tunnel: Any) -> None:
    """Keep a local tunnel's commands from reading this process's standard input."""
    from invoke.config import Config
    from invoke.context import Context

    if isinstance(tunnel, nemo_run().LocalTunnel):
        tunnel.session = Context(Config(overrides={"run": {"in_stream": False}}))


def worst(jobs: Sequence[Job]) -> str:
    """Return one state for an experiment: the state of an unfinished job, else the worst final state."""
    order = ("RUNNING", "PENDING", "SUBMITTED", UNKNOWN, NOT_SUBMITTED, "FAILED", "CANCELLED", "SUCCEEDED")
    return min((job.state for job in jobs), key=order.index, default=NOT_SUBMITTED)


def has_nemo_run() -> Diagnostic | None:
    """Report that NeMo-Run is not installed."""
    return error("launch.no_nemo_run") if find_spec("nemo_run") is None else None


def known_homes() -> list[Path]:
    """Return NeMo-Run's own home, and the homes of clusters with submitted jobs that still exist."""
    return list(dict.fromkeys([executors.own_home(), *filter(Path.is_dir, _listed_homes())]))


def homes_text() -> str:
    """Format all homes for a message, with "or" between them."""
    return " or ".join(map(str, known_homes()))


def _listed_homes() -> list[Path]:
    return [Path(line) for line in _homes_file().read_text().splitlines()] if _homes_file().exists() else []


def remember_home(home: Path) -> None:
    """Remember a home, so that `moedsl jobs` finds it in other processes."""
    if home not in _listed_homes():
        _homes_file().parent.mkdir(parents=True, exist_ok=True)
        with _homes_file().open("a") as file:
            file.write(f"{home}\n")


def _homes_file() -> Path:
    return xdg_folder("XDG_STATE_HOME", ".local/state") / "moedsl" / "homes"


def home_refusal(home: Path) -> Diagnostic | None:
    """Report a home whose path would need quotes, because NeMo-Run puts it unquoted into commands."""
    if re.fullmatch(r"[A-Za-z0-9/._~+@%=-]+", str(home)):
        return None
    return error("launch.home:experiments", home=str(home), variable=HOME)


def unwritable_home(home: Path, problem: OSError) -> Diagnostic:
    """Report a home that cannot be written."""
    return error("launch.home:submitted", home=home, reason=problem.strerror or problem, variable=HOME)


LONGEST_TITLE = 100
"""Most characters of a title; with the number and the mark, a folder's name may have 255 bytes."""
_SIGNS = "_.-"


def experiment_title(jobs: Sequence[str], source: str = "") -> str:
    """Return an experiment's title: the name of the only job, else the stem of the file `source`.

    Characters other than letters, digits, ``_``, ``.`` and ``-`` are replaced. If there is no file (``<text>``,
    ``<stdin>``) or nothing is left of its stem, the title is the common prefix of the jobs' names.
    """
    if len(jobs) == 1:
        return jobs[0]
    stem = "" if not source or source.startswith("<") else PurePath(source).stem
    # ``a_16gpu_h100.main`` for ``a_16gpu_h100.main.ep_8`` and ``a_16gpu_h100.main.tp_2``
    each = zip(*(re.findall(rf"[^{_SIGNS}]*[{_SIGNS}]?", job) for job in jobs), strict=False)
    shared = "".join(words[0] for words in itertools.takewhile(lambda words: len(set(words)) == 1, each))
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", stem)[:LONGEST_TITLE].strip(_SIGNS)
    return stem or shared.strip(_SIGNS) or "runs"


MARK_FILE = ".mark"
MARK_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
"""Letters and digits that do not look alike."""
MARK_LENGTH = 6
"""Letters of a mark; among a thousand homes, the chance that two marks are equal is one in 1,800."""


def experiment_ids(title: str, id_ending: str) -> Iterator[str]:
    """Yield every id of a title, the lowest number first.

    NeMo-Run takes the title from the part before the last ``_``.
    """
    return (f"{title}_{number}{id_ending}" for number in itertools.count())


def first_id(title: str, base: Path, id_ending: str) -> str:
    """Return the first free id of a title below `base`."""
    folder = base / "experiments" / title
    return next(id for id in experiment_ids(title, id_ending) if not (folder / id).exists())


def id_ending(home: Path, shared: bool) -> str:
    """Return how the ids of a home end: with its mark if other homes share a cluster's folder, else with nothing."""
    return f"-{home_mark(home)}" if shared else ""


def home_mark(home: Path) -> str:
    """Return the mark of a home, drawn at the first call; raises OSError if it can be neither read nor written."""
    file = home / MARK_FILE
    if not file.exists():
        home.mkdir(parents=True, exist_ok=True)
        drawn = "".join(secrets.choice(MARK_LETTERS) for _ in range(MARK_LENGTH))
        own = file.with_name(f"{file.name}.{drawn}")
        own.write_text(drawn, encoding="ascii")
        with suppress(FileExistsError):  # another process has just drawn one
            os.link(own, file)
        own.unlink()
    return file.read_text(encoding="ascii").strip()
