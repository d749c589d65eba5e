"""Show a launch: each derived value with its rule, and byte for byte what would be sent, without sending it.

NeMo-Run writes its files to a temporary folder.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

from moedsl.launch import executors, experiment_dirs, kubeflow, local, store
from moedsl.launch.derive import Launch
from moedsl.launch.nemo import no_input
from moedsl.launch.script import Payload
from moedsl.rules.check.clusters.arguments import Setting
from moedsl.rules.check.clusters.facts import Cluster


@frozen
class Sent:
    """The texts of one launch: `files` by name, in the order in which they are used."""

    experiment: str
    """The id that NeMo-Run would give the experiment; empty on this machine."""
    folder: str
    """The folder of the files, as the cluster sees it."""
    files: dict[str, str]
    more: tuple[str, ...] = ()
    """The further jobs of each chain, whose files are those of the first but for their names."""


def dryrun(launch: Launch, cluster: Cluster, payload: Payload) -> Sent:
    """Make the sbatch file and the tasks' script (Slurm), the manifest (Kubernetes), or the script (this machine)."""
    return dryrun_all([(launch, payload)], cluster)


def dryrun_all(jobs: Sequence[tuple[Launch, Payload]], cluster: Cluster, source: str = "") -> Sent:
    """Make the files of several jobs, which are one experiment; `source` names the file that states them."""
    if cluster.executor == "kubeflow":
        return _joined([_manifest(launch, cluster, payload) for launch, payload in jobs])
    if cluster.executor == "local":
        return Sent("", "", {f"{launch.name}.sh": local.text(launch, cluster, payload) for launch, payload in jobs})
    base, title = executors.home(cluster), experiment_dirs.title([launch.name for launch, _ in jobs], source)
    id = experiment_dirs.first_id(title, base, experiment_dirs.id_ending(base, cluster.tunnel == "ssh"))
    files: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="moedsl-dryrun-") as temporary:
        own = Path(temporary)
        _prepare(jobs, cluster, base, own, title, id)
        for launch, _ in jobs:
            files |= _read(own / "experiments" / title / id, _first(launch))
    return Sent(id, f"{executors.remote_dir(cluster, base)}/{title}/{id}", files, tuple(_more(j for j, _ in jobs)))


def _first(launch: Launch) -> str:
    """The name of a launch's first job."""
    return launch.chain.names(launch.name)[0] if launch.chain else launch.name


def _more(launches: Iterable[Launch]) -> Iterator[str]:
    for launch in launches:
        if launch.chain:
            _, second, *rest = launch.chain.names(launch.name)
            last = f" to {rest[-1]}" if rest else ""
            yield f"{second}{last}: the same, each with --dependency=afterany: and the number of the job before it"


def _joined(sent: Sequence[Sent]) -> Sent:
    """Join several launches; each file gets the name of its launch as a folder if there are several."""
    if len(sent) == 1:
        return sent[0]
    files = {f"{s.experiment}/{n}": text for s in sent for n, text in s.files.items()}
    return Sent(sent[0].experiment, sent[0].folder, files)


def _manifest(launch: Launch, cluster: Cluster, payload: Payload) -> Sent:
    """Make the manifest, whose command has the script; only the API server would store it."""
    body = kubeflow.manifest(launch, cluster, payload)
    return Sent(body["metadata"]["name"], cluster.namespace, {f"{body['kind'].lower()}.yaml": kubeflow.text(body)})


def _prepare(
    jobs: Sequence[tuple[Launch, Payload]], cluster: Cluster, base: Path, own: Path, title: str, id: str
) -> None:
    """Run NeMo-Run's own dry run: paths are below `base`, files are written below `own`."""
    experiment = store.new_experiment(title, id, base_dir=str(own))
    with redirect_stdout(sys.stderr), no_input(), experiment:
        for launch, payload in jobs:
            task = executors.task(launch, cluster, payload)
            experiment.add(task, executors.executor(launch, cluster, base), name=_first(launch))
        experiment.dryrun(log=False, delete_exp_dir=False)


def _read(folder: Path, name: str) -> dict[str, str]:
    files = (folder / f"{name}_sbatch.sh", folder / name / "scripts" / f"{name}.sh")
    return {str(f.relative_to(folder)): f.read_text(encoding="utf-8") for f in files if f.exists()}


if TYPE_CHECKING:
    pass


def derived(launch: Launch) -> str:
    """Print what follows from the plan and the cluster, a line each, with the reason and the rule."""
    ranks = f"{launch.nodes} nodes of {launch.ranks_per_node} ranks" if launch.nodes > 1 else f"{launch.world} ranks"
    lines = [f"{launch.name} on {launch.cluster}: {ranks}"]
    for title, settings in (
        ("derived", launch.settings),
        ("ft_launcher", launch.ft_launcher),
        ("srun", launch.srun),
        ("sbatch", launch.sbatch),
        ("pods", launch.pods),
        ("environment of every rank", launch.environment),
    ):
        if settings:
            lines += ["", f"  {title}", *_lines(settings)]
    if launch.secrets:
        lines += ["", f"  secrets, inherited: {', '.join(launch.secrets)}"]
    return "\n".join([*lines, ""])


def _lines(settings: Sequence[Setting]) -> Iterator[str]:
    width = max(len(_said(s)) for s in settings if len(_said(s)) <= _WIDEST) if settings else 0
    for s in settings:
        rule = f"  [{s.rule}]" if s.rule else ""
        yield f"    {_said(s):{width}}  {_line(s.because or '')}{rule}".rstrip()


_WIDEST = 60


def _line(text: str) -> str:
    """Write a reason in one line, without control characters for the terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in " ".join(text.split()))


def _said(s: Setting) -> str:
    """Write `name=value`; control characters are escaped, so that it stays one line."""
    if s.value is True:
        return s.name
    return f"{s.name}={s.text}" if s.text.isprintable() else f"{s.name}={s.text!r}"


def sent(s: Sent) -> str:
    """Write every file after a line with its name, and then a line for the further jobs of each chain."""
    below = f"{s.folder}/" if s.folder else ""
    head = [f"experiment {s.experiment}\n"] if s.experiment else []
    files = (f"==> {below}{name}\n{text}" for name, text in s.files.items())
    return "\n".join([*head, *files, *(f"==> {line}\n" for line in s.more)])
