"""Keep NeMo-Run's list of jobs on Kubernetes complete, even if a launcher is killed.

NeMo-Run draws a name when it posts a job (nemo_run 0.11.1 core/execution/kubeflow.py:304), and writes it down
afterwards. Here the name is drawn and written before, so that another process can ask the API server for it. The list
is one file of a home, which each launch reads and rewrites (run/torchx_backend/schedulers/kubeflow.py:230): launches
take turns, and a job that is missing on the list is added again, because NeMo-Run queries only listed jobs. A query
builds the executor of its own job alone.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterable
from functools import cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from moedsl.launch import kubeflow

P = ParamSpec("P")
R = TypeVar("R")
LIST, TURN = ".kubeflow_jobs.json", ".kubeflow_jobs.turn"


def keep(jobs: Iterable[Any], file: Path) -> None:
    """Draw the name of each of NeMo-Run's jobs and write them to a file, by the job's own name."""
    scheduler()
    names = {job.id: job.executor._trainjob_name(job.id) for job in jobs}
    file.write_text(json.dumps(names), encoding="utf-8")


def file_of(home: Path, id: str) -> Path:
    """The file with the names of an experiment until all are listed; NeMo-Run makes the experiment's folder itself."""
    return home / "experiments" / id.rpartition("_")[0] / f".{id}.trainjobs.json"


def found(job: Any, id: str, file: Path) -> str:
    """NeMo-Run's handle of a job that was posted but not listed; empty if none was posted."""
    name = json.loads(file.read_text(encoding="utf-8")).get(job.id) if file.exists() else None
    if name is None:
        return ""
    handle = f"kubeflow://nemo_run/{id}___{job.id}___{name}"
    if not _is_listed(handle) and kubeflow.lost(job.executor, handle) == kubeflow.DELETED:
        return ""
    enlist(handle, job.executor)
    return handle


def enlist(handle: str, executor: Any) -> None:
    """Put a job on the list if it is missing; NeMo-Run needs this to query and cancel it."""
    if not _is_listed(handle):
        name = kubeflow.job_name(handle)
        scheduler()._save_job_dir(_app(handle), job_status="Unknown", executor=executor, job_name=name)


def _is_listed(handle: str) -> bool:
    return _app(handle) in scheduler()._get_job_dirs()


def _app(handle: str) -> str:
    """NeMo-Run's key of a job on the list."""
    return handle.rpartition("/")[2]


@cache
def scheduler() -> Any:
    """NeMo-Run's module, patched so that one process at a time reads and writes its list."""
    from nemo_run.run.torchx_backend.schedulers import kubeflow as module

    known: Any = module  # NeMo-Run has no public list
    known._save_job_dir = _in_turn(known._save_job_dir)
    known._get_job_dirs = _in_turn(_listed)
    return known


def _home() -> Path:
    from nemo_run.config import get_nemorun_home

    return Path(get_nemorun_home())


def _in_turn(work: Callable[P, R]) -> Callable[P, R]:
    """Run a function while no other process of this home does."""

    @wraps(work)
    def call(*words: P.args, **named: P.kwargs) -> R:
        _home().mkdir(parents=True, exist_ok=True)
        with (_home() / TURN).open("a") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            return work(*words, **named)

    return call


def _listed() -> dict[str, Any]:
    """Read a list that may be empty: a list that a killed launcher did not finish names no jobs."""
    file = _home() / LIST
    try:
        return _Listed(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else {}
    except json.JSONDecodeError:
        file.unlink()  # each experiment puts its own back
        return {}


class _Listed(dict[str, Any]):
    """The jobs of a list. NeMo-Run builds the executor of each, which reads the kubeconfig, and asks for one by `get`:
    this builds that one."""

    def get(self, key: str, default: Any = None) -> Any:
        job = super().get(key, default)
        if job and isinstance(job.get("executor"), str):
            module = scheduler()
            job["executor"] = module.fdl.build(module.ZlibJSONSerializer().deserialize(job["executor"]))
        return job
