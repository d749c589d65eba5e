"""Find the runs that a command names, and the numbers that turn their seconds into tokens.

A command names a log, a folder of runs, `LOG=RUN` for logs from elsewhere, or the id of an experiment. If runs have the
same name but different plans, the path of the plan is added to the name. The numbers are length, GPUs, batch and useful
share, from a plan or recipe, or from the command line.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import asdict, evolve, frozen

from moedsl.launch import follow, nemo, store
from moedsl.launch.script import RANKS
from moedsl.planner.plan import Plan
from moedsl.support import foreign
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.files import written_by_us
from moedsl.support.foreign import text_of
from moedsl.support.source import Span

HELP = (
    "give a log, a folder with logs and their plan.json, LOG=RUN with a plan.json, folder, run file, recipe.py or "
    "script of Megatron-LM, or the id of an experiment"
)
DAMAGED = "results.plan"
"""The diagnostic for a plan.json that cannot be read."""
PLAN, FETCHED = "plan.json", "log-fetched.out"
SUFFIXES = (".log", ".out", ".err", ".txt")
CODE = "code"
"""The folder, in a task's folder, in which NeMo-Run ships the files of a job."""


@frozen
class Run:
    """One run: its logs, and the plan or recipe that has its numbers."""

    of: str
    """The name of its plan, or of its log if it has no plan."""
    logs: tuple[Path, ...]
    plan: Plan | None = None
    plan_file: Path | None = None
    recipe: str | None = None
    """A recipe instead of a plan, as `verify` accepts it, or a run_config.yaml."""
    damaged: Diagnostic | None = None
    """Why its plan.json cannot be read."""
    place: str = ""
    """Where its plan is, if another plan has the same name (`disambiguate`)."""

    @property
    def name(self) -> str:
        """The name, which only this run and its repetitions have."""
        return f"{self.of} ({self.place})" if self.place else self.of


def gather(targets: Iterable[str]) -> tuple[list[Run], list[Diagnostic]]:
    """Find the runs that the arguments name, in order, and report what cannot be read."""
    made = [*map(_runs_of, targets)]
    runs = [r for each in made if isinstance(each, list) for r in each]
    found = [each for each in made if isinstance(each, Diagnostic)]
    found += {r.damaged.message: r.damaged for r in runs if r.damaged}.values()
    for log in (log for r in runs for log in r.logs):
        try:
            log.open("rb").close()
        except OSError as e:
            found.append(error("read.denied:refused", Span(str(log), 0, 0), path=log, reason=e.strerror or e))
    return runs, found


def _runs_of(target: str) -> list[Run] | Diagnostic:
    path = Path(target)
    if os.path.isdir(path):
        return list(_below(path)) or error("results.input:no-log", target=target, help=HELP)
    if os.path.isfile(path):  # a log, with its plan in its folder or in a parent folder
        here = path.resolve().parent
        files = (folder / PLAN for folder in (here, here / CODE, *here.parents[:2]))
        file, plan = next(((file, plan) for file in files if (plan := read_plan(file))), (None, None))
        return [_run(str(path), (path,), file, plan)]
    log, _, stands = target.rpartition("=")
    if log and _is_read(log):  # a log, or a folder of logs of one run, with its plan or recipe
        log = Path(log)
        logs = tuple(job_logs(log)) if log.is_dir() else (log,)
        file = Path(stands) / PLAN if os.path.isdir(stands) else Path(stands)
        if file.suffix == ".json" and os.path.isfile(file):
            if plan := read_plan(file):
                return [_run(str(log), logs, file, plan)]
        elif _is_read(stands.partition(":")[0]):
            from moedsl.bridge.run_sides import Options, Side, Wrong, one

            side = one(stands, Options())  # a run file or a run's own file has a plan, a recipe has none
            if isinstance(side, Wrong):
                return side.diagnostics[0]
            plan = side.plan if isinstance(side, Side) else None
            return [Run(plan.name, logs, plan, file) if plan else Run(str(log), logs, recipe=stands)]
        return error("results.input:no-plan", stands=stands, help=HELP)
    experiment = None if "/" in target else experiment_folder(target)
    if isinstance(experiment, Diagnostic):
        return experiment
    if experiment is None:
        return error("results.input:nothing", target=target, help=HELP)
    return list(_below(experiment)) or error("results.input:not-started", target=target, help=HELP)


