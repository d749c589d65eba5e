"""Show a launch and exactly the bytes that would be submitted, or write them as launch.py and job.sh.

Nothing is submitted: NeMo-Run writes its files to a temporary folder. launch.py is a NeMo-Run script to keep and edit;
it submits the same bytes as `moedsl run`.
"""

from __future__ import annotations

import re
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from moedsl.facts.values import quoted
from moedsl.launch import executors, kubeflow, local, store
from moedsl.launch.derive import Launch, seconds
from moedsl.launch.nemo import no_input
from moedsl.launch.script import END, Payload, script, with_preflight
from moedsl.planner.plan import Plan
from moedsl.rules.check.cluster_facts import Cluster
from moedsl.support.text import counted


@frozen
class Sent:
    """The texts of one launch: `files` by name, in order of use."""

    experiment: str
    """The id that NeMo-Run would give the experiment; empty for this machine."""
    folder: str
    """The folder of the files, as the cluster sees it."""
    files: dict[str, str]
    more: tuple[str, ...] = ()
    """A line about the other jobs of each chain, whose files differ only in names and dependencies."""


def dryrun(jobs: Sequence[tuple[Launch, Payload]], cluster: Cluster, source: str = "") -> Sent:
    """Make the files of jobs that form one experiment, without submitting them.

    A job has an sbatch file and its task's script (Slurm), a manifest (Kubernetes), or a script (this machine).
    `source` names the file that states the jobs. A manifest contains the script; only the API server would store it.
    NeMo-Run's own dry run writes to a temporary folder, but paths inside the files are below the cluster's home.
    """
    files: dict[str, str] = {}
    if cluster.executor == "local":
        return Sent("", "", {f"{launch.name}.sh": local.text(launch, cluster, payload) for launch, payload in jobs})
    if cluster.executor == "kubeflow":
        bodies = [kubeflow.manifest(launch, cluster, payload) for launch, payload in jobs]
        for body in bodies:
            folder = f"{body['metadata']['name']}/" if len(bodies) > 1 else ""
            files[f"{folder}{body['kind'].lower()}.yaml"] = kubeflow.text(body)
        return Sent(bodies[0]["metadata"]["name"], cluster.namespace, files)
    base, title = executors.home(cluster), store.experiment_title([launch.name for launch, _ in jobs], source)
    id = store.first_id(title, base, store.id_ending(base, cluster.tunnel == "ssh"))
    more: list[str] = []
    with tempfile.TemporaryDirectory(prefix="moedsl-dryrun-") as temporary:
        folder = Path(temporary, "experiments", title, id)
        experiment = store.new_experiment(title, id, base_dir=temporary)
        written: list[str] = []
        with redirect_stdout(sys.stderr), no_input(), experiment:
            for launch, payload in jobs:
                name, *others = launch.chain.names(launch.name) if launch.chain else [launch.name]
                task = executors.task(launch, cluster, payload)
                experiment.add(task, executors.executor(launch, cluster, base), name=name)
                written += [f"{name}_sbatch.sh", f"{name}/scripts/{name}.sh"]
                if others:
                    last = f"{others[0]} to {others[-1]}" if len(others) > 1 else others[0]
                    more.append(
                        f"{last}: the same, each with --dependency=afterany: and the number of the job before it"
                    )
            experiment.dryrun(log=False, delete_exp_dir=False)
        files = {name: (folder / name).read_text(encoding="utf-8") for name in written if (folder / name).exists()}
    return Sent(id, f"{executors.remote_dir(cluster, base)}/{title}/{id}", files, tuple(more))


def derived(launch: Launch) -> str:
    """Format what follows from the plan and the cluster, one setting a line, with the reason and the rule."""
    ranks = f"{launch.nodes} nodes of {launch.ranks_per_node} ranks" if launch.nodes > 1 else f"{launch.world} ranks"
    lines = [f"{launch.name} on {launch.cluster}: {ranks}"]
    for title, settings in (
        ("derived", launch.settings), ("ft_launcher", launch.ft_launcher), ("srun", launch.srun),
        ("sbatch", launch.sbatch), ("pods", launch.pods), ("environment of every rank", launch.environment),
    ):  # fmt: skip
        # keep each on one line, without control characters for the terminal
        texts = [s.text if s.text.isprintable() else repr(s.text) for s in settings]
        names = [s.name if s.value is True else f"{s.name}={text}" for s, text in zip(settings, texts, strict=True)]
        width = max((len(name) for name in names if len(name) <= _WIDEST), default=1)
        lines += ["", f"  {title}"] if settings else []
        for name, s in zip(names, settings, strict=True):
            reason = " ".join((s.because or "").split())
            because = "".join(c if c.isprintable() else repr(c)[1:-1] for c in reason)
            rule = f"  [{s.rule}]" if s.rule else ""
            lines.append(f"    {name:{width}}  {because}{rule}".rstrip())
    if launch.secrets:
        source = "from the cluster's Secret" if launch.executor == "kubeflow" else "inherited"
        lines += ["", f"  secrets, {source}: {', '.join(launch.secrets)}"]
    return "\n".join([*lines, ""])


_WIDEST = 60


