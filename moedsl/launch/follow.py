"""Wait for an experiment, in the process that submitted it or in another one, and explain why its jobs failed.

Logs are read where the jobs write them: Slurm logs through the tunnel, pod logs with kubectl.
"""

from __future__ import annotations

import io
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from shutil import which
from typing import TYPE_CHECKING, Any, TextIO

from attrs import define, field

from moedsl.compiler import load_stdlib
from moedsl.diagnose import scan
from moedsl.diagnose.scan import Failure
from moedsl.launch import store
from moedsl.launch.in_job import chain
from moedsl.launch.in_job.head_check import WRONG
from moedsl.launch.kubeflow import JOBSET, job_name
from moedsl.launch.store import UNKNOWN, Experiment, Job
from moedsl.support.children import guarded
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.text import counted, wrapped

if TYPE_CHECKING:
    import nemo_run

FIRST_S, LONGEST_S = 1.0, 15.0
"""Seconds between two queries: at first, and after some minutes; others need the accounting service too."""


def wait(
    experiment: Experiment, only: Sequence[str] = (), with_logs: bool = False,
    enough: Callable[[Sequence[Job]], bool] = lambda _: False,
) -> list[Job]:  # fmt: skip
    """Wait until all jobs, or those in `only`, have ended or are `enough`, and return them.

    Changes of state go to stderr, and with `with_logs` the logs go to stdout. Ctrl-C leaves the jobs running:
    KeyboardInterrupt passes through.
    """
    said: dict[str, str] = {}
    readers: dict[str, Reader | None] = {}
    pause = FIRST_S
    while True:
        with reraising_interrupt():
            jobs = experiment.jobs(only)
        for job in jobs:
            now = state(job)
            if said.get(job.name) != now and not (job.state == UNKNOWN and not said):
                said[job.name] = now
                print(f"{time.strftime('%H:%M:%S')}  {job.name}  {job.number}  {now}", file=sys.stderr, flush=True)
            if with_logs and job.name not in readers and job.handle:
                readers[job.name] = reader(experiment, job)
            if (log := readers.get(job.name)) is not None:  # lines that a Slurm job has written since
                print_lines(log.more(whole=job.ended), sys.stdout, f"{job.name}: " if len(jobs) > 1 else "")
        if enough(jobs) or all(job.ended for job in jobs):
            return jobs
        time.sleep(pause)
        pause = min(pause * 1.1, LONGEST_S)


def state(job: Job) -> str:
    """Format TorchX's state, with the scheduler's own state if that says more."""
    plain = ("", job.state, "COMPLETED" if job.state == "SUCCEEDED" else job.state)
    return job.state if job.says in plain else f"{job.state} ({job.says})"


def report(experiment: Experiment, jobs: Sequence[Job]) -> int:
    """Print on stderr why each failed job failed, and return the exit code.

    The jobs of a chain that did not start, because the jobs before them saved nothing, share one line.
    """
    bad = [job for job in jobs if job.state != "SUCCEEDED"]
    ended: list[str] = []
    for job in bad:
        said = reason(experiment, job)
        if stopped := [line for line in said if chain.NOTHING in line]:
            ended.append(stopped[0])
            continue
        print(f"\n{job.name} {job.number}: {state(job)}", file=sys.stderr)
        if unfinished := [line for line in said if chain.OF_CHAIN in line]:
            print(f"  {unfinished[0]}", file=sys.stderr)
            continue
        print_lines(said, sys.stderr, "  | ")
        before_ranks = explained(said)
        first = None if before_ranks else first_failure(experiment, job, said)
        print_lines([before_ranks] if before_ranks else cause_lines(first), sys.stderr, "  ")
        print(f"  moedsl diagnose {experiment.id}", file=sys.stderr)
        print(f"  scripts and logs: {job.folder}", file=sys.stderr)
    if ended:
        print(f"\n{counted(len(ended), 'job')} did not train: {ended[0]}", file=sys.stderr)
    return int(bool(bad))