def _is_read(path: str) -> bool:
    """Whether a path is a file or a folder; reading a pipe would block, and a device may have no end."""
    return os.path.isfile(path) or os.path.isdir(path)


def _run(name: str, logs: tuple[Path, ...], file: Path | None, plan: Plan | Diagnostic | None) -> Run:
    """Return a run for what `read_plan` returned for a file."""
    if isinstance(plan, Plan):
        return Run(plan.name, logs, plan, file)
    return Run(name, logs, damaged=plan)


def _below(folder: Path) -> Iterator[Run]:
    """Yield a run for each folder with a plan, with its logs; logs without a plan make a run per folder."""
    roots = {(p.parent.parent if p.parent.name == CODE else p.parent): p for p in sorted(folder.rglob(PLAN))}
    groups: dict[Path, list[Path]] = {root: [] for root in roots}
    for log in job_logs(folder):
        root = next((p for p in log.parents if p in roots), log.parent)
        groups.setdefault(root, []).append(log)
    for root, logs in groups.items():
        plan = read_plan(roots[root]) if root in roots else None
        yield _run(str(root), tuple(logs), roots.get(root), plan)


def read_plan(path: Path) -> Plan | Diagnostic | None:
    """Read the plan of one run, or return why it is damaged; None if the file does not exist or is not moedsl's."""
    if not os.path.isfile(path):
        return None
    about: dict[str, Any] = {"path": path, "folder": path.parent}
    at = Span(str(path), 0, 0)
    try:
        text = text_of(path)
    except (OSError, UnicodeDecodeError) as e:
        return error("results.plan:unreadable", at, problem=getattr(e, "strerror", None) or e, **about)
    try:
        data = foreign.load_json(text)
    except ValueError as e:
        return error("results.plan:damaged", at, problem=e, **about)
    try:
        return Plan.from_json(data)
    except ValueError as e:
        ours = written_by_us(path.name, text) != "foreign"
        return error("results.plan:no-plan", at, problem=e, **about) if ours else None


def job_logs(folder: Path) -> list[Path]:
    """Return the files that a job printed, without those that moedsl wrote, NeMo-Run ships, or a single rank wrote."""
    out = list[Path]()
    for path in sorted(folder.rglob("*")):
        parents = path.relative_to(folder).parts[:-1]
        if path.is_file() and path.suffix in SUFFIXES and not {CODE, RANKS} & {*parents}:
            with path.open("rb") as stream:
                if not stream.read(200).startswith((b"# moedsl:", b"<!-- moedsl:")):
                    out.append(path)
    return out


def has_logs(folder: Path) -> bool:
    """Whether a job has printed anything in a folder; a fetched copy of its logs does not count."""
    return any(p.name != FETCHED for p in job_logs(folder))


def experiment_folder(id: str) -> Path | Diagnostic | None:
    """Return the folder with the plans and logs of an experiment's jobs; None if no experiment has that id.

    Logs on the cluster, behind an SSH tunnel or in pods, are fetched now.
    """
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
    if opened.in_pods and (missing := follow.no_kubectl()):
        return missing
    try:
        for job in (job for job in opened.jobs() if job.handle):
            with (Path(job.folder) / FETCHED).open("w", encoding="utf-8") as out:
                if (reader := follow.reader(opened, job)) is not None:
                    follow.print_lines(reader.more(whole=True), out)
                else:
                    follow.print_elsewhere(opened, job, False, out)
    except nemo.failures() as problem:
        if not opened.is_far:
            raise
        return opened.disconnected(problem)
    return found


_WHAT_RUNS = ("model", "hf", "hardware", "gpus", "task", "target", "layout", "batch", "policy", "derived", "env", "set")
"""The parts of a plan that decide what runs; runs whose plans agree in them are repetitions."""


def disambiguate(runs: Sequence[Run]) -> list[Run]:
    """Add the path of its plan to each run whose name another plan's run has too.

    Repetitions keep one name, with the path of the first.
    """
    plans = [r.plan.to_json() if r.plan else None for r in runs]
    kinds = [(r.name, p and [p.get(n) for n in _WHAT_RUNS]) for r, p in zip(runs, plans, strict=True)]
    shared = [i for i, kind in enumerate(kinds) if kind[1] and any(o[0] == kind[0] and o != kind for o in kinds)]
    if not shared:
        return list(runs)
    files = [file.resolve() for i in shared if (file := runs[i].plan_file)]  # every run with a plan has a file
    places = [str(f.parent if f.name == PLAN else f) for f in files]  # the file may have another name
    common, out = os.path.commonpath(places), list(runs)
    for i in shared:
        first = next(at for at, o in enumerate(shared) if kinds[o] == kinds[i])
        out[i] = evolve(runs[i], place=os.path.relpath(places[first], common))
    return out


