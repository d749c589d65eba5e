"""Write the script of a job: one bash text with the files that it runs, which a scheduler starts on every task.

The files are a payload: the recipe, or the program that converts weights, and the preflight check. Values are quoted in
ASCII and not by `shlex.quote`: a locale on the way could change a byte that is not ASCII, and NeMo-Run replaces
`RUNDIR` wherever a script has it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from attrs import evolve, field, frozen

from moedsl.facts.families import family
from moedsl.facts.fine_tuning import FIELD, imported
from moedsl.launch.derive import Chain, Launch
from moedsl.launch.in_job.chain import COMPLETE
from moedsl.planner.plan import Plan
from moedsl.rules.check.cluster_facts import Cluster
from moedsl.rules.check.cluster_reader import Setting
from moedsl.support.diagnostics import Diagnostic, error

RANK, RANK_LOG, NUMA, CHAIN = "moedsl_rank.py", "moedsl_rank_log.py", "moedsl_numa.py", "moedsl_chain.py"
"""The names of rank.py, rank_log.py, numa.py and chain.py in a job."""
RANKS = "ranks"
"""The folder of the ranks' own logs, in that of the job."""
END = "MOEDSL_END_OF_FILE"
"""The delimiter of a file inside the script; longer if a line of the file equals it."""
SIGNALS = "HUP INT QUIT TERM USR1 USR2"
"""The signals that a job may get from its scheduler."""
FT_LAUNCHER = "nvidia_resiliency_ext.fault_tolerance.launcher"
SECTIONS = ("setup", "step", "checkpointing")
"""The parts of a run that Bridge reports to ft_launcher, each with a time limit of its own."""
FIRST_PORT, PORTS = 20000, 12000
"""The lowest port; a job adds its number, so that jobs on one node differ. Linux hands out ports from 32768."""


