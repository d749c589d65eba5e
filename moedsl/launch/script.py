"""Write a job's script: one bash text that contains the files it runs; a scheduler starts it in every task.

The files are a payload: the recipe, or the program that converts weights, and the preflight check. Values are quoted in
ASCII and not by `shlex.quote`: a locale on the way could change a non-ASCII byte, and NeMo-Run replaces `RUNDIR`
anywhere in a script.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from attrs import evolve, field, frozen

from moedsl.cost import parameters
from moedsl.emit import megatron_lm as emit
from moedsl.facts.facts import Model
from moedsl.facts.families import family
from moedsl.facts.fine_tuning import FIELD, imported
from moedsl.launch.derive import Launch
from moedsl.launch.in_job.chain import COMPLETE
from moedsl.planner.plan import Plan
from moedsl.rules.check.cluster_facts import Cluster
from moedsl.support.diagnostics import Diagnostic, error, note

RUNDIR = "/nemo_run"
"""NeMo-Run replaces this path everywhere in a script if the job has no container (nemo_run
core/execution/slurm.py:1108, config.py:492)."""
RANK, RANK_LOG, NUMA, CHAIN = "moedsl_rank.py", "moedsl_rank_log.py", "moedsl_numa.py", "moedsl_chain.py"
"""The names of rank.py, rank_log.py, numa.py and chain.py inside a job."""
RANKS = "ranks"
"""The folder of the ranks' own logs, inside the job's folder."""
END = "MOEDSL_END_OF_FILE"
"""The here-document delimiter of a file in the script; longer if a line of the file equals it."""
SIGNALS = "HUP INT QUIT TERM USR1 USR2"
"""The signals that a scheduler may send to a job."""
FT_LAUNCHER = "nvidia_resiliency_ext.fault_tolerance.launcher"
SECTIONS = ("setup", "step", "checkpointing")
"""The stages of a run that Bridge reports to ft_launcher; each may have its own time limit."""
FIRST_PORT, PORTS = 20000, 12000
"""The lowest port; the job id is added modulo `PORTS`, so that jobs on one node use different ports.

Linux hands out ports from 32768.
"""
PROGRAM, EXPECTED = "preflight.py", "preflight.json"
NODES, NODES_EXPECTED = "node_check.py", "node_check.json"
_MODULES = {
    "deepep": ("deep_ep", "Buffer"),
    "hybridep": ("deep_ep", "HybridEPBuffer"),
    "ncclep": ("transformer_engine.pytorch.ep", "ep_bootstrap"),
}
"""The name that Megatron-Core imports from deep_ep for each backend (core transformer/moe/fused_a2a.py:11, :271)."""
MEGATRON = "megatron_lm.py"
"""The name of the program that starts Megatron-LM, inside a job too; its input file is megatron_lm.json."""
CONVERT, WANTED = "convert.py", "weights.json"
"""The names of convert.py and of its input file inside a job."""


@frozen
class Payload:
    """The files that the ranks run (Python source or other ASCII text) by name, and the name of the one to start."""

    files: Mapping[str, str]
    entry: str = "recipe.py"
    preflight: str = ""
    """Bash that every task runs before its ranks start, with the files in ``$MOEDSL_FILES``; a failure ends the job."""
    arguments: tuple[str, ...] = field(default=())

    def __attrs_post_init__(self) -> None:
        wrong = [n for n in self.files if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", n)]
        if wrong or self.entry not in self.files:
            raise ValueError(f"a payload's files have plain names and its entry is one of them: {wrong or self.entry}")


@frozen
class Job:
    """One plan with its launch and its payload, before submission."""

    plan: Plan
    launch: Launch
    payload: Payload


def script(launch: Launch, cluster: Cluster, payload: Payload) -> str:
    """Return the script in ASCII, without the ``#!`` line, which NeMo-Run adds; equal input gives equal bytes."""
    python = _python(cluster)
    lines = [
        f"# {launch.name} on {cluster.name}: {launch.nodes} x {launch.ranks_per_node} ranks. Written by moedsl.",
        "set -euo pipefail",
        "",
        *_files(launch, cluster, payload),
        *_environment(launch, cluster),
        "",
    ]
    chain = launch.chain
    judge = f'{python} "$MOEDSL_FILES/{CHAIN}" {word(chain.folder)} {chain.steps}' if chain else ""
    if chain:
        lines += [
            "# The chain: nothing to do in a complete run, and an end after jobs that saved nothing.",
            f'code=0; {judge} || code="$?"',
            f'[ "$code" -ne {COMPLETE} ] || exit 0',
            '[ "$code" -eq 0 ] || exit "$code"',
            "",
        ]
    if payload.preflight:
        lines += ["# Preflight.", payload.preflight.rstrip("\n"), ""]
    rank = f'{python} -u "$MOEDSL_FILES/{RANK}" "$MOEDSL_FILES/{payload.entry}"'
    if launch.numa_binding:
        cores = f"--cores={launch.cores_per_rank} " if launch.cores_per_rank else ""
        rank = f'{python} "$MOEDSL_FILES/{NUMA}" {cores}{rank}'
    signals_ranks = any(s.name == "signal_ranks" and s.value for s in launch.settings)
    is_watched = launch.executor == "slurm" or signals_ranks
    if launch.starts_ranks:  # this task is one rank; else torchrun or ft_launcher starts the node's ranks
        lines += _watched(rank + "".join(f" {word(a)}" for a in payload.arguments))
    else:
        command = _torchrun(launch, python, rank, payload.arguments)
        lines += _watched(command, _RANKS if signals_ranks else "") if is_watched else [f"exec {command}"]
    if chain:
        ended = f'[ "$code" -ne 0 ] || [ "$SLURM_PROCID" -ne 0 ] || {judge} {chain.jobs} || code="$?"'
        lines += ["# The chain: its last job fails if the run is not complete.", ended]
    if is_watched:
        lines.append('exit "$code"')
    return "\n".join(lines) + "\n"


