"""Derive a launch: nodes, ranks, environment and scheduler arguments, each with its rule.

The last functions map paths inside a job to paths on the node, through the mounts of its container.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import attrs
from attrs import frozen

from moedsl.emit.settings import function_name
from moedsl.facts.axes import SETS
from moedsl.facts.facts import Hardware
from moedsl.facts.symbols import HARDWARE, VLM_WORDS
from moedsl.planner.plan import Plan
from moedsl.rules.check import cluster_reader, cluster_rules
from moedsl.rules.check.cluster_facts import Cluster
from moedsl.rules.check.cluster_reader import Setting
from moedsl.rules.check.cluster_rules import Book
from moedsl.rules.evaluators import evaluate, holds
from moedsl.rules.evaluators import names as names_in
from moedsl.rules.library import Library
from moedsl.rules.recipe_scope import UNSET
from moedsl.rules.rule import Rule
from moedsl.rules.stdlib import RuleId
from moedsl.support.diagnostics import Diagnostic, error, warning


def derive(plan: Plan, cluster: Cluster, library: Library) -> tuple[Launch | None, list[Diagnostic]]:
    """Derive the launch of a plan on a cluster (docs/internals.md), and report diagnostics.

    If any is an error, the launch is None; broken advice is a warning.
    """
    book, found = cluster_rules.read(library)
    hardware, more = library.gpu(plan.hardware)
    found += more
    if hardware is None or any(d.is_error for d in found):
        return None, found
    of = _names(plan, cluster, cluster.machine(hardware), book)
    if cluster.hardware and (own := library.gpu(cluster.hardware)[0]) is not None:
        of["cluster.hardware"] = own.kind
    settings, variables = _apply(book.rules, of, found)
    if any(d.is_error for d in found):
        return None, found

    def number(name: str) -> int:
        return int(settings[name].value) if name in settings else 0

    def of_option(prefix: str) -> tuple[Setting, ...]:
        own = (s for s in settings.values() if s.name.startswith(prefix))
        return tuple(attrs.evolve(s, name=s.name.removeprefix(prefix).replace("_", "-")) for s in own)

    of_cluster = [(n.lstrip("-"), text) for n, _, text in (a.partition("=") for a in cluster.srun_args)]
    own_srun = {n: Setting(n, text or True, "cluster", None, "`srun_args` of the cluster") for n, text in of_cluster}
    jobs = number("jobs")
    launch = Launch(
        name=job_name(plan),
        cluster=cluster.name,
        executor=cluster.executor,
        nodes=int(of["nodes"]),
        gpus_per_node=min(int(of["gpus_per_node"]), int(plan.gpus)),
        tasks_per_node=int(of["tasks_per_node"]),
        ranks_per_node=int(of["ranks_per_node"]),
        numa_binding="numa_binding" in settings,
        cores_per_rank=number("cores_per_rank"),
        segment=number("segment"),
        spare_nodes=cluster.spare_nodes,
        ft_launcher=of_option("ft_launcher."),
        chain=Chain(jobs, plan.train_steps, plan.set["checkpoint.save"]) if jobs > 1 else None,
        network=of["network"],
        nvlink=of["nvlink"] if of["nvlink_domain"] >= of["gpus_per_node"] > 1 else 0.0,
        environment=tuple(_environment(plan, cluster, variables)),
        srun=(*(s for s in of_option("srun.") if s.name not in own_srun), *own_srun.values()),
        sbatch=tuple(s for s in of_option("sbatch.") if s.name not in cluster.sbatch),
        pods=tuple(attrs.evolve(s, name=n.removeprefix("pod.")) for n, s in settings.items() if n.startswith("pod.")),
        settings=tuple(s for s in settings.values() if "." not in s.name),
        secrets=cluster.secrets,
    )
    wrong = [*cluster_reader.of_this_machine(launch.environment)] if cluster.executor == "local" else []
    folder = plan.set.get("checkpoint.save", None if plan.policy.data == "mock" else "")
    shared = not isinstance(folder, str) or folder.startswith("/") or "://" in folder
    if cluster.executor == "kubeflow" and not shared:  # the folder is in the pod's own file system
        said = f"checkpoint.save is {folder}" if folder else "checkpoint.save is not set"
        help = (_way_in("/checkpoints", cluster), "write it as `set checkpoint.save`; `none` there saves nothing")
        wrong.append(error("launch.checkpoints", said=said, help=help))
    return None if wrong else launch, found + wrong


def _names(plan: Plan, cluster: Cluster, hardware: Hardware, book: Book) -> dict[str, Any]:
    """Return the value of each name that a rule may use; a Bridge field that the run does not set is `UNSET`."""
    unset = dict.fromkeys(book.scope, UNSET)
    facts = {n: getattr(hardware, n) for n in HARDWARE if hasattr(hardware, n)} | {"hardware": hardware.kind}
    policy = {n: frozenset(v) if n in SETS else v for n, v in plan.policy.to_json().items()}
    towers = frozenset(n for n in VLM_WORDS if getattr(plan.policy, n))
    data = "mock" if plan.policy.data == "mock" else "real"
    run = {"gpus": plan.gpus, "phase": plan.phase, "task": plan.task, "vlm": towers, "data": data}
    interval, saves = plan.estimate.interval, plan.checkpoints
    times = {
        "step_time_high": interval.upper_s if interval else plan.estimate.step_time_s,
        "save_time": saves.write_s if saves else 0.0,
        "time_limit": seconds(cluster.time),
        "train_steps": plan.train_steps,
        "goodput": saves.goodput.trains if saves else 1.0,
        "failure_time": saves.failure_every_s if saves else 0.0,
    }  # times are in seconds
    known = unset | facts | plan.layout.to_json() | plan.batch.to_json() | policy | run
    return known | dict(plan.set) | times | cluster_rules.values(cluster)


def seconds(time: str) -> int:
    """Convert a Slurm time limit to seconds: minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS; 0 is no limit."""
    days, dash, rest = time.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    first = 3600 if dash or len(parts) == 3 else 60
    return 86400 * int(days or 0) + sum(part * first // 60**place for place, part in enumerate(parts))


Settings = dict[str, Setting]


def _apply(book: Iterable[Rule], of: dict[str, Any], found: list[Diagnostic]) -> tuple[Settings, Settings]:
    """Apply the rules in order, and return the settings and environment variables that they derive.

    Derived settings are also added to `of`, the values that later rules use; broken rules are added to `found`. If
    several `derive` or `env` rules for a name apply, the first wins, but the user's rules win over the stdlib's.
    """
    settings, variables = Settings(), Settings()
    for rule in book:
        if not holds(rule.when, of):
            continue
        if rule.kind == "let":
            of[rule.name] = evaluate(rule.expr, of)
        elif rule.kind in ("derive", "env"):
            known = settings if rule.kind == "derive" else variables
            first = known.get(rule.name)
            if first is not None and (rule.is_std or not str(first.rule).startswith("std.")):
                continue
            value = evaluate(rule.expr, of)
            whole = int(value) if isinstance(value, float) and value.is_integer() else value
            made = known[rule.name] = Setting(rule.name, whole, "rule", rule.id, rule.because, rule.cites)
            if rule.kind == "derive":
                of[rule.name] = whole
                wrong = cluster_reader.value(rule, made.text)
                found += [wrong] if wrong else []
        elif rule.kind in ("require", "prefer") and not holds(rule.expr, of):
            found.append(_broken(rule, of))
    return settings, variables


def _broken(rule: Rule, of: Mapping[str, Any]) -> Diagnostic:
    """Report a `require` or `prefer` rule that does not hold, with the value of each name in its expression."""
    values = {n: of[n] for n in sorted(names_in(rule.expr)) if n in of}
    worth = {n: sorted(v) if isinstance(v, frozenset) else v for n, v in values.items() if v is not UNSET}
    written = {n: "+".join(v) or "none" if isinstance(v, list) else str(v) or '""' for n, v in worth.items()}
    said = ", ".join(f"{n} is {written.get(n, 'not set')}" for n in values)
    make = error if rule.kind == "require" else warning
    return make(rule.id, said, rule.span, because=rule.because, cites=rule.cites, values=worth,
                help=_HELP.get(rule.id, ()))  # fmt: skip


_ALLTOALL = "pin dispatcher=alltoall, which uses NCCL, or an ep that keeps an expert group on NVLink"
_HELP: Mapping[str, str] = {
    RuleId.LAUNCH_HARDWARE: "run on another cluster, or plan for its GPUs: layout, precision and memory change",
    RuleId.LAUNCH_WHOLE_NODES: "ask for a multiple of a node's GPUs",
    RuleId.LAUNCH_ENOUGH_NODES: "plan with fewer GPUs, or raise `nodes` of the cluster if it allows more",
    RuleId.CHECKPOINTS_OUTLIVE: 'write `set checkpoint.save = "/a/folder"`; the recipe loads from there too',
    RuleId.PODS_THAT_FAIL: (
        "submit the run again after each failure: it goes on from the last checkpoint. The runtime of a TrainJob may "
        "state restarts"
    ),
    RuleId.EXPERTS_BY_RDMA: _ALLTOALL,
    RuleId.EXPERTS_ON_EFA: f"{_ALLTOALL}; or try it in a short run first",
    RuleId.SEGMENT_HYBRIDEP: "pin a smaller ep, use another number of nodes, or pin dispatcher=alltoall",
    RuleId.SEGMENT_EXPERT_GROUPS: "pin a smaller ep, or use another number of nodes",
}


def _environment(plan: Plan, cluster: Cluster, of_launch: Settings) -> list[Setting]:
    """Return every variable once, sorted; the cluster overrides the launch rules, which override the plan."""
    why = {d.name: d for d in plan.decisions}
    every = Settings()
    for name, value in plan.env.items():
        d = why.get(name) or why.get(f"env.{name}")
        every[name] = Setting(name, value, "plan", d and d.rule, d and d.because, d.cite if d else ())
    every |= of_launch
    for name, text in cluster.env.items():
        derived = every.get(name)
        instead = f"; {derived.rule} gives {derived.text}" if derived and derived.rule and derived.text != text else ""
        every[name] = Setting(name, text, "cluster", None, f"stated by cluster {cluster.name}{instead}")
    return [s for _, s in sorted(every.items())]


def job_name(plan: Plan) -> str:
    """Return the job's name: the name of the recipe's function, then the run's name unless it is `main`.

    Every character that a shell could interpret becomes ``-``.
    """
    run = "" if plan.name == "main" else f".{plan.name}"
    return re.sub(r"[^A-Za-z0-9_.-]", "-", function_name(plan).removesuffix("_config") + run)


@frozen
class Chain:
    """A chain of jobs, each of which resumes from the last checkpoint, until the run is complete."""

    jobs: int
    steps: int
    folder: str
    """The folder where the run saves its checkpoints."""

    def names(self, launch: str) -> list[str]:
        """Return the names of the jobs; chain.py reads the number at the end of each."""
        return [f"{launch}.{number}" for number in range(1, self.jobs + 1)]


@frozen
class Launch:
    """One job on one cluster, independent of the machine that submits it."""

    name: str
    """The name of the job and of its experiment: letters, digits, ``_``, ``.`` and ``-``."""
    cluster: str
    executor: str
    nodes: int
    gpus_per_node: int
    """GPUs that the job takes on each node."""
    tasks_per_node: int
    """Processes that the scheduler starts on each node."""
    ranks_per_node: int
    numa_binding: bool
    """Whether each rank is bound to the NUMA node of its GPU."""
    cores_per_rank: int
    """CPU cores for each rank; 0 means all cores of the NUMA node."""
    segment: int
    """Number of nodes in a segment, which is within one NVLink domain; 0 requests no segments."""
    spare_nodes: int
    """Nodes that wait to replace a lost one."""
    environment: tuple[Setting, ...]
    ft_launcher: tuple[Setting, ...]
    """The arguments of ft_launcher; empty if srun or torchrun starts the ranks."""
    srun: tuple[Setting, ...]
    sbatch: tuple[Setting, ...]
    pods: tuple[Setting, ...]
    """Derived settings for pods, in addition to the cluster's facts."""
    settings: tuple[Setting, ...]
    """Every other derived setting, such as `nodes`, with its rule."""
    secrets: tuple[str, ...]
    chain: Chain | None = None
    network: float = 0.0
    """Network bandwidth of a GPU in bytes/s, as the hardware states it."""
    nvlink: float = 0.0
    """NVLink bandwidth of a GPU in one direction in bytes/s; 0 if NVLink does not connect all GPUs of the node."""

    @property
    def allocated(self) -> int:
        """The number of nodes of the job, including spare ones."""
        return self.nodes + self.spare_nodes

    @property
    def world(self) -> int:
        """The number of ranks of the job."""
        return self.nodes * self.ranks_per_node

    @property
    def starts_ranks(self) -> bool:
        """Whether the scheduler starts each rank; otherwise torchrun or ft_launcher starts the ranks of each node."""
        return self.executor == "slurm" and self.tasks_per_node == self.ranks_per_node and not self.ft_launcher

    @property
    def variables(self) -> dict[str, str]:
        """The environment of every rank."""
        return {s.name: s.text for s in self.environment}


