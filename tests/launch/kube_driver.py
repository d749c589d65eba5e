"""The launching machine: one process that submits Kubeflow jobs as `moedsl run` does, and runs moedsl's commands.

Lines of JSON on stdin and stdout: {"submit": ENTRY, "arguments": [...]} submits a small program in place of the recipe,
as two nodes of two ranks, to the cluster of run.moe; {"wait": ID} waits as `moedsl run` does then; {"words": [...]} is a command line, whose jobs
run {"programs": {DISPATCHER: ENTRY}} in place of recipes if that is given, with {"path": PATH}. The answer is {"code",
"out", "err"}; with {"apart": true}, a fork does it, and the answer is its number.
"""

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from attrs import evolve
from kubernetes.config import kube_config

from moedsl.cli import console
from moedsl.cli.commands import launch
from moedsl.cli.main import main
from moedsl.launch import executors, follow, store
from moedsl.launch.script import Payload
from moedsl.launch.submit import Task, submit
from tests.launch import launches


def submitted(file: Path, entry: str, arguments: list[str], count: int) -> int:
    """The exit code of so many like jobs; the experiment's id is on stdout."""
    _, launch, cluster = launches.launched(file.read_text(), "k8s")
    launch = evolve(launch, nodes=2, gpus_per_node=2, ranks_per_node=2)
    payload, home = Payload({"recipe.py": entry}, arguments=tuple(arguments)), executors.home(cluster)
    executors.use_home(home)
    names = [f"{launch.name}.{number}" for number in range(count)]
    job = executors.task(launch, cluster, payload)
    tasks = [Task(name, job, executors.executor(evolve(launch, name=name), cluster, home)) for name in names]
    done = submit(tasks, launch.name, home, print)
    console.say([done.why_not] if done.why_not else [], {})
    return int(done.why_not is not None)


def waited(id: str) -> int:
    experiment = store.find(id)
    assert isinstance(experiment, store.Experiment)
    return follow.report(experiment, follow.wait(experiment))


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        if "programs" in asked:
            path, programs = asked.get("path", os.environ["PATH"]), asked["programs"]
            recipe = patch.object(launch, "recipe_text", lambda plan: programs[plan.policy.dispatcher])
            with recipe, patch.dict(os.environ, PATH=path):
                code = main(asked["words"])
        elif "submit" in asked:
            code = submitted(Path("run.moe"), asked["submit"], asked["arguments"], asked.get("count", 1))
        else:
            code = waited(asked["wait"]) if "wait" in asked else main(asked["words"])
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


def apart(asked: dict[str, Any]) -> int:
    """The number of a fork that does what is asked, as another launching machine's process."""
    pid = os.fork()
    if not pid:
        answer(asked)
        os._exit(0)
    return pid


if __name__ == "__main__":
    kube_config.KUBE_CONFIG_DEFAULT_LOCATION = os.environ["KUBECONFIG"]  # read at an import before this process began
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        asked = json.loads(line)
        answers.write(json.dumps(apart(asked) if asked.pop("apart", False) else answer(asked)) + "\n")