def _python(cluster: Cluster) -> str:
    return word(cluster.python) if cluster.python else "python3"


def _program(source: str) -> str:
    return files("moedsl.launch.in_job").joinpath(source).read_text("utf-8")


def _files(launch: Launch, cluster: Cluster, payload: Payload) -> Iterator[str]:
    """Yield bash that writes the payload and the programs around a rank into a folder of the job, without expansion.

    Only Python comments and docstrings can have non-ASCII characters, which are escaped. A delimiter grows until no
    line of the text equals it. Under Slurm, this shell removes the folder when it ends, whenever a signal ends it: it
    knows the name before the folder exists, and first waits for the process that makes the folder, which ignores
    signals.
    """
    sources = {RANK: "rank.py"}
    sources |= {RANK_LOG: "rank_log.py"} if cluster.rank_logs or launch.executor == "local" else {}
    sources |= {NUMA: "numa.py"} if launch.numa_binding else {}
    sources |= {CHAIN: "chain.py"} if launch.chain else {}
    documents: list[str] = []
    for name, text in sorted({**payload.files, **{n: _program(s) for n, s in sources.items()}}.items()):
        ended = text if text.endswith("\n") else text + "\n"
        ended, delimiter = ended.encode("ascii", "backslashreplace").decode("ascii"), END
        while delimiter in ended.splitlines():
            delimiter += "_"
        documents.append(f"cat > \"$MOEDSL_FILES/{name}\" <<'{delimiter}'\n{ended}{delimiter}\n")
    of_slurm = launch.executor == "slurm"
    yield f'MOEDSL_FILES="$(mktemp {"-u" if of_slurm else "-d"} "${{TMPDIR:-/tmp}}/moedsl.XXXXXXXX")"'
    yield "readonly MOEDSL_FILES"
    if not of_slurm:
        yield from documents
        return
    yield """trap 'wait "${maker:-$!}" 2> /dev/null || true; rm -rf "$MOEDSL_FILES"' EXIT"""
    yield f'(trap "" {SIGNALS}'
    yield 'mkdir -m 700 "$MOEDSL_FILES"'
    yield from documents
    yield ") &"
    yield 'maker="$!"'
    yield 'wait "$maker"'


