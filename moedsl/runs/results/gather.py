"""Find the logs of each run: a log, a folder of runs, `LOG=RUN` for logs from elsewhere, or the id of an experiment."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from attrs import frozen

from moedsl.launch.script import RANKS
from moedsl.planner.model.plan import Plan
from moedsl.support import foreign
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.files import written_by_us
from moedsl.support.foreign import text_of
from moedsl.support.source import Span

HELP = (
    "give a log, a folder with logs and their plan.json, LOG=RUN with a plan.json, folder or recipe.py, "
    "or the id of an experiment"
)


@frozen
class Run:
    """One run: its logs, and where its numbers are."""

    of: str
    """The name of its plan; without one, of its log."""
    logs: tuple[Path, ...]
    plan: Plan | None = None
    plan_file: Path | None = None
    recipe: str | None = None
    """A recipe in place of the plan, as `verify` accepts it."""
    damaged: Diagnostic | None = None
    """Why its plan.json cannot be read."""
    place: str = ""
    """Where its plan is, if another plan has the same name (names.py)."""

    @property
    def name(self) -> str:
        """The name that only this run and its repetitions have."""
        return f"{self.of} ({self.place})" if self.place else self.of


def gather(targets: Iterable[str]) -> tuple[list[Run], list[Diagnostic]]:
    """Find the runs that the arguments name, in order, and report what cannot be read."""
    runs: list[Run] = []
    found: list[Diagnostic] = []
    for target in targets:
        made = _one(target)
        if isinstance(made, Diagnostic):
            found.append(made)
        else:
            runs += made
    found += {r.damaged.message: r.damaged for r in runs if r.damaged}.values()
    return runs, [*found, *(d for r in runs for log in r.logs for d in _unreadable(log))]


def _unreadable(log: Path) -> Iterator[Diagnostic]:
    """Report a log that cannot be opened."""
    try:
        log.open("rb").close()
    except OSError as e:
        text = f"{log} cannot be read: {e.strerror or e}"
        yield error("read.denied", text, Span(str(log), 0, 0), help="check its permissions")


def _one(target: str) -> list[Run] | Diagnostic:
    path = Path(target)
    if os.path.isdir(path):
        return list(_below(path)) or _wrong(f"no log is in {target}")
    if os.path.isfile(path):
        return [_of_log(path)]
    log, _, stands = target.rpartition("=")
    if log and _is_read(log):
        return _paired(Path(log), stands)
    experiment = None if "/" in target else experiment_folder(target)
    if isinstance(experiment, Diagnostic):
        return experiment
    if experiment is None:
        return _wrong(f"{target} is neither a file nor the id of an experiment")
    return list(_below(experiment)) or _wrong(f"{target} has no log: none of its jobs has started")


def _is_read(path: str) -> bool:
    """Whether a path is a file or a folder: reading a pipe would wait, and a device may have no end."""
    return os.path.isfile(path) or os.path.isdir(path)


def _wrong(text: str) -> Diagnostic:
    return error("results.input", text, help=HELP)


def _paired(log: Path, stands: str) -> list[Run] | Diagnostic:
    """Pair a log, or a folder of logs of one run, with its plan or recipe."""
    logs = tuple(job_logs(log)) if log.is_dir() else (log,)
    file = Path(stands) / PLAN if os.path.isdir(stands) else Path(stands)
    if file.suffix != ".json" or not os.path.isfile(file):
        return [Run(str(log), logs, recipe=stands)] if _is_read(stands.partition(":")[0]) else _wrong_run(stands)
    plan = read_plan(file)
    return _wrong_run(stands) if plan is None else [_run(str(log), logs, file, plan)]


def _run(name: str, logs: tuple[Path, ...], file: Path | None, plan: Plan | Diagnostic | None) -> Run:
    """Make a run of what `read_plan` found in a file."""
    if isinstance(plan, Plan):
        return Run(plan.name, logs, plan, file)
    return Run(name, logs, damaged=plan)


def _wrong_run(stands: str) -> Diagnostic:
    return _wrong(f"{stands} is neither a plan.json, nor a folder with one, nor a recipe.py")


def _of_log(path: Path) -> Run:
    """Read one log; its plan is in its folder or in a parent folder."""
    here = path.resolve().parent
    files = (folder / PLAN for folder in (here, here / CODE, *here.parents[:2]))
    file, plan = next(((file, plan) for file in files if (plan := read_plan(file))), (None, None))
    return _run(str(path), (path,), file, plan)


def _below(folder: Path) -> Iterator[Run]:
    """Yield each folder with a plan and its logs; logs without a plan are grouped by folder."""
    roots = {_root(p): p for p in sorted(folder.rglob(PLAN))}
    groups: dict[Path, list[Path]] = {root: [] for root in roots}
    for log in job_logs(folder):
        root = next((p for p in log.parents if p in roots), log.parent)
        groups.setdefault(root, []).append(log)
    for root, logs in groups.items():
        plan = read_plan(roots[root]) if root in roots else None
        yield _run(str(root), tuple(logs), roots.get(root), plan)


def _root(plan: Path) -> Path:
    return plan.parent.parent if plan.parent.name == CODE else plan.parent


def read_plan(path: Path) -> Plan | Diagnostic | None:
    """Read the plan of one run, or say that it is damaged; None if the file does not exist or is JSON of somebody
    else."""
    if not os.path.isfile(path):
        return None
    try:
        text = text_of(path)
    except (OSError, UnicodeDecodeError) as problem:
        return _damaged(path, f"cannot be read: {getattr(problem, 'strerror', None) or problem}")
    try:
        data = foreign.load_json(text)
    except ValueError as problem:
        return _damaged(path, f"is cut or damaged: {problem}")
    try:
        return Plan.from_json(data)
    except ValueError as problem:
        return None if written_by_us(path.name, text) == "foreign" else _damaged(path, f"is not a plan: {problem}")


def _damaged(path: Path, text: str) -> Diagnostic:
    help = f"compile its program again, with `-o {path.parent} --force`, as the job did"
    return error(DAMAGED, f"{path} {text}", Span(str(path), 0, 0), help=help)


DAMAGED = "results.plan"
"""The diagnostic of a plan.json that cannot be read."""
SUFFIXES = (".log", ".out", ".err", ".txt")


CODE = "code"
"""The folder below a task in which NeMo-Run ships the files of a job."""


PLAN = "plan.json"


def job_logs(folder: Path) -> list[Path]:
    """The files that a job printed: not those that moedsl wrote, NeMo-Run ships, or a single rank has for itself."""
    files = (p for p in sorted(folder.rglob("*")) if p.is_file() and p.suffix in SUFFIXES)
    return [p for p in files if not {CODE, RANKS} & {*p.relative_to(folder).parts[:-1]} and not _ours(p)]


def has_logs(folder: Path) -> bool:
    """Whether a job has printed anything there; what was fetched of it does not count."""
    return any(p.name != FETCHED for p in job_logs(folder))


def _ours(path: Path) -> bool:
    with path.open("rb") as stream:
        head = stream.read(200)
    return head.startswith(b"# moedsl:") or written_by_us(path.name, head.decode(errors="replace")) != "foreign"


FETCHED = "log-fetched.out"


def experiment_folder(id: str) -> Path | Diagnostic | None:
    """The folder with the plans and logs of an experiment's jobs; None if no experiment has that id.

    Logs on the cluster, over an SSH tunnel or in pods, are fetched now.
    """
    from moedsl.launch import connections, logs, store

    home = store.known().get(id)
    if home is None:
        return None
    found = home / "experiments" / id.rpartition("_")[0] / id
    tasks = [plan.parent for plan in found.glob(f"*/{PLAN}")]
    if tasks and all(has_logs(task) for task in tasks):
        return found
    wrong = store.has_nemo_run()
    opened = wrong or store.open_experiment(home, id)
    if isinstance(opened, Diagnostic):
        return opened
    if opened.in_pods and (missing := logs.no_kubectl()):
        return missing
    try:
        for job in (job for job in opened.jobs() if job.handle):
            _fetch(opened, job)
    except connections.failures() as problem:
        if not opened.is_far:
            raise
        return opened.disconnected(problem)
    return found


def _fetch(experiment: Any, job: Any) -> None:
    from moedsl.launch import logs

    with (Path(job.folder) / FETCHED).open("w", encoding="utf-8") as out:
        reader = logs.reader(experiment, job)
        if reader is not None:
            logs.print_lines(reader.more(whole=True), out)
        else:
            logs.print_elsewhere(experiment, job, False, out)
