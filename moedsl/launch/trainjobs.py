"""Names of TrainJobs, kept before they are posted, for a launcher that is killed before it has noted what it posted.

NeMo-Run draws a name when it posts a job (nemo_run 0.11.1 core/execution/kubeflow.py:304), and notes it afterwards.
Drawn and written down beforehand, it says what to ask the API server for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from moedsl.launch import kubeflow


def keep(jobs: Iterable[Any], file: Path) -> None:
    """Draws the name of each of NeMo-Run's jobs and writes them to a file, by the job's own name."""
    names = {job.id: job.executor._trainjob_name(job.id) for job in jobs}
    file.write_text(json.dumps(names), encoding="utf-8")


def file_of(home: Path, id: str) -> Path:
    """Where the names of an experiment are until all are noted; its own folder is NeMo-Run's to make."""
    return home / "experiments" / id.rpartition("_")[0] / f".{id}.trainjobs.json"


def found(job: Any, id: str, file: Path) -> str:
    """NeMo-Run's handle of a job that was posted and not noted; nothing where none was posted.

    It is noted now, without which NeMo-Run neither asks for it nor cancels it.
    """
    from nemo_run.run.torchx_backend.schedulers import kubeflow as scheduler

    name = json.loads(file.read_text(encoding="utf-8")).get(job.id) if file.exists() else None
    if name is None:
        return ""
    app = f"{id}___{job.id}___{name}"
    handle = f"kubeflow://nemo_run/{app}"
    if app not in scheduler._get_job_dirs():  # pyright: ignore[reportPrivateUsage] NeMo-Run has no public list
        if kubeflow.lost(job.executor, handle) == kubeflow.DELETED:
            return ""
        scheduler._save_job_dir(  # pyright: ignore[reportPrivateUsage]
            app, job_status="Unknown", executor=job.executor, job_name=name
        )
    return handle
