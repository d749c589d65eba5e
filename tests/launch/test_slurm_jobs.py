"""Jobs on a real Slurm, submitted through NeMo-Run: what each rank got, and what `run` and `tune` leave behind."""

import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from moedsl.cli.commands import launch as run_command
from moedsl.cli.commands.tune import Cluster
from moedsl.cli.main import main
from moedsl.facts import machines
from moedsl.launch import dryrun, follow
from moedsl.launch.script import Payload
from moedsl.launch.store import Experiment
from moedsl.launch.submit import Task, submit
from moedsl.planner.plan import Plan
from tests.helpers import bridge_process
from tests.helpers.tables import table_of
from tests.launch.launches import Patch, cluster, launch, plan
from tests.launch.slurm_cluster import Slurm
from tests.launch.slurm_launch import Planned, answers, payload, planned, run_text

ODD = table_of("launch", "slurm jobs: odd")


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


FACTS = 'executor slurm; hardware h100; account acct; partition h100; job_dir "/tmp"; nodes_per_rack {}'


@pytest.mark.parametrize(("racks", "said"), [(1, "Switches=2@"), (2, "Switches=1@")])
def test_slurm_reads_the_switches(slurm: Slurm, login_node: Path, tmp_path: Path, racks: int, said: str) -> None:
    """Two nodes, in racks of one and of two; the job is held, so nothing runs."""
    on = cluster(FACTS.format(racks))
    sent = dryrun.dryrun([(launch(plan("h100", 16, {"ep": 8}), on), Payload({"p.py": "pass\n"}, "p.py"))], on)
    file = tmp_path / "job.sh"
    file.write_text(next(text for name, text in sent.files.items() if name.endswith("_sbatch.sh")))
    number = slurm.ask("sbatch", "--hold", "--parsable", str(file)).strip().partition(";")[0]
    try:
        assert said in slurm.ask("scontrol", "show", "job", number)
    finally:
        slurm.ask("scancel", number)


PRINTS = """
import os, sys
if os.environ["RANK"] != "3":
    sys.exit()
for i in range(1, 1 + {steps}):
    ms = {ms} * (2 if i < 4 else 1 + i % 3 / 1000)
    print(f" [2026-11-02 10:11:{{i:02d}}] iteration {{i:8d}}/      30 | consumed samples: {{64 * i:12d}} |"
          f" elapsed time per iteration (ms): {{ms:.1f}} | learning rate: 3.000000E-04 | global batch size:    64 |"
          f" lm loss: 1.100000E+01 | loss scale: 1.0 | grad norm: 2.000 |"
          f" number of skipped iterations:   0 | number of nan iterations:   0 |", flush=True)
if {steps} < 30:
    sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.")
"""
TIMES = {1: (30, 2600.0), 2: (30, 2500.0), 4: (5, 2400.0)}
"""Steps and milliseconds by microbatch: the third runs out of memory."""


@pytest.fixture
def run_file(tmp_path: Path, monkeypatch: Patch) -> Path:
    path = tmp_path / "run.moe"
    path.write_text(run_text(4, pins="tp=2 pp=1 ep=2"))
    monkeypatch.setattr("moedsl.bridge.verify.client.is_installed", lambda: False)
    return path


