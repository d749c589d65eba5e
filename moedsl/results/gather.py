"""Which logs belong to which run: a log, a folder of runs, or `LOG=RUN` for logs that were made elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from moedsl.diagnostics.model import Diagnostic, error
from moedsl.results import fetch
from moedsl.results.log_files import CODE, PLAN, job_logs

HELP = (
    "give a log, a folder that holds logs beside their plan.json, LOG=RUN with a plan.json, folder or recipe.py, "
    "or the id of an experiment"
)


@frozen
class Run:
    """One run: its logs, and where its numbers are."""

    name: str
    logs: tuple[Path, ...]
    plan: Mapping[str, Any] | None = None
    recipe: str | None = None
    """A recipe that stands for the plan, as `verify` takes it."""


def gather(targets: Iterable[str]) -> tuple[list[Run], list[Diagnostic]]:
    """The runs that the arguments name, in their order, and what of them cannot be read."""
    runs: list[Run] = []
    found: list[Diagnostic] = []
    for target in targets:
        made = _one(target)
        if isinstance(made, Diagnostic):
            found.append(made)
        else:
            runs += made
    return runs, found


def _one(target: str) -> list[Run] | Diagnostic:
    path = Path(target)
    if path.is_dir():
        return list(_below(path)) or _wrong(f"no log is in {target}")
    if path.is_file():
        return [_of_log(path)]
    log, _, stands = target.rpartition("=")
    if log and Path(log).exists():
        return _paired(Path(log), stands)
    experiment = None if "/" in target else fetch.folder(target)
    if isinstance(experiment, Diagnostic):
        return experiment
    if experiment is None:
        return _wrong(f"{target} is not there, and no experiment has that id")
    return list(_below(experiment)) or _wrong(f"{target} has no log: none of its jobs has started")


def _wrong(text: str) -> Diagnostic:
    return error("results.input", text, help=HELP)


def _paired(log: Path, stands: str) -> list[Run] | Diagnostic:
    """A log, or a folder of logs of one run, with what stands for its plan."""
    logs = tuple(job_logs(log)) if log.is_dir() else (log,)
    file = Path(stands) / PLAN if Path(stands).is_dir() else Path(stands)
    if file.suffix != ".json" or not file.is_file():
        return [Run(str(log), logs, recipe=stands)] if Path(stands.partition(":")[0]).exists() else _wrong_run(stands)
    plan = read_plan(file)
    return _wrong_run(stands) if plan is None else [Run(plan["name"], logs, plan)]


def _wrong_run(stands: str) -> Diagnostic:
    return _wrong(f"{stands} is no plan.json, no folder with one and no recipe.py")


def _of_log(path: Path) -> Run:
    """Read one log; its plan is in its folder or in a parent folder."""
    here = path.resolve().parent
    plans = (plan for folder in (here, here / CODE, *here.parents[:2]) if (plan := read_plan(folder / PLAN)))
    plan = next(plans, None)
    return Run(plan["name"] if plan else str(path), (path,), plan)


def _below(folder: Path) -> Iterator[Run]:
    """Each folder with a plan and its logs; logs without a plan, those of one folder together."""
    roots = {_root(p): p for p in sorted(folder.rglob(PLAN))}
    groups: dict[Path, list[Path]] = {root: [] for root in roots}
    for log in job_logs(folder):
        root = next((p for p in log.parents if p in roots), log.parent)
        groups.setdefault(root, []).append(log)
    for root, logs in groups.items():
        plan = read_plan(roots[root]) if root in roots else None
        yield Run(plan["name"] if plan else str(root), tuple(logs), plan)


def _root(plan: Path) -> Path:
    return plan.parent.parent if plan.parent.name == CODE else plan.parent


def read_plan(path: Path) -> Mapping[str, Any] | None:
    """The plan of one run; None where the file is not there or is none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) and {"layout", "batch", "gpus", "name"} <= data.keys() else None
