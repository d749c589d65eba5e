"""Read the logs of jobs where they write them, and explain their last lines."""

from __future__ import annotations

import io
import re
import shlex
import time
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from attrs import define, field

from moedsl.diagnose import ranks
from moedsl.diagnose.ranks import Failure
from moedsl.launch import pods, store
from moedsl.launch.head_check import WRONG
from moedsl.launch.store import Experiment, Job

_SLURM_SAYS = re.compile(r"(srun|slurmstepd\S*|\S*slurm_script): ")
"""Lines of Slurm itself in the output of the batch script, which also has the output of its commands."""
_TERMINATED = "Terminated"
"""What the shell of each rank prints that is ended because another one failed."""
TAIL = 20
"""Lines of a failed job's log that are printed by default."""
LATE_S = 5
"""Seconds in which a log arrives from the nodes of a job that has ended; shared file systems cache their folders."""


@define
class Reader:
    """Reads the log of one Slurm job through its tunnel: whole lines, each only once."""

    tunnel: Any
    folder: str
    names: tuple[str, ...] = ("log*",)
    seen: dict[str, int] = field(factory=dict)
    """The number of lines read from each file; a requeued job has one file for each start."""

    def more(self, whole: bool) -> list[str]:
        """The new lines since the last call; an unfinished last line only if the job has ended (`whole`)."""
        return [line for path in self._paths() for line in self._lines(path, whole)]

    def failures(self) -> list[Failure]:
        """What the ranks of the last start have written of their failures."""
        newest = self._paths()[-1:]
        said = [self._ask(f"grep -aF {shlex.quote(ranks.MARK)} {shlex.quote(path)}") for path in newest]
        return [failure for text in said for failure in ranks.failures(text.encode())]

    def _paths(self) -> list[str]:
        """The log files, in the order of their start."""
        pattern = " ".join(f"{shlex.quote(self.folder)}/{name}" for name in self.names)
        return self._ask(f"ls -1tr {pattern} 2>/dev/null").splitlines()

    def _lines(self, path: str, whole: bool) -> list[str]:
        start = self.seen.get(path, 0)
        text = self._ask(f"tail -n +{start + 1} {shlex.quote(path)}")
        lines = text.split("\n")
        rest = lines.pop()
        if whole and rest:
            lines.append(rest)
        self.seen[path] = start + len(lines)
        return lines

    def _ask(self, command: str) -> str:
        return self.tunnel.run(command, hide=True, warn=True).stdout


def reader(experiment: Experiment, job: Job, *names: str) -> Reader | None:
    """Make a reader of a Slurm job's log; None for other schedulers (see `print_elsewhere`)."""
    if not isinstance(experiment.executor(job.name), store.nemo_run().SlurmExecutor):
        return None
    return Reader(experiment.tunnel(job.name), experiment.log_folder(job.name), names or ("log*",))


def print_elsewhere(experiment: Experiment, job: Job, follow: bool, out: TextIO) -> None:
    """Print the log of a job that is not Slurm's: of Kubeflow's pods, else as NeMo-Run fetches it."""
    if job.handle.startswith("kubeflow:"):
        executor = experiment.executor(job.name)
        if follow:
            pods.follow(executor, job.handle, out, lambda: experiment.jobs([job.name])[0].ended)
        else:
            pods.print_logs(executor, job.handle, False, out)
        return
    from nemo_run.run.logs import get_logs

    get_logs(out, job.handle, None, should_tail=follow, runner=experiment.runner)


def print_lines(lines: Iterable[str], out: TextIO, before: str = "") -> None:
    for line in lines:
        print(f"{before}{line}", file=out)
    out.flush()


def reason(experiment: Experiment, job: Job) -> list[str]:
    """Explain why a job failed: the scheduler's word, srun's messages, and the end of its log."""
    if not job.handle:
        return ["it was not submitted"]
    said, wrote = reader(experiment, job, "sbatch*"), reader(experiment, job)
    if said is None or wrote is None:
        return []
    of_slurm = [line for line in said.more(whole=True) if _SLURM_SAYS.match(line)]
    of_ranks = [line for line in _late(wrote) if line != _TERMINATED]
    return [*of_slurm[-TAIL:], *of_ranks[-TAIL:]]


def _late(wrote: Reader) -> list[str]:
    """Read a log; one without a line may not have arrived yet from the nodes of a job that has just ended."""
    for _ in range(LATE_S):
        if lines := wrote.more(whole=True):
            return lines
        time.sleep(1)
    return []


_ENDED = re.compile(r"srun: error: (?P<node>\S+): task (?P<rank>\d+): (?P<end>.+)")


def first_failure(experiment: Experiment, job: Job, said: Sequence[str]) -> Failure | None:
    """The rank of a failed job that failed first, by its own line; else the first end that srun reports in `said`."""
    if not job.handle:
        return None
    wrote = reader(experiment, job)
    if wrote is not None:
        ended = (m for line in said if (m := _ENDED.match(line)))
        own = [Failure(int(m["rank"]), m["node"], "", m["end"]) for m in ended]
        return ranks.first(wrote.failures()) or next(iter(own), None)
    if not job.handle.startswith("kubeflow:") or pods.no_kubectl():
        return None
    out = io.StringIO()
    print_elsewhere(experiment, job, False, out)
    return ranks.first(ranks.failures(out.getvalue().encode()))


_BAD = re.compile(r"moedsl preflight: node (\S+) is bad: ")


def bad_nodes(experiment: Experiment, job: Job) -> list[str]:
    """The nodes that the check of a failed job named (node_check.py)."""
    wrote = reader(experiment, job) if job.handle else None
    found = (_BAD.search(line) for line in (_late(wrote) if wrote else ()))
    return list(dict.fromkeys(m[1] for m in found if m))


PREFLIGHT = "moedsl preflight: "
SECRET = 78
"""The exit code of a job that misses one of its secrets (script.py)."""


def explained(lines: Iterable[str]) -> str:
    """Explain why a job ended before its ranks started, and how to fix it; empty for other failures."""
    for line in lines:
        at = line.find(PREFLIGHT)
        if at >= 0:
            return f"the preflight check failed (exit code {WRONG}): moedsl diagnose '{line[at:]}'"
        if line.startswith("secret ") and line.endswith(" is not set in this job"):
            return f"a secret is missing (exit code {SECRET}): moedsl diagnose '{line}'"
    return ""