def _environment(launch: Launch, cluster: Cluster) -> Iterator[str]:
    """Yield bash that exports the variables, the inherited secrets and the rank's numbers.

    On this machine, the shell's value of a variable wins unless the cluster states one; on a cluster it would be the
    login node's value. A job that lacks a secret ends here, not an hour later.
    """
    yield "# Environment"
    if cluster.env_script:
        path = word(cluster.env_script)
        yield f'[ -r {path} ] || {{ echo "moedsl preflight: env_script {path} cannot be read" >&2; exit 79; }}'
        yield f"set +eu; . {path}; set -eu  # the variables below win"
    for s in launch.environment:
        keeps = f'[ -n "${{{s.name}+set}}" ] || ' if launch.executor == "local" and s.origin != "cluster" else ""
        yield f"{keeps}export {s.name}={word(s.text)}"
    if cluster.rank_logs:
        yield f"export MOEDSL_RANK_LOGS={RUNDIR}/{RANKS}  # NeMo-Run puts the folder of the job there"
    if launch.secrets:
        yield ""
        yield "# Secrets: inherited, written nowhere."
    for name in launch.secrets:
        yield f'if [ -z "${{{name}:-}}" ]; then echo "secret {name} is not set in this job" >&2; exit 78; fi'
        yield f"export {name}"
    if launch.executor == "slurm":  # on Kubernetes and this machine, torchrun sets this
        yield ""
        yield "# Where the ranks meet: the node of the first, at a port of this job."
        yield 'export MASTER_ADDR="${SLURM_LAUNCH_NODE_IPADDR:?not a step of a Slurm job}"'
        yield f'export MASTER_PORT="$(({FIRST_PORT} + SLURM_JOB_ID % {PORTS}))"'
    if launch.starts_ranks:
        yield 'export RANK="$SLURM_PROCID" WORLD_SIZE="$SLURM_NTASKS" LOCAL_RANK="$SLURM_LOCALID"'
        yield f'export LOCAL_WORLD_SIZE="{launch.ranks_per_node}" NODE_RANK="$SLURM_NODEID"'


def _torchrun(launch: Launch, python: str, rank: str, arguments: tuple[str, ...]) -> str:
    """Return the command that starts torchrun, or ft_launcher, which is built on it, with its rendezvous options.

    Both fill macros into the ranks' arguments, so dollar signs in these are doubled. ft_launcher has one argument for
    the time limits of all of Bridge's sections, and one argument for each other setting.
    """
    of = {s.name: s.text for s in launch.ft_launcher}
    sections = ",".join(f"{name}:{of.pop(name)}" for name in SECTIONS if name in of)
    said = ({"ft-rank-section-timeouts": sections} if sections else {}) | of
    module = FT_LAUNCHER if said else "torch.distributed.run"
    options = "".join(" " + word(f"--{name}={value}") for name, value in said.items())
    meeting = f"--standalone --nnodes=1 --nproc-per-node={launch.world}"
    if launch.executor != "local":
        meeting = f"--nnodes={launch.nodes} --nproc-per-node={launch.ranks_per_node} {_MEETING[launch.executor]}"
    doubled = "".join(f" {word(a.replace('$', '$$'))}" for a in arguments)
    return f"{python} -P -m {module} {meeting}{options} \\\n  --no-python {rank}{doubled}"


_MEETING = {
    "slurm": "--rdzv-backend=c10d --rdzv-endpoint=$MASTER_ADDR:$MASTER_PORT --rdzv-id=$SLURM_JOB_ID"
    " --rdzv-conf=is_host=$((SLURM_NODEID == 0))",
    "kubeflow": "--node-rank=$PET_NODE_RANK --master-addr=$PET_MASTER_ADDR --master-port=$PET_MASTER_PORT",
}


_CHILDREN = (
    "  for tries in {1..100}; do",
    '    [ "${#to[@]}" -eq 0 ] && [ -r "/proc/$group/task/$group/children" ] || break',
    '    read -r -a to < "/proc/$group/task/$group/children" || [ "${#to[@]}" -gt 0 ] || sleep 0.02 || true',
    "  done",
)
"""Bash that reads the process id of the child (the rank, torchrun or ft_launcher) into `to`, once there is one.

The group is not signalled, because the signal would end the processes that a rank started: PyTorch's data loaders,
whose end fails the rank, and the checkpoint writer, for which the rank then waits forever. ft_launcher's monitors would
end too, and fail their ranks.
"""
_RANKS = 'for file in "$MOEDSL_FILES"/.rank.*; do read -r number < "$file" && to+=("$number"); done'
"""Bash that reads the process ids of the ranks under torchrun or ft_launcher, which rank.py writes, into `to`."""


