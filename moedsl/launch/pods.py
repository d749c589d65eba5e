"""Read the pods of a TrainJob: what they wait for, and what they print."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from shutil import which
from typing import TYPE_CHECKING, Any, TextIO

from moedsl.launch.kubeflow import job_name
from moedsl.launch.pod_template import JOBSET
from moedsl.support.diagnostics import Diagnostic, error

if TYPE_CHECKING:
    import nemo_run

PAUSE_S = 1.0
"""Seconds between two queries about pods that have not started."""
_LINE = re.compile(r"(?P<pod>\[pod/\S+\]) (?P<time>\d{4}-\d\d-\d\dT\S+) ?(?P<text>.*)\n?")
"""A line of `kubectl logs --prefix --timestamps`."""


def no_kubectl() -> Diagnostic | None:
    """Report that kubectl is not installed, so that no log can be read."""
    if which("kubectl"):
        return None
    help = "install it and run this again; jobs continue without it"
    return error("launch.no_kubectl", "kubectl is not installed; it is needed to read the logs of pods", help=help)


def print_logs(
    executor: nemo_run.KubeflowExecutor, handle: str, follow: bool, out: TextIO, seen: dict[str, str] | None = None
) -> int:
    """Print every line of every pod with kubectl; returns its exit code.

    `seen` has the time of the last line of each pod; only later lines are printed. kubectl is asked for everything
    until each pod has printed a line: the first one of a pod may be older than the last one of another. NeMo-Run's own
    reader prints only two ranks, and of them only lines that torchrun marks ``[default0]:``.
    """
    limit, seen = max(8, 2 * executor.num_nodes), {} if seen is None else seen
    words = ["kubectl", "logs", "-n", executor.namespace, "-l", f"{JOBSET}={job_name(handle)}", "--prefix", "--tail=-1"]
    more = [f"--since-time={min(seen.values(), key=_order)}"] if len(seen) >= executor.num_nodes else []
    command = [*words, "--timestamps", f"--max-log-requests={limit}", *more, *(["-f"] if follow else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        try:
            for line in _new(reader.stdout, seen):
                out.write(line)
                out.flush()
        except BaseException:  # Ctrl-C of this process alone: kubectl would go on to the job's end
            reader.terminate()
            raise
    return reader.returncode


def _new(lines: Iterable[str], seen: dict[str, str]) -> Iterator[str]:
    """The new lines, without their times, which are added to `seen`."""
    before = dict(seen)
    for line in lines:
        found = _LINE.match(line)
        if not found:  # what kubectl itself has to say
            yield line
        elif _order(found["time"]) > _order(before.get(found["pod"], "")):
            seen[found["pod"]] = found["time"]
            yield f"{found['pod']} {found['text']}\n"


def _order(time: str) -> str:
    """Write a time so that times of one zone sort as text, with any number of digits in their fractions."""
    whole, _, fraction = time.rstrip("Z").partition(".")
    return f"{whole}.{fraction:0<9}"


def follow(executor: nemo_run.KubeflowExecutor, handle: str, out: TextIO, ended: Callable[[], bool]) -> None:
    """Print every line of every pod until the job ends; kubectl is started only when the pods have started.

    kubectl is started again if it ends before the job, because a pod was replaced or the connection was lost.
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
    """Write why a job has printed nothing yet; empty when all its pods have started."""
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    try:
        api: Any = executor._core_v1_api  # pyright: ignore[reportPrivateUsage]
        pods = api.list_namespaced_pod(executor.namespace, label_selector=f"{JOBSET}={job}").items
    except ApiException as answer:
        return f"its pods cannot be listed: {answer.reason}"
    except HTTPError:
        return "the API server does not answer"
    return waiting(pods, executor.num_nodes)


def waiting(pods: Sequence[Any], nodes: int) -> str:
    """Write why pods of the kubernetes package have not started."""
    if len(pods) < nodes:
        return f"waiting for pods: {len(pods)} of {nodes} exist"
    idle = [pod for pod in pods if not _has_started(pod)]
    if not idle:
        return ""
    reasons = ", ".join(sorted({_reason(pod) for pod in idle}))
    return f"waiting for {len(idle)} of {len(pods)} pods: {reasons}"


def _has_started(pod: Any) -> bool:
    return pod.status.phase not in ("Pending", "Unknown", None)


def _reason(pod: Any) -> str:
    """Write why one pod waits: by its containers, else by the scheduler, else by its phase."""
    for container in pod.status.container_statuses or ():
        if container.state and container.state.waiting:
            return _joined(container.state.waiting)
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return _joined(condition)
    return str(pod.status.phase)


def _joined(said: Any) -> str:
    return ": ".join(filter(None, (said.reason, said.message)))