_RAMP = "train.rampup_batch_size"


@frozen
class Given:
    """Numbers from the command line, for runs whose plan or recipe does not give them."""

    seq: int | None = None
    gpus: int | None = None
    global_batch: int | None = None


@frozen
class Numbers:
    """The numbers that turn the seconds of one run into tokens."""

    seq: int
    """Tokens per sequence."""
    gpus: int
    global_batch: int | None
    """Sequences per step; None if only the log has it."""
    useful_share: float
    """The share of tokens that train the model (`useful.share`); 1 without a plan."""
    source: str
    """plan, recipe or given."""
    ramps_up: bool = False
    """Whether the first steps have smaller batches (`rampup_batch_size`)."""

    def useful_rate(self, seconds: float, global_batch: int, trained: float = 1.0) -> float:
        """Return the useful tokens/s/GPU of a step; `trained` is the share of iterations that were not skipped."""
        return self.seq * global_batch * self.useful_share * trained / seconds / self.gpus


def numbers(runs: Sequence[Run], given: Given) -> list[Numbers | Diagnostic]:
    """Return the numbers of each run, or why they are unknown.

    The command line must not contradict the plan or recipe, since the log cannot match both. Recipes are run with the
    real Bridge if it is installed.
    """
    recipes = _of_recipes([r.recipe for r in runs if r.recipe], given)
    out = list[Numbers | Diagnostic]()
    for run in runs:
        known: Mapping[str, Any] | Diagnostic = {}
        if p := run.plan:
            sizes = {"seq": p.batch.seq, "gpus": p.gpus, "global_batch": p.batch.global_batch}
            known = {**sizes, "useful_share": p.estimate.useful_share, _RAMP: p.set.get(_RAMP)}
        elif run.recipe is not None:
            known = recipes[run.recipe]
        out.append(known if isinstance(known, Diagnostic) else _stated(run, known, asdict(given)))
    return out


def _stated(run: Run, known: Mapping[str, Any], stated: Mapping[str, int | None]) -> Numbers | Diagnostic:
    """Combine a run's known numbers with the command line's; returns an error if they contradict or some are
    missing."""
    of = {n: known.get(n) for n in stated}
    apart = [n for n, own in stated.items() if own is not None and of[n] is not None and own != of[n]]
    if apart:
        flags = ", ".join(f"--{n.replace('_', '-')} {stated[n]} (it has {of[n]})" for n in apart)
        return error("results.numbers:contradicts", run=run.name, source=run.plan_file or run.recipe, flags=flags)
    seq, gpus, batch = (own or of[n] for n, own in stated.items())
    if seq is None or gpus is None:
        missing = " and ".join(w for w, v in (("length", seq), ("number of GPUs", gpus)) if v is None)
        return error("results.numbers:unknown", run=run.name, missing=missing)
    source = "plan" if run.plan else "recipe" if run.recipe else "given"
    return Numbers(int(seq), int(gpus), batch, known.get("useful_share", 1.0), source, bool(known.get(_RAMP)))


def _of_recipes(targets: Sequence[str], given: Given) -> dict[str, Mapping[str, Any] | Diagnostic]:
    """Read each recipe like `moedsl diff`; its number of GPUs comes from its function's name or from --gpus."""
    if not targets:
        return {}
    from moedsl.bridge.run_sides import Options, Side, read_sides
    from moedsl.bridge.verify import cases

    made: dict[str, Mapping[str, Any] | Diagnostic] = {}
    for target, side in zip(targets, read_sides(targets, options=Options(world=given.gpus)), strict=True):
        if isinstance(side, Side):
            f, named = side.fields, cases.read(target, world=given.gpus)
            gpus = named.world if isinstance(named, cases.Case) else given.gpus
            sizes = {"seq": f.get("model.seq_length", f.get("dataset.seq_length")), "gpus": gpus}
            made[target] = {**sizes, "global_batch": f.get("train.global_batch_size"), _RAMP: f.get(_RAMP)}
        else:
            made[target] = side.diagnostics[0]
    return made