def _watched(command: str, told: str = "") -> Iterator[str]:
    """Yield bash that runs the command, forwards signals to it, keeps its exit code, and then removes the files.

    Slurm sends a signal to the process that it started, which is this shell. If Slurm tracks processes by their
    parents, it also signals the command, which then gets the signal twice. The shell forwards the signal to the
    processes whose ids `told` reads; without any, only to the command, or to the command's group if the kernel lists no
    children. A started command may be ready before the shell continues, so the shell sets its traps first. In a
    Kubernetes container, the files disappear with the container, so a command that needs no forwarding replaces this
    shell; likewise on this machine, where TMPDIR is removed afterwards.

    No trap uses command substitution: bash 5.2 ends with a syntax error if a signal arrives while it reads one.
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
"""The lines after the command; if a signal ended it, the shell ends by the same signal.

The exit code is in a file, because bash's `wait` forgets it if several signals arrive.
"""


def with_preflight(payload: Payload, plan: Plan, launch: Launch, cluster: Cluster) -> Payload:
    """Add head_check.py with the plan's expectations to a payload, and node_check.py if the cluster asks for it.

    If the run names no checkpoint folder, node_check.py writes to the folder where the job starts.
    """
    checks = [(PROGRAM, "head_check.py", EXPECTED, preflight_expectations(plan, launch))]
    if cluster.node_check:
        folder = str(plan.set.get("checkpoint.save") or ".")
        asks = {"gpus": launch.gpus_per_node, "network": launch.network, "nvlink": launch.nvlink, "folder": folder}
        checks.append((NODES, "node_check.py", NODES_EXPECTED, asks))
    for name, source, asks, expected in checks:
        more = {name: _program(source), asks: json.dumps(expected, indent=1) + "\n"}
        start = f'{_python(cluster)} "$MOEDSL_FILES/{name}" "$MOEDSL_FILES/{asks}" || exit "$?"\n'
        payload = evolve(payload, files={**payload.files, **more}, preflight=payload.preflight + start)
    return payload


def preflight_expectations(plan: Plan, launch: Launch) -> dict[str, Any]:
    """Return what head_check.py checks; the GPU is named by the word that identifies it, such as H100."""
    device, dispatcher = plan.device, plan.policy.dispatcher
    words = re.split(r"[^A-Za-z0-9]+", device.name)
    gpu = next((w for w in words if re.fullmatch(r"[A-Z]+\d+[A-Z]*", w)), words[-1])
    module, attribute = _MODULES.get(dispatcher, ("", ""))
    needed = {"module": module, "attribute": attribute, "because": f"dispatcher={dispatcher}"}
    return {
        "target": plan.target.to_json(),
        "needs": [{"product": n.product, "at_least": n.at_least, "because": n.because} for n in plan.needs],
        "modules": [needed] if module else [],
        "gpus": {
            "count": launch.ranks_per_node,
            "name": gpu,
            "capability": list(device.capability),
            "memory": device.memory,
        },
        "paths": input_paths(plan),
        "checkpoints": input_checkpoints(plan),
        "hf": plan.hf,
        "revision": plan.revision,
    }


def megatron_lm(plan: Plan, model: Model, cluster: Cluster) -> tuple[Payload | None, list[Diagnostic]]:
    """Return the payload that starts Megatron-LM from the cluster's checkout, or why there is none."""
    refused = emit.refusals(plan, model)
    if not cluster.megatron_lm:
        refused.append(error("launch.megatron_lm", cluster=cluster.name))
    if refused:
        return None, refused
    wanted = {"folder": cluster.megatron_lm, "entry": emit.entry(plan), "arguments": emit.words(plan, model),
              "environment": emit.environment(plan)}  # fmt: skip
    files = {MEGATRON: _program(MEGATRON), "megatron_lm.json": json.dumps(wanted, indent=1) + "\n"}
    return Payload(files, entry=MEGATRON), []


def input_paths(plan: Plan) -> list[str]:
    """Return the data, the checkpoints and the folder of a local model that the run reads, as the job sees them.

    A folder from which the run loads and to which it saves is left out, because it need not exist yet. A data mixture
    lists prefixes of corpora, with weights between them (core datasets/utils.py:49).
    """
    data: list[str] = []
    if plan.policy.data != "mock" and (plan.samples is None or plan.samples.source != "hf"):
        stated = plan.set.get("dataset.data_path") or ()
        words = stated.split() if isinstance(stated, str) else map(str, stated)
        data = [word for word in words if not re.fullmatch(r"[0-9.eE+-]+", word)] or [plan.policy.data]
    model = [plan.hf] if plan.hf.startswith("/") else []
    return list(dict.fromkeys([*data, *input_checkpoints(plan), *model]))