@frozen
class Payload:
    """The files that the ranks run, by name (Python source, or other ASCII text), and the one to start."""

    files: Mapping[str, str]
    entry: str = "recipe.py"
    preflight: str = ""
    """Bash that every task runs before its ranks start, with the files in ``$MOEDSL_FILES``; a failure ends the job."""
    arguments: tuple[str, ...] = field(default=())

    def __attrs_post_init__(self) -> None:
        wrong = [n for n in self.files if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", n)]
        if wrong or self.entry not in self.files:
            raise ValueError(f"a payload's files have plain names and its entry is one of them: {wrong or self.entry}")


def script(launch: Launch, cluster: Cluster, payload: Payload) -> str:
    """Write the script in ASCII, without its first line (``#!``), which NeMo-Run adds. The bytes are reproducible."""
    return "\n".join(_lines(launch, cluster, payload)) + "\n"


def _lines(launch: Launch, cluster: Cluster, payload: Payload) -> Iterator[str]:
    yield f"# {launch.name} on {cluster.name}: {launch.nodes} x {launch.ranks_per_node} ranks. Written by moedsl."
    yield "set -euo pipefail"
    yield ""
    documents = [
        _document(name, text) for name, text in sorted({**payload.files, **_programs(launch, cluster)}.items())
    ]
    yield from _removed(documents) if launch.executor == "slurm" else [_MAKE.format("-d"), *documents]
    yield "# Environment"
    if cluster.env_script:
        path = word(cluster.env_script)
        yield f'[ -r {path} ] || {{ echo "moedsl preflight: env_script {path} cannot be read" >&2; exit 79; }}'
        yield f"set +eu; . {path}; set -eu  # the variables below win"
    yield from (_variable(launch, s) for s in launch.environment)
    if cluster.rank_logs:
        yield f"export MOEDSL_RANK_LOGS={RUNDIR}/{RANKS}  # NeMo-Run puts the folder of the job there"
    yield from _secrets(launch.secrets)
    yield ""
    yield from _ranks(launch)
    if launch.chain:
        yield "# The chain: nothing to do in a complete run, and an end after jobs that saved nothing."
        yield f'code=0; {_chain(launch.chain, cluster)} || code="$?"'
        yield f'[ "$code" -ne {COMPLETE} ] || exit 0'
        yield '[ "$code" -eq 0 ] || exit "$code"'
        yield ""
    if payload.preflight:
        yield "# Preflight."
        yield payload.preflight.rstrip("\n")
        yield ""
    python = _python(cluster)
    if launch.starts_ranks:  # this task is one rank; else torchrun or ft_launcher starts those of the node
        yield from _watched(_rank(launch, python, payload) + "".join(f" {word(a)}" for a in payload.arguments))
    else:
        yield from _torchrun(launch, python, payload)
    if launch.chain:
        yield "# The chain: its last job fails if the run is not complete."
        judge = f"{_chain(launch.chain, cluster)} {launch.chain.jobs}"
        yield f'[ "$code" -ne 0 ] || [ "$SLURM_PROCID" -ne 0 ] || {judge} || code="$?"'
    if launch.executor == "slurm" or _signals_ranks(launch):
        yield 'exit "$code"'


def _document(name: str, text: str) -> str:
    """Write lines that put `text` into a file of the job, without expansion, in ASCII: only comments and docstrings of
    Python can have other characters, which are escaped. The delimiter grows until no line of the text equals it.
    """
    ended = text if text.endswith("\n") else text + "\n"
    ended, delimiter = ended.encode("ascii", "backslashreplace").decode("ascii"), END
    while delimiter in ended.splitlines():
        delimiter += "_"
    return f"cat > \"$MOEDSL_FILES/{name}\" <<'{delimiter}'\n{ended}{delimiter}\n"


def _chain(chain: Chain, cluster: Cluster) -> str:
    """Write the command that judges the start of a job, or, with the number of jobs, its end."""
    return f'{_python(cluster)} "$MOEDSL_FILES/{CHAIN}" {word(chain.folder)} {chain.steps}'


def _removed(documents: Sequence[str]) -> Iterator[str]:
    """Write the files into a folder that goes with this shell, at whatever moment a signal ends it.

    The shell knows the name before the folder exists, and removes it only when the process that makes it has ended,
    which hears no signals.
    """
    yield _MAKE.format("-u")
    yield """trap 'wait "${maker:-$!}" 2> /dev/null || true; rm -rf "$MOEDSL_FILES"' EXIT"""
    yield f'(trap "" {SIGNALS}'
    yield 'mkdir -m 700 "$MOEDSL_FILES"'
    yield from documents
    yield ") &"
    yield 'maker="$!"'
    yield 'wait "$maker"'


_MAKE = 'MOEDSL_FILES="$(mktemp {} "${{TMPDIR:-/tmp}}/moedsl.XXXXXXXX")"\nreadonly MOEDSL_FILES'


def _programs(launch: Launch, cluster: Cluster) -> dict[str, str]:
    """The programs around a rank, by the names of their files."""
    sources = {RANK: "rank.py"}
    sources |= {RANK_LOG: "rank_log.py"} if cluster.rank_logs or launch.executor == "local" else {}
    sources |= {NUMA: "numa.py"} if launch.numa_binding else {}
    sources |= {CHAIN: "chain.py"} if launch.chain else {}
    return {name: files("moedsl.launch.in_job").joinpath(source).read_text("utf-8") for name, source in sources.items()}


def _variable(launch: Launch, s: Setting) -> str:
    """Export a variable. On this machine the shell's value overrides it; on a cluster it would be the login node's."""
    line = f"export {s.name}={word(s.text)}"
    return f'[ -n "${{{s.name}+set}}" ] || {line}' if launch.executor == "local" and s.origin != "cluster" else line


def _secrets(names: tuple[str, ...]) -> Iterator[str]:
    """Export inherited secrets; a job that misses one ends here, not an hour later."""
    if names:
        yield ""
        yield "# Secrets: inherited, written nowhere."
    for name in names:
        yield f'if [ -z "${{{name}:-}}" ]; then echo "secret {name} is not set in this job" >&2; exit 78; fi'
        yield f"export {name}"


def _ranks(launch: Launch) -> Iterator[str]:
    """Export which rank this is; torchrun does this for the processes that it starts."""
    if launch.executor != "slurm":
        return
    yield "# Where the ranks meet: the node of the first, at a port of this job."
    yield 'export MASTER_ADDR="${SLURM_LAUNCH_NODE_IPADDR:?not a step of a Slurm job}"'
    yield f'export MASTER_PORT="$(({FIRST_PORT} + SLURM_JOB_ID % {PORTS}))"'
    if launch.starts_ranks:
        yield 'export RANK="$SLURM_PROCID" WORLD_SIZE="$SLURM_NTASKS" LOCAL_RANK="$SLURM_LOCALID"'
        yield f'export LOCAL_WORLD_SIZE="{launch.ranks_per_node}" NODE_RANK="$SLURM_NODEID"'
    yield ""


def _python(cluster: Cluster) -> str:
    return word(cluster.python) if cluster.python else "python3"


def _rank(launch: Launch, python: str, payload: Payload) -> str:
    """Write the command of one rank, without its arguments."""
    run = f'{python} -u "$MOEDSL_FILES/{RANK}" "$MOEDSL_FILES/{payload.entry}"'
    cores = f"--cores={launch.cores_per_rank} " if launch.cores_per_rank else ""
    return f'{python} "$MOEDSL_FILES/{NUMA}" {cores}{run}' if launch.numa_binding else run


def _torchrun(launch: Launch, python: str, payload: Payload) -> Iterator[str]:
    """Write the command of torchrun or of ft_launcher, which is made from it.

    Both fill macros into arguments, so the dollars of these are doubled.
    """
    doubled = "".join(f" {word(a.replace('$', '$$'))}" for a in payload.arguments)
    run = f"--no-python {_rank(launch, python, payload)}"
    options = "".join(f" {option}" for option in _fault_tolerance(launch))
    module = FT_LAUNCHER if options else "torch.distributed.run"
    command = f"{python} -P -m {module} {_meeting(launch)}{options} \\\n  {run}{doubled}"
    if launch.executor == "slurm" or _signals_ranks(launch):
        yield from _watched(command, _RANKS if _signals_ranks(launch) else "")
    else:
        yield f"exec {command}"


def _signals_ranks(launch: Launch) -> bool:
    return any(s.name == "signal_ranks" and s.value for s in launch.settings)


def _fault_tolerance(launch: Launch) -> list[str]:
    """Write the arguments of ft_launcher: one for the time limits of Bridge's sections, one for each other setting."""
    of = {s.name: s.text for s in launch.ft_launcher}
    sections = ",".join(f"{name}:{of.pop(name)}" for name in SECTIONS if name in of)
    said = ({"ft-rank-section-timeouts": sections} if sections else {}) | of
    return [word(f"--{name}={value}") for name, value in said.items()]


_CHILDREN = (
    "  for tries in {1..100}; do",
    '    [ "${#to[@]}" -eq 0 ] && [ -r "/proc/$group/task/$group/children" ] || break',
    '    read -r -a to < "/proc/$group/task/$group/children" || [ "${#to[@]}" -gt 0 ] || sleep 0.02 || true',
    "  done",
)
"""Read the number of the rank, of torchrun or of ft_launcher into `to`, once it has one.

The signal would end the processes that a rank started: PyTorch's data loaders, whose end fails the rank, and the writer
of checkpoints, for which it then waits without end. The monitors of ft_launcher would end too, and fail their ranks.
"""
_RANKS = 'for file in "$MOEDSL_FILES"/.rank.*; do read -r number < "$file" && to+=("$number"); done'
"""Read the numbers of the ranks of torchrun or ft_launcher, which rank.py writes, into `to`."""


def _watched(command: str, told: str = "") -> Iterator[str]:
    """Run the command, forward its signals, report its end, and then remove the files.

    Slurm sends a signal to the process that it started, which is this shell. If it tracks processes by their parents,
    it also sends it to the command, which then gets it twice. The shell forwards it to the processes whose numbers
    `told` reads, if any, else to the command alone, and to its group where the kernel lists no children. A command that
    runs may be ready before the shell has gone on, so the shell hears signals before it starts the command. In a
    container of Kubernetes, the files go with the container, so a command that hears them all takes the place of this
    shell; so it does on this machine, where TMPDIR is removed afterwards.

    No trap has a substitution of a command: bash 5.2 ends with a syntax error if a signal comes while it reads one.
    """
    yield "# The process has the signals that this shell gets, and its end is this shell's, which removes the files."
    yield f'signals="{SIGNALS}" group="" early=""'
    yield "tell() {"
    yield "  local to=() file number tries"
    yield '  [ -n "$group" ] || { early="$early $1"; return 0; }'
    yield from [f"  {told}"] if told else []
    yield from _CHILDREN
    yield '  kill -s "$1" -- "${to[@]:--$group}" || true'
    yield "} 2> /dev/null"
    yield 'for signal in $signals; do trap "tell $signal" "$signal"; done'
    yield "set -m"
    yield f"""(trap : $signals; code=0; {command} || code="$?"; echo "$code" > "$MOEDSL_FILES/.end") &"""
    yield 'group="$!"'
    yield 'for signal in $early; do tell "$signal"; done'
    yield _WATCH.rstrip("\n")


_WATCH = """while kill -0 "$group" 2> /dev/null; do wait "$group" 2> /dev/null || true; done
trap "" $signals  # for what is started below too
read -r code 2> /dev/null < "$MOEDSL_FILES/.end" || code=137
if [ "$code" -gt 128 ]; then
  rm -rf "$MOEDSL_FILES"
  name="$(kill -l "$code")"
  if [ -n "${RANK:-}" ] && [[ " $signals " != *" $name "* ]]; then  # a rank that nobody told to end
    echo "moedsl: rank $RANK on $(uname -n) failed at $(date -u +%FT%T.%3N+00:00): killed by SIG$name" >&2
  fi
  ulimit -c 0
  trap - $signals
  kill -s "$((code - 128))" "$$"
fi
"""
"""The lines after the command. The exit code is in a file: bash's `wait` forgets it if several signals arrive."""


def _meeting(launch: Launch) -> str:
    """The arguments of torchrun: the number of processes, and where they meet."""
    if launch.executor == "local":
        return f"--standalone --nproc-per-node={launch.world}"
    meet = (
        "--rdzv-backend=c10d --rdzv-endpoint=$MASTER_ADDR:$MASTER_PORT --rdzv-id=$SLURM_JOB_ID"
        " --rdzv-conf=is_host=$((SLURM_NODEID == 0))"
    )
    if launch.executor == "kubeflow":
        meet = "--node-rank=$PET_NODE_RANK --master-addr=$PET_MASTER_ADDR --master-port=$PET_MASTER_PORT"
    return f"--nnodes={launch.nodes} --nproc-per-node={launch.ranks_per_node} {meet}"


def refusal(text: str, has_container: bool) -> Diagnostic | None:
    """Refuse a file whose text NeMo-Run would change, because it replaces a path in it."""
    if has_container or RUNDIR not in text:
        return None
    return error("launch.reserved_path", rundir=RUNDIR)


RUNDIR = "/nemo_run"
"""NeMo-Run replaces this path everywhere in a script if the job has no container (nemo_run
core/execution/slurm.py:1108, config.py:492)."""
_PLAIN = re.compile(r"[A-Za-z0-9_.,:/@%+=-]+")
_SHORT = {ord("\n"): r"\n", ord("\t"): r"\t", ord("\r"): r"\r", ord("\\"): r"\\", ord("'"): r"\'"}


def word(text: str) -> str:
    r"""Write `text` as one word of bash: unchanged, or as ``$'...'`` with everything except plain ASCII escaped.

    Raises ValueError for a NUL, which no argument and no variable can hold.
    """
    if "\0" in text:
        raise ValueError("a NUL cannot stand in a word of bash")
    if _PLAIN.fullmatch(text) and RUNDIR not in text:
        return text
    escaped = (
        _SHORT.get(b) or (chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in text.encode("utf-8", "surrogateescape")
    )
    return "$'" + "".join(escaped).replace(RUNDIR, r"\057" + RUNDIR[1:]) + "'"


PROGRAM, EXPECTED = "preflight.py", "preflight.json"
NODES, NODES_EXPECTED = "node_check.py", "node_check.json"
_WEIGHT = re.compile(r"[0-9.eE+-]+")
_BUFFERS = {"deepep": "Buffer", "hybridep": "HybridEPBuffer"}
"""The name that Megatron-Core imports from deep_ep for each backend (core transformer/moe/fused_a2a.py:11, :271)."""


def with_preflight(payload: Payload, plan: Plan, launch: Launch, cluster: Cluster) -> Payload:
    """Add the check and its expectations to a payload, and the check of the nodes if the cluster has it."""
    made = _with_check(payload, cluster, PROGRAM, "head_check.py", EXPECTED, preflight_expectations(plan, launch))
    if not cluster.node_check:
        return made
    return _with_check(made, cluster, NODES, "node_check.py", NODES_EXPECTED, node_expectations(plan, launch))


def _with_check(
    payload: Payload, cluster: Cluster, name: str, source: str, asks: str, expected: dict[str, Any]
) -> Payload:
    more = {name: files("moedsl.launch.in_job").joinpath(source).read_text(encoding="utf-8"),
            asks: json.dumps(expected, indent=1) + "\n"}  # fmt: skip
    python = word(cluster.python) if cluster.python else "python3"
    start = f'{python} "$MOEDSL_FILES/{name}" "$MOEDSL_FILES/{asks}" || exit "$?"\n'
    return evolve(payload, files={**payload.files, **more}, preflight=payload.preflight + start)


def node_expectations(plan: Plan, launch: Launch) -> dict[str, Any]:
    """The expectations that node_check.py reads; without a folder of checkpoints it writes where the job starts."""
    folder = plan.set.get("checkpoint.save")
    rates = {"network": launch.network, "nvlink": launch.nvlink}
    return {"gpus": launch.gpus_per_node, **rates, "folder": str(folder or ".")}


def preflight_expectations(plan: Plan, launch: Launch) -> dict[str, Any]:
    """The expectations that head_check.py reads."""
    device = plan.device
    gpu = {"count": launch.ranks_per_node, "name": gpu_word(device.name), "capability": list(device.capability),
           "memory": device.memory}  # fmt: skip
    needs = [{"product": n.product, "at_least": n.at_least, "because": n.because} for n in plan.needs]
    target = plan.target.to_json()
    return {
        "target": target,
        "needs": needs,
        "modules": needed_modules(plan),
        "gpus": gpu,
        "paths": input_paths(plan),
        "checkpoints": input_checkpoints(plan),
        "hf": plan.hf,
        "revision": plan.revision,
    }


def gpu_word(name: str) -> str:
    """The word of a device's name that identifies the GPU: H100 of `NVIDIA H100 80GB HBM3`, else the last."""
    words = re.split(r"[^A-Za-z0-9]+", name)
    return next((w for w in words if re.fullmatch(r"[A-Z]+\d+[A-Z]*", w)), words[-1])


def needed_modules(plan: Plan) -> list[dict[str, str]]:
    """List the packages that the plan's dispatcher calls, in addition to Bridge's own."""
    dispatcher = plan.policy.dispatcher
    if dispatcher not in _BUFFERS:
        return []
    return [{"module": "deep_ep", "attribute": _BUFFERS[dispatcher], "because": f"dispatcher={dispatcher}"}]


def input_paths(plan: Plan) -> list[str]:
    """Data, checkpoints and the folder of an own model that the run reads, as the job sees them.

    A run that loads from the folder where it saves may start without it.
    """
    named = plan.samples is not None and plan.samples.source == "hf"
    data = [] if plan.policy.data == "mock" or named else _corpora(plan) or [plan.policy.data]
    model = [plan.hf] if plan.hf.startswith("/") else []
    return list(dict.fromkeys([*data, *input_checkpoints(plan), *model]))


def _corpora(plan: Plan) -> list[str]:
    """The prefixes of a mixture without their weights (core datasets/utils.py:49); empty if there is none."""
    stated = plan.set.get("dataset.data_path") or ()
    words = stated.split() if isinstance(stated, str) else map(str, stated)
    return [word for word in words if not _WEIGHT.fullmatch(word)]


def input_checkpoints(plan: Plan) -> list[str]:
    """List the checkpoints from which the run starts."""
    load, save, pretrained = (plan.set.get(f"checkpoint.{n}") for n in ("load", "save", "pretrained_checkpoint"))
    return [str(p) for p in (load if load != save else None, pretrained) if p]


CONVERT, WANTED = "convert.py", "weights.json"
"""The names of convert.py and of what it reads in a job."""


def with_imported_weights(plan: Plan, cluster: Cluster) -> Plan:
    """The plan whose imported weights lie in the cluster's folder for them, if it names one."""
    if plan.hub_weights is None or not cluster.weights_dir:
        return plan
    return evolve(plan, set={**plan.set, FIELD: imported(plan.hub_weights, cluster.weights_dir)})


def imported_folders(plan: Plan) -> list[str]:
    """The folder of the weights that are imported before the run, if it has such weights."""
    return [str(plan.set[FIELD])] if plan.hub_weights else []


def weights_refusals(plan: Plan, cluster: Cluster) -> list[Diagnostic]:
    """Report why weights cannot be imported for this plan there."""
    if plan.hub_weights is None:
        return []
    if cluster.executor != "local" and not cluster.weights_dir:
        return [error("launch.weights:cluster", cluster=cluster.name, hub_weights=plan.hub_weights)]
    return []


def import_job(plan: Plan, launch: Launch) -> tuple[Launch, Payload]:
    """The job that imports the weights of a plan."""
    wanted = {"action": "import", "model": plan.hub_weights, "folder": plan.set[FIELD]}
    return _conversion_job(plan, launch, "import", wanted)


def export_job(plan: Plan, launch: Launch, checkpoint: str, folder: str) -> tuple[Launch, Payload]:
    """The job that exports a checkpoint of a plan's run."""
    adapters = plan.task == "peft"
    wanted = {"action": "export", "model": plan.hub_weights or plan.hf, "folder": folder, "checkpoint": checkpoint,
              "adapters": adapters}  # fmt: skip
    return _conversion_job(plan, launch, "export", wanted)


def _conversion_job(plan: Plan, launch: Launch, action: str, wanted: Mapping[str, Any]) -> tuple[Launch, Payload]:
    """One rank on one node: Bridge converts in the memory of one process."""
    one = evolve(
        launch, name=f"{launch.name}.{action}", nodes=1, gpus_per_node=1, tasks_per_node=1, ranks_per_node=1,
        numa_binding=False, segment=0, spare_nodes=0, ft_launcher=(), settings=(), chain=None,
    )  # fmt: skip
    options: dict[str, Any] = {"revision": plan.revision} if plan.revision and wanted["model"] == plan.hf else {}
    if family(plan.family).remote_code:
        options["trust_remote_code"] = True
    said = {**wanted, "options": options}  # of `from_hf_pretrained`
    sources = {CONVERT: "convert.py", PROGRAM: "head_check.py"}
    texts = {
        name: files("moedsl.launch.in_job").joinpath(source).read_text("utf-8") for name, source in sources.items()
    }
    return one, Payload({**texts, WANTED: json.dumps(said, indent=1) + "\n"}, entry=CONVERT)
