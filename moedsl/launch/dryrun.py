"""What a launch would send, byte for byte, without sending it: NeMo-Run writes its files into a folder of their own."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

from attrs import frozen

from moedsl.launch import executors, here, kubeflow
from moedsl.launch.facts import Cluster
from moedsl.launch.launch import Launch
from moedsl.launch.script import Payload


@frozen
class Sent:
    """The texts of one launch: `files` by name, in the order in which they are used."""

    experiment: str
    """The id that NeMo-Run would give the experiment; empty on this machine."""
    folder: str
    """Where the files would lie, as the cluster sees it."""
    files: dict[str, str]


def dryrun(launch: Launch, cluster: Cluster, payload: Payload) -> Sent:
    """The sbatch file and the script of every task (Slurm), the TrainJob (Kubeflow), or the script (this machine)."""
    if launch.executor == "kubeflow":
        return _trainjob(launch, cluster, payload)
    if launch.executor == "local":
        return Sent("", "", {f"{launch.name}.sh": here.text(launch, cluster, payload)})
    base = executors.home(cluster)
    id = executors.experiment_id(launch.name, base)
    with tempfile.TemporaryDirectory(prefix="moedsl-dryrun-") as temporary:
        own = Path(temporary)
        _prepare(launch, cluster, payload, base, own, id)
        files = _read(own / "experiments" / launch.name / id, launch.name)
    return Sent(id, f"{executors.remote_dir(cluster, base)}/{launch.name}/{id}", files)


def _trainjob(launch: Launch, cluster: Cluster, payload: Payload) -> Sent:
    """The manifest, whose command holds the script; nothing is written anywhere but to the API server."""
    body = kubeflow.manifest(launch, cluster, payload)
    return Sent(body["metadata"]["name"], cluster.namespace, {"trainjob.yaml": kubeflow.text(body)})


def _prepare(launch: Launch, cluster: Cluster, payload: Payload, base: Path, own: Path, id: str) -> None:
    """NeMo-Run's own dry run: paths are those of `base`, files are written below `own`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages that NeMo-Run imports
        executors.use_home(own)
        import nemo_run
    with nemo_run.Experiment(
        launch.name, id=id, base_dir=str(own), clean_mode=True, enable_goodbye_message=False, skip_status_at_exit=True
    ) as e:
        e.add(executors.task(launch, cluster, payload), executors.executor(launch, cluster, base), name=launch.name)
        e.dryrun(log=False, delete_exp_dir=False)


def _read(folder: Path, name: str) -> dict[str, str]:
    files = (folder / f"{name}_sbatch.sh", folder / name / "scripts" / f"{name}.sh")
    return {str(f.relative_to(folder)): f.read_text(encoding="utf-8") for f in files if f.exists()}