def cause_lines(first: Failure | None) -> Iterator[str]:
    """Yield lines with the first failure, its known causes and their fixes; none if no rank is known to have failed."""
    if first is None:
        return
    yield f"first to fail: {scan.failure_text(first)}"
    for s in scan.diagnose("", [first.error.encode()], scan.symptoms(load_stdlib())).sightings:
        yield from wrapped(f"cause: {s.rule.because} ({s.rule.id})", "  ", "    ").splitlines()
        if s.rule.fix:
            yield from wrapped(f"fix: {s.rule.fix}", "  ", "    ").splitlines()


@contextmanager
def reraising_interrupt() -> Generator[None]:
    """Raise KeyboardInterrupt on Ctrl-C, even if the code inside suppresses it.

    NeMo-Run calls Slurm with invoke, which forwards Ctrl-C to its command and continues (invoke runners.py,
    `Runner._finish`). Nothing changes on other threads, or if Python's own handler is not installed.
    """
    mine = threading.current_thread() is threading.main_thread()
    if not mine or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signals: list[int] = []

    def note(number: int, frame: Any) -> None:
        signals.append(number)
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    except Exception:
        if not signals:
            raise
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signals:
        raise KeyboardInterrupt


_SLURM_SAYS = re.compile(r"(srun|slurmstepd\S*|\S*slurm_script): ")
"""Matches Slurm's own lines in the output of the batch script, which also contains the output of its commands."""
_TERMINATED = "Terminated"
"""What the shell of a rank prints when the rank is ended because another one failed."""
TAIL = 20
"""Number of log lines printed for a failed job by default."""
LATE_S = 5
"""Seconds to wait for the log of a job that has ended: shared file systems cache folders, so it may arrive late."""


@define
class Reader:
    """Reads the log of one Slurm job through its tunnel: whole lines, each only once."""

    tunnel: Any
    folder: str
    names: tuple[str, ...] = ("log*",)
    seen: dict[str, int] = field(factory=dict)
    """The number of lines read from each file; a requeued job has one file for each start."""

    def more(self, whole: bool) -> list[str]:
        """Return the new lines since the last call; an unfinished last line only if the job has ended (`whole`)."""
        new: list[str] = []
        for path in self._paths():
            start = self.seen.get(path, 0)
            *lines, rest = self._ask(f"tail -n +{start + 1} {shlex.quote(path)}").split("\n")
            lines += [rest] if whole and rest else []
            self.seen[path] = start + len(lines)
            new += lines
        return new

    def failures(self) -> list[Failure]:
        """Return the failures that the ranks reported in the log of the last start."""
        newest = self._paths()[-1:]
        said = [self._ask(f"grep -aF {shlex.quote(scan.MARK)} {shlex.quote(path)}") for path in newest]
        return [failure for text in said for failure in scan.failures(text.encode())]

    def _paths(self) -> list[str]:
        """Return the log files, the oldest first."""
        pattern = " ".join(f"{shlex.quote(self.folder)}/{name}" for name in self.names)
        return self._ask(f"ls -1tr {pattern} 2>/dev/null").splitlines()

    def _ask(self, command: str) -> str:
        return self.tunnel.run(command, hide=True, warn=True).stdout


def reader(experiment: Experiment, job: Job, *names: str) -> Reader | None:
    """Make a reader of a Slurm job's log files, by pattern; None for other schedulers (see `print_elsewhere`)."""
    if not isinstance(experiment.executor(job.name), store.nemo_run().SlurmExecutor):
        return None
    return Reader(experiment.tunnel(job.name), experiment.log_folder(job.name), names or ("log*",))