def input_checkpoints(plan: Plan) -> list[str]:
    """Return the checkpoints from which the run starts, except the folder to which it saves."""
    load, save, pretrained = (plan.set.get(f"checkpoint.{n}") for n in ("load", "save", "pretrained_checkpoint"))
    return [str(p) for p in (load if load != save else None, pretrained) if p]


def with_imported_weights(plan: Plan, cluster: Cluster) -> Plan:
    """Return the plan with its imported weights in the cluster's `weights_dir`, if the cluster names one."""
    if plan.hub_weights is None or not cluster.weights_dir:
        return plan
    return evolve(plan, set={**plan.set, FIELD: imported(plan.hub_weights, cluster.weights_dir)})


def imported_folders(plan: Plan) -> list[str]:
    """Return the folder of the weights that are imported before the run; an empty list if none are."""
    return [str(plan.set[FIELD])] if plan.hub_weights else []


def weights_refusals(plan: Plan, cluster: Cluster) -> list[Diagnostic]:
    """Report that the plan imports weights but the cluster names no folder for them."""
    if plan.hub_weights is None or cluster.executor == "local" or cluster.weights_dir:
        return []
    return [error("launch.weights:cluster", cluster=cluster.name, hub_weights=plan.hub_weights)]


def import_job(job: Job, model: Model) -> Job:
    """Make the job that imports the weights of a run. It compares the node's memory with the weights in BF16, which one
    process holds (bridge models/conversion/auto_bridge.py:1389)."""
    wanted = {"action": "import", "model": job.plan.hub_weights, "folder": job.plan.set[FIELD]}
    return _conversion(job, {**wanted, "bytes": 2 * parameters.unique(model)})


def memory_of_import(job: Job) -> Diagnostic:
    """Say how much host memory a job needs that imports weights."""
    size = json.loads(job.payload.files[WANTED])["bytes"]
    return note("launch.weights_memory", hub_weights=job.plan.hub_weights, size=f"{size / 1e12:,.2f}")


def export_job(job: Job, checkpoint: str, folder: str) -> Job:
    """Make the job that exports a checkpoint of a run."""
    wanted = {"action": "export", "model": job.plan.hub_weights or job.plan.hf, "folder": folder,
              "checkpoint": checkpoint, "adapters": job.plan.task == "peft"}  # fmt: skip
    return _conversion(job, wanted)


def _conversion(job: Job, wanted: Mapping[str, Any]) -> Job:
    """Make a job with one rank on one node: Bridge converts weights in the memory of one process."""
    plan = job.plan
    one = evolve(
        job.launch, name=f"{job.launch.name}.{wanted['action']}", nodes=1, gpus_per_node=1, tasks_per_node=1,
        ranks_per_node=1, numa_binding=False, segment=0, spare_nodes=0, ft_launcher=(), settings=(), chain=None,
    )  # fmt: skip
    options: dict[str, Any] = {"revision": plan.revision} if plan.revision and wanted["model"] == plan.hf else {}
    if family(plan.family).remote_code:
        options["trust_remote_code"] = True  # of `from_hf_pretrained`
    asks = json.dumps({**wanted, "options": options}, indent=1) + "\n"
    programs = {CONVERT: _program("convert.py"), PROGRAM: _program("head_check.py")}
    return Job(plan, one, Payload({**programs, WANTED: asks}, entry=CONVERT))


def refusal(text: str, has_container: bool) -> Diagnostic | None:
    """Report a script that NeMo-Run would change, because without a container it replaces `RUNDIR`."""
    if has_container or RUNDIR not in text:
        return None
    return error("launch.reserved_path", rundir=RUNDIR)


_PLAIN = re.compile(r"[A-Za-z0-9_.,:/@%+=-]+")
_SHORT = {ord("\n"): r"\n", ord("\t"): r"\t", ord("\r"): r"\r", ord("\\"): r"\\", ord("'"): r"\'"}


def word(text: str) -> str:
    r"""Quote `text` as one word of bash: unchanged, or as ``$'...'`` with everything except plain ASCII escaped.

    Raises ValueError for a NUL, which no argument and no variable can contain.
    """
    if "\0" in text:
        raise ValueError("a NUL cannot stand in a word of bash")
    if _PLAIN.fullmatch(text) and RUNDIR not in text:
        return text
    escaped = (
        _SHORT.get(b) or (chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in text.encode("utf-8", "surrogateescape")
    )
    return "$'" + "".join(escaped).replace(RUNDIR, r"\057" + RUNDIR[1:]) + "'"
