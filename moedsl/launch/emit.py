"""Write launch.py and job.sh: a NeMo-Run script to keep and edit, which submits the same bytes as `moedsl run`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from moedsl.facts.values import quoted
from moedsl.launch import experiment_dirs, head, kubeflow, slurm
from moedsl.launch.derive import Launch
from moedsl.launch.script import END, Payload, script
from moedsl.planner.model.plan import Plan
from moedsl.rules.check.clusters.facts import Cluster

if TYPE_CHECKING:
    from jinja2 import Template

FILES_LINE = "# launch.py puts the recipe here."
_WIDTH = 112


@frozen
class Argument:
    """One argument of the executor: its reasons as comments, its name, its value in Python."""

    reasons: tuple[str, ...]
    name: str
    value: str


def files(launch: Launch, cluster: Cluster, plan: Plan) -> dict[str, str]:
    """Return the texts by file name, for the folder of recipe.py."""
    own = evolve(cluster, python=cluster.python or "python3")
    text = script(launch, own, head.with_head(Payload({"recipe.py": f"{FILES_LINE}\n"}), plan, launch, own))
    before, _, rest = text.partition('cat > "$MOEDSL_FILES/recipe.py"')
    job = before + FILES_LINE + "\n" + rest.partition(f"\n{END}\n")[2]  # launch.py puts the recipe there
    return {"launch.py": _launch_py(launch, cluster), "job.sh": job}


def _launch_py(launch: Launch, cluster: Cluster) -> str:
    return _template().render(
        name=launch.name,
        cluster=cluster.name,
        cluster_line=literal(cluster.name),
        letters=literal(experiment_dirs.MARK_LETTERS),
        length=experiment_dirs.MARK_LENGTH,
        ranks=launch.world,
        jobs=launch.chain.jobs if launch.chain else 0,
        home=literal(cluster.job_dir) if cluster.tunnel == "local" and cluster.job_dir else "",
        executor=launch.executor,
        kind={"local": "LocalExecutor", "slurm": "SlurmExecutor", "kubeflow": "KubeflowExecutor"}[cluster.executor],
        ssh=[Argument((), n, literal(v)) for n, v in slurm.ssh(cluster).items()] if cluster.tunnel == "ssh" else [],
        arguments=[*_arguments(launch, cluster)],
        files_line=literal(FILES_LINE + "\n"),
        end=literal(END),
    )


def _arguments(launch: Launch, cluster: Cluster) -> Iterator[Argument]:
    """The executor's arguments, each with the reasons of its derived values; none on this machine."""
    said = {"slurm": slurm.arguments, "kubeflow": kubeflow.arguments}.get(launch.executor)
    for name, value in said(launch, cluster).items() if said else ():
        yield Argument(tuple(_reasons(launch, name)), name, literal(value))


def _reasons(launch: Launch, name: str) -> Iterator[str]:
    """Yield the rules of an argument, one short line each."""
    of = {s.name: s for s in (*launch.settings, *launch.sbatch)}
    behind = _RENAMED.get(name, name)
    settings = launch.srun if name == "srun_args" else [of[behind]] if behind in of else []
    for s in settings:
        said = f"{s.name}: {s.because}" if name == "srun_args" else str(s.because)
        yield textwrap.shorten(f"{said} [{s.rule}]", _WIDTH, placeholder=" ...")


_RENAMED = {
    "ntasks_per_node": "tasks_per_node",
    "nprocs_per_node": "ranks_per_node",
    "num_nodes": "nodes",
    "gres": "gpus_per_node",
    "signal": "preempt_time",
    "setup_lines": "requeue",
}
"""Arguments of NeMo-Run that a rule derives under another name."""


def literal(value: Any) -> str:
    """Write a plain value in Python, in ASCII and double quotes."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{literal(k)}: {literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(literal, value)) + "]"
    return repr(value)


@cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    # Python source, not HTML: every value is a literal or a cleaned comment before it gets here
    env = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    return env.get_template("launch.py.j2")
