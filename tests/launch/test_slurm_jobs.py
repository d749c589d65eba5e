"""Jobs on a real Slurm, submitted through NeMo-Run: what each rank got."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attrs import evolve

from moedsl.facts import machines
from moedsl.launch import follow
from moedsl.launch.store import Experiment
from moedsl.launch.submit import Task, submit
from tests.helpers import bridge_process
from tests.launch.slurm_launch import Planned, answers, payload, planned

ODD = {
    "SPACES": "two  words ",
    "QUOTES": 'it\'s "quoted"',
    "DOLLARS": "$HOME ${PATH} $(hostname) `id`",
    "COMMANDS": "a && b; c | d > /tmp/x & #e",
    "LINES": "one\ntwo\\n\tthree",
    "LETTERS": "Zürich 日本 \\ %j *",
    "mixedCase": "kept",
}


def moe(variables: dict[str, str]) -> str:
    """The facts of a cluster that state variables; backslash, quote and newline are what a string escapes."""
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    return "env {" + "; ".join(f'{name} "{value.translate(escapes)}"' for name, value in variables.items()) + "}"


def finished(tasks: list[Task], home: Path) -> Experiment:
    """The experiment of those tasks once all have ended; each must succeed."""
    done = submit(tasks, "probe", home, print)
    assert done.experiment is not None, done.why_not
    jobs = follow.wait(done.experiment)
    assert follow.report(done.experiment, jobs) == 0
    return done.experiment


def log_of(experiment: Experiment) -> str:
    (job,) = experiment.jobs()
    return "\n".join(path.read_text() for path in sorted(Path(job.folder).glob("log*")))


def probe(made: Planned) -> str:
    launch = made.launch
    return json.dumps(
        {
            "nodes": launch.nodes,
            "ranks_per_node": launch.ranks_per_node,
            "gpus_per_node": launch.gpus_per_node,
            "variables": launch.variables,
        }
    )


@pytest.mark.parametrize("nodes", [2, 16])
def test_each_rank_is_where_it_should_be_and_has_what_it_was_given(login_node: Path, nodes: int) -> None:
    made = planned(nodes * 4, moe(ODD))
    assert ODD.items() <= made.launch.variables.items()
    experiment = finished([made.task(login_node, payload("probe.py", probe(made), *ODD.values()))], login_node)
    said = answers(log_of(experiment))
    assert [answer["rank"] for answer in said] == list(range(nodes * 4))
    assert [answer["wrong"] for answer in said] == [{}] * (nodes * 4)
    assert all(answer["arguments"] == list(ODD.values()) for answer in said)
    assert len({answer["node"] for answer in said}) == nodes
    assert len({answer["master"] for answer in said}) == 1
    assert {answer["standin"].get("STANDIN_SEGMENT") for answer in said} == {str(made.launch.segment)}


def test_a_containers_options_reach_the_rank(login_node: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "corpus").write_text("tokens")
    inside = tmp_path / "inside"
    image = "nvcr.io#nvidia/nemo:26.04"
    made = planned(8, f'container "{image}"; mounts ["{tmp_path}/data:{inside}"]; ' + moe(ODD))
    reads = f"import pathlib; assert pathlib.Path({str(inside / 'corpus')!r}).read_text() == 'tokens'\n"
    checks = payload("probe.py", probe(made))
    checks = evolve(checks, files={"probe.py": reads + checks.files["probe.py"]})
    said = answers(log_of(finished([made.task(login_node, checks)], login_node)))
    assert [answer["wrong"] for answer in said] == [{}] * 8
    options = said[0]["standin"]
    assert options["STANDIN_IMAGE"] == image
    assert f"{tmp_path}/data:{inside}" in options["STANDIN_MOUNTS"].split(",")
    assert {"STANDIN_NO_MOUNT_HOME", "STANDIN_WRITABLE"} <= set(options)
    assert list(inside.iterdir()) == []  # mounted for the job alone


def test_the_process_groups_on_the_jobs_world_are_the_plans_meshes(login_node: Path, tmp_path: Path) -> None:
    """torchrun and its ranks are forks of a process that has imported torch."""
    made = planned(8, "launcher torchrun")
    made = evolve(made, cluster=evolve(made.cluster, python=str(bridge_process.python(tmp_path, "torch"))))
    layout = made.plan.layout.to_json()
    asked = json.dumps({"layout": layout, "meshes": machines.rank_groups(layout)})
    experiment = finished([made.task(login_node, payload("groups.py", asked))], login_node)
    said = answers(log_of(experiment))
    assert [(answer["rank"], answer["world"], answer["wrong"]) for answer in said] == [
        (rank, 8, {}) for rank in range(8)
    ]
    assert len({answer["node"] for answer in said}) == 2