def print_elsewhere(experiment: Experiment, job: Job, follow: bool, out: TextIO) -> None:
    """Print the log of a job that does not run on Slurm: from Kubeflow's pods, else as NeMo-Run fetches it."""
    if job.handle.startswith("kubeflow:"):
        executor = experiment.executor(job.name)
        if follow:
            follow_pods(executor, job.handle, out, lambda: experiment.jobs([job.name])[0].ended)
        else:
            print_logs(executor, job.handle, False, out)
        return
    from nemo_run.run.logs import get_logs

    get_logs(out, job.handle, None, should_tail=follow, runner=experiment.runner)


def print_lines(lines: Iterable[str], out: TextIO, before: str = "") -> None:
    for line in lines:
        print(f"{before}{line}", file=out)
    out.flush()


def reason(experiment: Experiment, job: Job) -> list[str]:
    """Return lines that explain why a job failed: Slurm's own messages, then the end of the log.

    The list is empty for other schedulers.
    """
    if not job.handle:
        return ["it was not submitted"]
    said, wrote = reader(experiment, job, "sbatch*"), reader(experiment, job)
    if said is None or wrote is None:
        return []
    of_slurm = [line for line in said.more(whole=True) if _SLURM_SAYS.match(line)]
    of_ranks = [line for line in _late(wrote) if line != _TERMINATED]
    return [*of_slurm[-TAIL:], *of_ranks[-TAIL:]]


def _late(wrote: Reader) -> list[str]:
    """Read a log, and wait for its first lines, which may arrive late from the nodes of a job that has just ended."""
    for _ in range(LATE_S):
        if lines := wrote.more(whole=True):
            return lines
        time.sleep(1)
    return []


_ENDED = re.compile(r"srun: error: (?P<node>\S+): task (?P<rank>\d+): (?P<end>.+)")


def first_failure(experiment: Experiment, job: Job, said: Sequence[str]) -> Failure | None:
    """Return the first rank's failure, by the ranks' own reports, else by srun's messages in `said`.

    None if no rank is known to have failed.
    """
    if not job.handle:
        return None
    wrote = reader(experiment, job)
    if wrote is not None:
        ended = (m for line in said if (m := _ENDED.match(line)))
        own = [Failure(int(m["rank"]), m["node"], "", m["end"]) for m in ended]
        return scan.first_to_fail(wrote.failures()) or next(iter(own), None)
    if not job.handle.startswith("kubeflow:") or no_kubectl():
        return None
    out = io.StringIO()
    print_elsewhere(experiment, job, False, out)
    return scan.first_to_fail(scan.failures(out.getvalue().encode()))


_BAD = re.compile(r"moedsl preflight: node (\S+) is bad: ")


def bad_nodes(experiment: Experiment, job: Job) -> list[str]:
    """Return the nodes that the check in a failed job reported as bad (node_check.py)."""
    wrote = reader(experiment, job) if job.handle else None
    found = (_BAD.search(line) for line in (_late(wrote) if wrote else ()))
    return list(dict.fromkeys(m[1] for m in found if m))


PREFLIGHT = "moedsl preflight: "
SECRET = 78
"""The exit code of a job that lacks one of its secrets (script.py)."""


def explained(lines: Iterable[str]) -> str:
    """Explain why a job ended before its ranks started, and which command diagnoses it; empty for other failures."""
    for line in lines:
        at = line.find(PREFLIGHT)
        if at >= 0:
            return f"the preflight check failed (exit code {WRONG}): moedsl diagnose '{line[at:]}'"
        if line.startswith("secret ") and line.endswith(" is not set in this job"):
            return f"a secret is missing (exit code {SECRET}): moedsl diagnose '{line}'"
    return ""


PAUSE_S = 1.0
"""Seconds between two queries about pods that have not started."""
_LINE = re.compile(r"(?P<pod>\[pod/\S+\]) (?P<time>\d{4}-\d\d-\d\dT\S+) ?(?P<text>.*)\n?")
"""A line of `kubectl logs --prefix --timestamps`."""


def no_kubectl() -> Diagnostic | None:
    """Report that kubectl is not installed, so that logs cannot be read."""
    if which("kubectl"):
        return None
    return error("launch.no_kubectl")