_SETTINGS = ("environment", "ft_launcher", "srun", "sbatch", "pods", "settings")


def to_json(launch: Launch) -> dict[str, Any]:
    """Convert a launch to JSON (docs/internals.md)."""
    out = attrs.asdict(launch, recurse=False, filter=lambda a, _: a.name not in _SETTINGS)
    out["chain"] = attrs.asdict(launch.chain) if launch.chain else None
    for name in _SETTINGS:
        each = (attrs.asdict(s, recurse=False) for s in getattr(launch, name))
        out[name] = [{k: v for k, v in s.items() if k != "cites"} | {"cite": list(s["cites"])} for s in each]
    return out | {"secrets": list(launch.secrets)}


def node_path(path: str, cluster: Cluster) -> str | None:
    """Map a path in the job to a path on the node; None if no mount contains it."""
    if not cluster.container:
        return path
    for mount in sorted(cluster.mounts, key=lambda m: -len(m.split(":")[1])):
        source, target = mount.split(":")[:2]
        if PurePosixPath(path).is_relative_to(target):
            return str(PurePosixPath(source) / PurePosixPath(path).relative_to(target))
    return None


def unmounted_paths(paths: Sequence[str], cluster: Cluster) -> list[Diagnostic]:
    """Report paths that the container cannot see; it sees those on a Kubernetes cluster's persistent volume."""
    targets = [m.split(":")[1] for m in cluster.mounts] + ([cluster.pvc_path] if cluster.pvc else [])
    said = {"cluster": cluster.name, "mounts": ", ".join(targets) or "nothing"}
    found: list[Diagnostic] = []
    for path in paths:
        on_claim = cluster.pvc and PurePosixPath(path).is_relative_to(cluster.pvc_path)
        if node_path(path, cluster) is None and not on_claim:
            found.append(error("preflight.path:mount", path=path, help=_way_in(path, cluster), **said))
    return found


_AT_ROOT = "move it into a folder that the cluster mounts"


def _way_in(path: str, cluster: Cluster) -> str:
    """Suggest how to make a path visible in the container."""
    if cluster.pvc:
        there = PurePosixPath(cluster.pvc_path, path.lstrip("/"))
        return f"name a folder of the claim {cluster.pvc}, which is mounted at {cluster.pvc_path}: {there}"
    if not path.startswith("/"):
        return f"a job runs in another folder: write the absolute path of {path}"
    if cluster.executor != "kubeflow":
        # a data set is named by the prefix of its files, and a folder to save to need not exist yet
        folder = PurePosixPath(path).parent
        return f'add its folder to the cluster: mounts ["{folder}:{folder}"]' if folder.name else _AT_ROOT
    top = "/" + path.lstrip("/").partition("/")[0]
    return (
        f'add the claim that has it to the cluster: pvc "CLAIM"; pvc_path "{top}". '
        f'If all nodes share that folder: mounts ["{top}:{top}"]'
    )