def test_a_sweep_of_three_has_one_table(login_node: Path, run_file: Path, capsys: Any, monkeypatch: Any) -> None:
    """One experiment, a job for each recipe, its results by its id alone."""

    def text(plan: Plan) -> str:
        steps, ms = TIMES[plan.batch.micro_batch]
        return PRINTS.format(steps=steps, ms=ms)

    monkeypatch.setattr(run_command, "recipe_text", text)
    with run_file.open("a") as file:
        file.write("sweep micro_batch in 1, 2, 4\n")
    assert main(["run", str(run_file), "--no-preflight", "--cluster"]) == 1
    id = capsys.readouterr().out.split()[0]
    assert main(["results", id, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [r["status"] for r in data["runs"]] == ["ok", "ok", "failed"]
    assert [r["symptoms"][0]["id"] for r in data["runs"] if r["symptoms"]] == ["std.memory_failures.out_of_memory"]
    one, two, _ = data["runs"]
    assert one["useful_tokens_per_s_per_gpu"]["median"] == pytest.approx(64 * 4096 / 2.6 / 4, rel=0.002)
    assert one["predicted"]["useful_tokens_per_s_per_gpu"] > 0
    (c,) = data["comparisons"]
    assert (c["axis"], c["winner"], c["beyond_spread"]) == ("micro_batch", two["name"], True)
    assert main(["diagnose", id]) == 1
    (said,) = [part for part in capsys.readouterr().out.split("\n\n") if "first to fail" in part]
    assert "first to fail: rank 3 on n" in said and "torch.OutOfMemoryError" in said
    assert main(["diagnose", id, "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["experiment"] == id
    assert [r["first_failure"]["rank"] for r in data["logs"] if r["first_failure"]] == [3]


def test_an_id_that_nobody_has(login_node: Path, capsys: Any) -> None:
    assert main(["results", "nothing_0"]) == 1
    assert "is neither a file nor the id of an experiment" in capsys.readouterr().err


def test_a_job_that_ends_in_its_first_seconds_says_why(login_node: Path, run_file: Path, capsys: Any) -> None:
    """The partition says that it has the plan's GPUs; on the node there is no driver and no Bridge of that version."""
    assert main(["run", str(run_file), "--cluster"]) == 1
    said = capsys.readouterr()
    assert "moedsl preflight: CUDA's driver cannot be loaded" in said.err, said.err
    assert "the preflight check failed (exit code 79): moedsl diagnose 'moedsl preflight:" in said.err
    assert "Exited with exit code 79" in said.err
    assert main(["logs", said.out.split()[0]]) == 0
    assert "exit code 79" in capsys.readouterr().err


@pytest.fixture
def tuned_file(tmp_path: Path, monkeypatch: Patch) -> Path:
    path = tmp_path / "run.moe"
    path.write_text(run_text(4, pins="tp=2 pp=1 ep=2"))
    monkeypatch.setattr("moedsl.bridge.verify.client.is_installed", lambda: False)

    def text(plan: Plan) -> str:
        return PRINTS.format(steps=30, ms=2600.0 if plan.policy.dispatcher == "alltoall" else 2300.0)

    monkeypatch.setattr(run_command, "recipe_text", text)
    return path


def test_two_jobs_and_one_more(
    login_node: Path, tuned_file: Path, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    """Killed while the second job runs; the same command waits for that job, and submits the third."""
    words = [
        "tune", str(tuned_file), "--cluster", "--no-preflight", "-o", str(tmp_path / "way"), "--stop", "0", "--json",
    ]  # fmt: skip
    waited: list[str] = []
    wait = Cluster.wait

    def killed(self: Cluster, id: str) -> Any:
        waited.append(id)
        if len(waited) == 2:
            raise KeyboardInterrupt
        return wait(self, id)

    monkeypatch.setattr(Cluster, "wait", killed)
    assert main([*words, "--budget", "3"]) == 130
    assert "goes on from here" in capsys.readouterr().err
    kept = json.loads((tmp_path / "way" / "journal.json").read_text())["tries"]
    assert [bool(t["row"]) for t in kept] == [True, False]
    assert kept[0]["row"]["status"] == "ok"
    assert main([*words, "--budget", "3"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [t["row"]["status"] for t in data["tries"]] == ["ok", "ok", "ok"]
    assert waited[1] == waited[2] == data["tries"][1]["id"]
    assert data["stop"] == "the budget of 3 jobs is spent"
    assert len({t["id"] for t in data["tries"]}) == 3
    assert (tmp_path / "way" / "journal.svg").read_text().count("<circle") == 3 + 1  # one is the legend's