def sent(s: Sent, full: bool = True) -> str:
    """Format all files, each after a line with its name, then a line for the other jobs of each chain; unless `full`,
    with a line in place of each file that a script writes."""
    below = f"{s.folder}/" if s.folder else ""
    head = [f"experiment {s.experiment}\n"] if s.experiment else []
    files = (f"==> {below}{name}\n{text if full else _HELD.sub(_folded, text)}" for name, text in s.files.items())
    return "\n".join([*head, *files, *(f"==> {line}\n" for line in s.more)])


_HELD = re.compile(rf"^( *)cat > \"\$MOEDSL_FILES/([^\"]+)\" <<'({END}_*)'\n(.*?\n) *\3\n\n?", re.MULTILINE | re.DOTALL)
"""A file in a script: how deep it stands, its name, what ends it, and its text."""


def _folded(file: re.Match[str]) -> str:
    return f"{file[1]}# writes {file[2]}: {counted(file[4].count(chr(10)), 'line')}, which --full prints\n"


KINDS: Mapping[str, Callable[[str], bool]] = {
    "sbatch": lambda name: name.endswith("_sbatch.sh"),
    "script": lambda name: name.endswith(".sh") and not name.endswith("_sbatch.sh"),
    "manifest": lambda name: name.endswith(".yaml"),
}
"""The kinds of files that a launch sends, by their names."""


def lasts(plan: Plan, cluster: Cluster) -> str:
    """Say how long a job may run and what that costs in GPU-hours, and how many steps it trains; empty off Slurm, where
    no job has a limit."""
    if cluster.executor != "slurm":
        return ""
    hours, step = seconds(cluster.time) / 3600, plan.estimate.step_time_s
    limit = f"{hours:,.3g} hours a job at most: {hours * plan.gpus:,.0f} GPU-hours on {counted(plan.gpus, 'GPU')}"
    trained = f"  {limit}, about {hours * 3600 / step:,.0f} steps of {step:.2f} s"
    whole = plan.train_steps * step / 3600
    return trained + (f"; the run's {plan.train_steps:,} take {whole:,.3g} hours\n" if plan.train_steps else "\n")


FILES_LINE = "# launch.py puts the recipe here."
_WIDTH = 112


@frozen
class Argument:
    """One argument of the executor: reasons (written as comments), name, and value as Python source."""

    reasons: tuple[str, ...]
    name: str
    value: str


def emitted_files(launch: Launch, cluster: Cluster, plan: Plan) -> dict[str, str]:
    """Return the texts of launch.py and job.sh by file name; they belong in the folder of recipe.py."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    own = evolve(cluster, python=cluster.python or "python3")
    text = script(launch, own, with_preflight(Payload({"recipe.py": f"{FILES_LINE}\n"}), plan, launch, own))
    before, _, rest = text.partition('cat > "$MOEDSL_FILES/recipe.py"')
    job = before + FILES_LINE + "\n" + rest.partition(f"\n{END}\n")[2]  # launch.py puts the recipe there
    # Python source, not HTML: every value is a literal or a cleaned comment before it gets here
    loader = FileSystemLoader(Path(__file__).parent / "templates")
    jinja = Environment(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    launch_py = jinja.get_template("launch.py.j2").render(
        name=launch.name,
        cluster=cluster.name,
        cluster_line=literal(cluster.name),
        letters=literal(store.MARK_LETTERS),
        length=store.MARK_LENGTH,
        ranks=launch.world,
        jobs=launch.chain.jobs if launch.chain else 0,
        home=literal(cluster.job_dir) if cluster.tunnel == "local" and cluster.job_dir else "",
        executor=launch.executor,
        kind={"local": "LocalExecutor", "slurm": "SlurmExecutor", "kubeflow": "KubeflowExecutor"}[cluster.executor],
        ssh=[Argument((), n, literal(v)) for n, v in executors.ssh_arguments(cluster).items()]
        if cluster.tunnel == "ssh"
        else [],
        arguments=[*_arguments(launch, cluster)],
        files_line=literal(FILES_LINE + "\n"),
        end=literal(END),
    )
    return {"launch.py": launch_py, "job.sh": job}


def _arguments(launch: Launch, cluster: Cluster) -> Iterator[Argument]:
    """Yield the executor's arguments, each with the shortened reasons for its derived values; none for this machine."""
    said = {"slurm": executors.slurm_arguments, "kubeflow": kubeflow.arguments}.get(launch.executor)
    of = {s.name: s for s in (*launch.settings, *launch.sbatch)}
    for name, value in said(launch, cluster).items() if said else ():
        behind = of.get(_RENAMED.get(name, name))
        reasons = [f"{behind.because} [{behind.rule}]"] if behind else []
        if name == "srun_args":
            reasons = [f"{s.name}: {s.because} [{s.rule}]" for s in launch.srun if s.rule]
        short = (textwrap.shorten(reason, _WIDTH, placeholder=" ...") for reason in reasons)
        yield Argument(tuple(short), name, literal(value))


_RENAMED = {
    "ntasks_per_node": "tasks_per_node",
    "nprocs_per_node": "ranks_per_node",
    "num_nodes": "nodes",
    "gres": "gpus_per_node",
    "signal": "preempt_time",
    "setup_lines": "requeue",
}
"""NeMo-Run's arguments, with the derived setting where it has another name."""


def literal(value: Any) -> str:
    """Format a plain value as Python source, in ASCII and double quotes."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{literal(k)}: {literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(literal, value)) + "]"
    return repr(value)