def print_logs(
    executor: nemo_run.KubeflowExecutor, handle: str, follow: bool, out: TextIO, seen: dict[str, str] | None = None
) -> int:
    """Print every line of every pod with kubectl, and return kubectl's exit code.

    `seen` has the time of each pod's last printed line; only later lines are printed. Until every pod has printed a
    line, kubectl is asked for all lines, because one pod's first line may be older than another pod's last line.
    NeMo-Run's own reader prints only two ranks, and only those of their lines that torchrun marks ``[default0]:``.
    """
    limit, seen = max(8, 2 * executor.num_nodes), {} if seen is None else seen
    before = dict(seen)
    words = ["kubectl", "logs", "-n", executor.namespace, "-l", f"{JOBSET}={job_name(handle)}", "--prefix", "--tail=-1"]
    more = [f"--since-time={min(seen.values(), key=_order)}"] if len(seen) >= executor.num_nodes else []
    command = [*words, "--timestamps", f"--max-log-requests={limit}", *more, *(["-f"] if follow else [])]
    with subprocess.Popen(guarded(command), stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        try:
            for line in reader.stdout:
                found = _LINE.match(line)
                if found and _order(found["time"]) <= _order(before.get(found["pod"], "")):
                    continue
                if found:  # else it is a message of kubectl itself
                    seen[found["pod"]] = found["time"]
                out.write(f"{found['pod']} {found['text']}\n" if found else line)
                out.flush()
        except BaseException:  # if only this process gets Ctrl-C, kubectl would run until the job ends
            reader.terminate()
            raise
    return reader.returncode


def _order(time: str) -> str:
    """Pad the fraction of a time, so that times in one time zone sort as text."""
    whole, _, fraction = time.rstrip("Z").partition(".")
    return f"{whole}.{fraction:0<9}"


def follow_pods(executor: nemo_run.KubeflowExecutor, handle: str, out: TextIO, ended: Callable[[], bool]) -> None:
    """Print every line of every pod until the job ends; kubectl starts only when the pods have started.

    It is restarted if it ends before the job does, because a pod was replaced or the connection was lost.
    """
    said, seen = "", dict[str, str]()
    while True:
        over, waiting = ended(), waits(executor, job_name(handle))
        if over or not waiting:
            print_logs(executor, handle, not over, out, seen)
        if over:
            return
        if waiting and waiting != said:
            print(f"{time.strftime('%H:%M:%S')}  {job_name(handle)}  {waiting}", file=sys.stderr, flush=True)
        said = waiting
        time.sleep(PAUSE_S)


def waits(executor: nemo_run.KubeflowExecutor, job: str) -> str:
    """Explain why a job has printed nothing yet; empty when all its pods have started."""
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    try:
        api: Any = executor._core_v1_api  # pyright: ignore[reportPrivateUsage]
        pods = api.list_namespaced_pod(executor.namespace, label_selector=f"{JOBSET}={job}").items
    except ApiException as answer:
        return f"its pods cannot be listed: {answer.reason}"
    except HTTPError:
        return "the API server does not answer"
    if len(pods) < executor.num_nodes:
        return f"waiting for pods: {len(pods)} of {executor.num_nodes} exist"
    idle = [pod for pod in pods if pod.status.phase in ("Pending", "Unknown", None)]
    reasons: set[str] = set()
    for status in (pod.status for pod in idle):  # the reason of its containers, else of the scheduler, else its phase
        said = [c.state.waiting for c in status.container_statuses or () if c.state and c.state.waiting]
        said += [c for c in status.conditions or () if c.type == "PodScheduled" and c.status == "False"]
        reasons.add(": ".join(filter(None, (said[0].reason, said[0].message))) if said else str(status.phase))
    return f"waiting for {len(idle)} of {len(pods)} pods: {', '.join(sorted(reasons))}" if idle else ""
