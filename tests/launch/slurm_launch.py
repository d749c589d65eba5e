"""From a run file to tasks with a program for the CPU in the recipe's place: the rest is what `moedsl run` does."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from moedsl.launch import executors
from moedsl.launch.derive import Launch
from moedsl.launch.script import Payload
from moedsl.launch.submit import Task
from moedsl.planner.plan import Plan
from moedsl.rules.check.cluster_facts import Cluster
from tests.helpers.tables import table_of
from tests.launch import launches

PAYLOADS = Path(__file__).parent / "payloads"
MOE = "qwen3_30b_a3b; gb200 x {gpus}; seq 4k; batch 64; pin {pins}"
CLUSTER = table_of("launch", "cluster here")


@frozen
class Planned:
    """One run of a file and what launches it."""

    plan: Plan
    launch: Launch
    cluster: Cluster

    def task(self, base: Path, payload: Payload, name: str = "", after: Sequence[str] = ()) -> Task:
        launch = evolve(self.launch, name=name or self.launch.name)
        executor = executors.executor(launch, self.cluster, base)
        return Task(launch.name, executors.task(launch, self.cluster, payload), executor, tuple(after))


def run_text(gpus: int, more: str = "", pins: str = "tp=2 pp=2 ep=2") -> str:
    """A small run, and a cluster with `more` facts."""
    return MOE.format(gpus=gpus, pins=pins) + CLUSTER.format(python=sys.executable, more=more)


def planned(gpus: int, more: str = "", pins: str = "tp=2 pp=2 ep=2") -> Planned:
    """What launches that run on that cluster."""
    return Planned(*launches.launched(run_text(gpus, more, pins), "here"))


def payload(name: str, *arguments: str) -> Payload:
    return Payload({name: (PAYLOADS / name).read_text()}, entry=name, arguments=arguments)


def program(text: str) -> Payload:
    return Payload({"program.py": text}, entry="program.py")


def answers(log: str) -> list[dict[str, Any]]:
    """The lines that the ranks of a probe have written, by rank."""
    return sorted(_json_lines(log), key=lambda answer: answer["rank"])


def _json_lines(log: str) -> Iterator[dict[str, Any]]:
    for line in log.splitlines():
        start = line.find('{"rank"')  # torchrun writes which process a line is of before it
        if start >= 0:
            yield json.loads(line[start:])
