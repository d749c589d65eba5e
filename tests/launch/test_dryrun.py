"""A dry run: what would be sent, byte for byte; the same bytes again, from `run`, and from the script that is kept."""

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from moedsl.cli.main import main
from moedsl.launch import executors, local, store
from moedsl.launch.dryrun import dryrun
from moedsl.launch.nemo import HOME, no_input
from moedsl.launch.script import Payload, word
from moedsl.launch.store import LONGEST_TITLE as LONGEST
from moedsl.launch.store import experiment_title as title
from moedsl.planner.plan import Plan
from moedsl.rules.check.cluster_facts import Cluster
from moedsl.rules.check.cluster_reader import DERIVED_SBATCH
from tests.helpers import forks
from tests.helpers.paths import ROOT
from tests.helpers.plans import PLANS, changed
from tests.helpers.tables import table_of
from tests.launch.launches import Capture, Patch, launch, plan, slurm

CONTAINER = 'container "nvcr.io/nvidia/nemo:26.02"; mounts ["/lustre:/lustre"]; secrets [HF_TOKEN]'
SSH = 'tunnel ssh; host "login.example.org"; user alice; identity "/keys/id_ed25519"'
ROW = "qwen3_30b_a3b; h100 x 16; seq 4k; batch 64; pin tp=1 pp=1 ep=8 cp=1 etp=1"
SHORT = Payload({"recipe.py": "print('the recipe')\n"})
LAUNCHES: dict[str, tuple[Plan, Cluster]] = {
    "h100_plain": (PLANS["qwen3_30b_h100_bf16"], slurm("h100")),
    "h100_torchrun_gres": (PLANS["qwen3_30b_h100_fsdp"], slurm("h100", "launcher torchrun; request gres; offline on")),
    "gb200_container": (PLANS["qwen3_235b_gb200_mxfp8_overlap"], slurm("gb200", CONTAINER)),
    "gb200_ssh": (PLANS["qwen3_235b_gb200_whole_graph_nvfp4"], slurm("gb200", f"{CONTAINER}; {SSH}")),
    "one_gpu": (plan("h200", 1, {"ep": 1}), slurm("h200", "request none; qos low; time 30")),
    "stated": (
        changed(plan("b300", 16, {"ep": 16}), set={"train.exit_signal_handler": True, "ddp.nccl_ub": True}),
        slurm(
            "b300", 'srun_args ["--mpi=none"]; sbatch { reservation "our own" }; env { A "x y" }; job_name_prefix "me."'
        ),
    ),
}


Write = Callable[[str], str]


class Text(SingleFileSnapshotExtension):
    """One text file for each snapshot, beside the test."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.setenv(HOME, str(tmp_path / "nemo"))
    behind_ssh = tmp_path / "nemo" / "clusters" / "lab"
    behind_ssh.mkdir(parents=True)
    (behind_ssh / store.MARK_FILE).write_text("k7f3qx")
    return tmp_path / "nemo"


@pytest.fixture
def run_file(tmp_path: Path) -> Write:
    """Writes a run file with `text` after its row; its path."""

    def write(text: str) -> str:
        (tmp_path / "run.moe").write_text(text if text.startswith("\n") else f"{ROW}\n{text}\n")
        return str(tmp_path / "run.moe")

    return write


def kept(file: str) -> Path:
    """The launch.py that `compile` makes of a run file."""
    out = Path(file).with_name("out")
    assert main(["compile", file, "--emit", "launch", "-o", str(out)]) == 0
    return out / "launch.py"


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: Patch) -> Callable[[str], None]:
    """Puts an `sbatch` of that text first in PATH, which keeps what it is given in $TAKEN."""

    def use(text: str) -> None:
        (tmp_path / "sbatch").write_text(text)
        (tmp_path / "sbatch").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setenv("TAKEN", str(tmp_path))

    return use


@pytest.mark.parametrize("which", LAUNCHES)
def test_what_is_sent(which: str, snapshot: SnapshotAssertion) -> None:
    made, on = LAUNCHES[which]
    sent = dryrun([(launch(made, on), SHORT)], on)
    assert sent == dryrun([(launch(made, on), SHORT)], on)
    whole = "\n".join(f"==> {name}\n{text}" for name, text in sent.files.items())
    assert whole == snapshot(extension_class=Text)


def test_it_writes_nothing_where_experiments_are(home: Path) -> None:
    on = evolve(slurm("h100"), job_dir="")
    sent = dryrun([(launch(plan("h100", 16, {"ep": 8}), on), SHORT)], on)
    assert sent.folder.startswith(f"{home}/experiments/") and not (home / "experiments").exists()


def test_the_next_experiment_has_the_next_number(home: Path) -> None:
    on = evolve(slurm("h100"), job_dir="")
    made = launch(plan("h100", 16, {"ep": 8}), on)
    for taken in ("_0", "_1"):
        (home / "experiments" / made.name / f"{made.name}{taken}").mkdir(parents=True)
    assert dryrun([(made, SHORT)], on).experiment == f"{made.name}_2"


def test_machines_that_share_a_folder_behind_ssh_have_ids_of_their_own(tmp_path: Path, monkeypatch: Patch) -> None:
    """Each draws its mark once: a dry run prints the same again, and no two print the same."""
    made, on = LAUNCHES["gb200_ssh"]
    sent: list[str] = []
    for laptop in ("a", "a", "b"):
        monkeypatch.setenv(HOME, str(tmp_path / laptop))
        sent.append(dryrun([(launch(made, on), SHORT)], on).folder)
    assert sent[0] == sent[1] != sent[2]
    assert all(
        re.fullmatch(rf"/shared/runs/[^/]+/[^/]+_0-[{store.MARK_LETTERS}]{{{store.MARK_LENGTH}}}", folder)
        for folder in sent
    )


def test_several_jobs_are_one_experiment() -> None:
    on = slurm("h100")
    jobs = [launch(changed(plan("h100", 16, {"ep": 8}), name=n), on) for n in ("a", "b")]
    sent = dryrun([(j, SHORT) for j in jobs], on, "runs/two of them.moe")
    assert len(sent.files) == 4 and sent.experiment == "two-of-them_0"
    assert all(f"two-of-them/{sent.experiment}/" in text for n, text in sent.files.items() if "sbatch" in n)


# ---------------------------------------------------------------- the same bytes

SBATCH = """#!/bin/bash
cp "${@: -1}" "$TAKEN/sbatch.sh"
job="$(grep -o '/[^ ]*/scripts/[^ ]*\\.sh' "${@: -1}" | tail -1)"
cp "$job" "$TAKEN/job.sh"
echo 1
"""


def test_what_is_submitted_is_what_the_dry_run_said(home: Path, tmp_path: Path, sbatch: Callable[[str], None]) -> None:
    """NeMo-Run submits to an `sbatch` that keeps what it was given."""
    import nemo_run

    sbatch(SBATCH)
    on = evolve(slurm("h100", 'env { A "x" }'), job_dir=str(home))
    made = launch(plan("h100", 16, {"ep": 8}), on)
    sent = dryrun([(made, SHORT)], on)
    executors.use_home(home)
    experiment = nemo_run.Experiment(made.name, id=sent.experiment, clean_mode=True, skip_status_at_exit=True)
    with no_input(), experiment:
        experiment.add(executors.task(made, on, SHORT), executors.executor(made, on, home), name=made.name)
        experiment.run(detach=True)
    assert [(tmp_path / name).read_text() for name in ("sbatch.sh", "job.sh")] == [*sent.files.values()]


@pytest.mark.parametrize("facts", ['job_dir "{}"; env {{ A "it\'s $x `id`" }}', f'job_dir "/r"; {CONTAINER}; {SSH}'])
def test_the_script_that_is_kept_submits_the_same(facts: str, home: Path, run_file: Write, capsys: Capture) -> None:
    file = run_file(f"cluster lab {{ executor slurm; hardware h100; {facts.format(home)} }}")
    script = kept(file)
    capsys.readouterr()
    assert main(["run", file, "--cluster", "--dryrun", "--json"]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    done = forks.run(str(script), "--dryrun", cwd=Path(file).parent)
    assert done.returncode == 0, done.stderr
    assert all(text in done.stdout for text in files.values())
    assert not list((home / "experiments").rglob("*.sh"))


CHAIN = """
qwen3_30b_a3b; h100 x 16; seq 4k; batch 64; pin tp=1 pp=1 ep=8 cp=1 etp=1; data "/d"
set checkpoint.save = "/shared/run"; for 30 days; resilience preemption
cluster lab {{ executor slurm; hardware h100; job_dir "{home}"; chain on; time "{limit}:00:00" }}
"""
COUNTS = """#!/bin/bash
number=$(($(cat "$TAKEN/jobs" 2> /dev/null | wc -l) + 1))
echo "${@:1:$#-1} ${@: -1:1}" >> "$TAKEN/jobs"
cat "${@: -1}" >> "$TAKEN/texts"
echo "$number"
"""


def test_the_script_that_is_kept_submits_the_chain(
    home: Path, tmp_path: Path, run_file: Write, sbatch: Callable[[str], None], monkeypatch: Patch
) -> None:
    """The same jobs in the same order as `moedsl run`, to an `sbatch` that writes down what it was given."""
    sbatch(COUNTS)
    file = run_file(CHAIN.format(home=home, limit=200))
    script = kept(file)
    sent = list[str]()
    for submit in (
        lambda: forks.run(str(script)).returncode,
        lambda: main(["run", file, "--cluster", "--no-preflight", "--detach"]),
    ):
        taken = tmp_path / f"taken{len(sent)}"
        taken.mkdir()
        monkeypatch.setenv("TAKEN", str(taken))
        assert submit() == 0
        sent.append((taken / "jobs").read_text() + (taken / "texts").read_text())
    first, *more = [line for line in sent[0].splitlines() if line.endswith("_sbatch.sh")]
    assert len(more) > 1 and "afterany:0" not in first
    assert all(f"afterany:{n}" in job for n, job in enumerate(more, 1))
    assert sent[0].replace("_0/", "_1/") == sent[1]


def test_a_dry_run_of_a_chain_is_its_first_job(
    home: Path, tmp_path: Path, run_file: Write, sbatch: Callable[[str], None], capsys: Capture
) -> None:
    """Each job reads its number from its name; `sbatch` gets the bytes that the dry run of both launchers prints."""
    sbatch(COUNTS)
    file = run_file(CHAIN.format(home=home, limit=200))
    script = kept(file)
    capsys.readouterr()
    assert main(["run", file, "--cluster", "--dryrun", "--full"]) == 0
    local = capsys.readouterr().out.partition("==> ")[2]
    assert local == forks.run(str(script), "--dryrun").stdout.partition("==> ")[2]
    text, _, line = local.split("==> ")
    assert main(["run", file, "--cluster", "--no-preflight", "--detach"]) == 0
    jobs = [line.split() for line in (tmp_path / "jobs").read_text().splitlines()]
    names = [Path(words[-1]).name.removesuffix("_sbatch.sh") for words in jobs]
    assert (tmp_path / "texts").read_text().startswith(text.partition("\n")[2].rstrip("\n"))
    assert f"#SBATCH --job-name=moedsl.{names[0]}\n" in text and names[0].endswith(".1")
    assert line.startswith(f"{names[1]} to {names[-1]}: ") and "--dependency=afterany:" in line
    assert "--dependency=afterany:1" in jobs[1]


KUBECONFIG = """apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
"""


@pytest.fixture
def unreachable(tmp_path: Path, monkeypatch: Patch) -> None:
    """The current context of this process's kubeconfig is a server that does not answer."""
    from kubernetes.config import kube_config

    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))


def test_the_script_that_is_kept_posts_the_same(run_file: Write, unreachable: None, capsys: Capture) -> None:
    """But for the six digits of its name."""
    import yaml

    facts = 'executor kubeflow; hardware h100; container img; namespace team; queue q; env { A "$(x) $y $$" }'
    file = run_file(f"cluster lab {{ {facts} }}")
    script = kept(file)
    capsys.readouterr()
    assert main(["run", file, "--cluster", "--dryrun", "--json"]) == 0
    (manifest,) = json.loads(capsys.readouterr().out)["files"].values()
    done = forks.run(str(script), "--dryrun")
    assert done.returncode == 0, done.stderr
    local, there = json.loads(done.stdout), yaml.safe_load(manifest)
    drawn, name = local["metadata"]["name"], there["metadata"]["name"]
    assert json.loads(json.dumps(local).replace(drawn, name)) == there


def test_an_api_server_that_cannot_be_reached_is_said(
    home: Path, run_file: Write, unreachable: None, capsys: Capture
) -> None:
    """Without the preflight too, and before anything is written."""
    file = run_file("cluster lab { executor kubeflow; hardware h100; container img }")
    assert main(["run", file, "--cluster", "--no-preflight", "--detach"]) == 1
    assert "error[launch.refused]: not submitted: the API server cannot be reached" in capsys.readouterr().err
    assert not (home / "experiments").exists()


def test_what_is_edited_is_what_the_kept_script_submits(home: Path, run_file: Write) -> None:
    """A recipe; and a dependency as an argument, as the refusal of `sbatch { dependency ... }` says to write it."""
    script = kept(run_file(f'cluster lab {{ executor slurm; hardware h100; job_dir "{home}" }}'))
    script.with_name("recipe.py").write_text("print('mine: \u00e4')\nMOEDSL_END_OF_FILE\n")
    line = 'additional_parameters={"dependency": "afterok:JOB"}'
    assert line in DERIVED_SBATCH["dependency"]
    script.write_text(script.read_text().replace("nodes=", f"{line.replace('JOB', '12')}, nodes=", 1))
    done = forks.run(str(script), "--dryrun")
    assert "<<'MOEDSL_END_OF_FILE_'\nprint('mine: \\xe4')\nMOEDSL_END_OF_FILE\nMOEDSL_END_OF_FILE_\n" in done.stdout
    assert "#SBATCH --dependency=afterok:12\n" in done.stdout, done.stderr


def test_what_comes_after_the_kept_script_is_to_run_it(run_file: Write, capsys: Capture) -> None:
    file = run_file("cluster lab { executor slurm; hardware h100 }")
    script = kept(file)
    said = capsys.readouterr().out
    assert f"python {script}" in said and "torchrun" not in said
    assert main(["compile", file, "-o", str(script.parent), "--force"]) == 0
    assert "torchrun" in capsys.readouterr().out


# ---------------------------------------------------------------- the command


def test_what_is_derived_is_shown_with_its_rules(run_file: Write, capsys: Capture, monkeypatch: Patch) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    file = run_file("cluster lab { executor slurm; hardware h100; secrets [HF_TOKEN] }")
    assert main(["run", file, "--cluster", "--dryrun"]) == 0
    out, told = capsys.readouterr()
    assert told.startswith("warning[launch.unset_secret]: cluster lab needs the secrets HF_TOKEN")
    for said in ("nodes=2", "[std.launch.nodes]", "CUDA_DEVICE_MAX_CONNECTIONS=", "[std.environment.", "HF_TOKEN"):
        assert said in out.partition("==> ")[0]
    assert "#SBATCH --nodes=2" in out


def test_the_files_that_a_script_writes_are_printed_with_full(run_file: Write, capsys: Capture) -> None:
    file = run_file('cluster lab { executor slurm; hardware h100; time "12:00:00" }')
    words = ["run", file, "--cluster", "--dryrun"]
    said: dict[str, str] = {}
    for more in ("", "--full", "--only sbatch", "--only script", "--json"):
        assert main([*words, *more.split()]) == 0
        said[more] = capsys.readouterr().out
    files = json.loads(said["--json"])["files"]
    assert [said["--only sbatch"], said["--only script"]] == [*files.values()]
    assert "recipe.py: " in said[""] and "def " not in said[""] and "import " not in said[""]
    lines = sum(int(n) for n in re.findall(r"^# writes \S+: (\d+) lines", said[""], re.MULTILINE))
    written = len(re.findall(r"<<'MOEDSL_END_OF_FILE_*'\n", said["--full"]))
    # each file is one line, and the lines before, after and below it are gone
    assert len(said["--full"].splitlines()) - len(said[""].splitlines()) == lines + 2 * written
    assert "12 hours a job at most: 192 GPU-hours on 16 GPUs" in said[""]
    assert main([*words, "--only", "manifest"]) == 1


@pytest.mark.parametrize(("place", "facts", "more"), table_of("launch", "dryrun: homes"))
def test_a_home_that_cannot_be_used_is_said(
    place: str, facts: str, more: str, run_file: Write, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    """By NeMo-Run, or because it takes no mark: as the submission would, the dry run refuses it."""
    (tmp_path / "file").touch()
    monkeypatch.setenv(HOME, str(tmp_path / place))
    file = run_file(f"cluster lab {{ executor slurm; hardware h100; {facts} }}")
    assert main(["run", file, "--cluster", more]) == 1
    assert "error[launch.home]" in capsys.readouterr().err


def test_a_local_dry_run_is_the_script(capsys: Capture) -> None:
    assert main(["run", "-e", ROW, "--dryrun", "--json"]) == 0
    (text,) = json.loads(capsys.readouterr().out)["files"].values()
    assert "torch.distributed.run --standalone --nnodes=1 --nproc-per-node=16" in text
    ours = word(sys.executable)  # need not be the first python3 of PATH, which may lack Bridge
    assert f'\n{ours} "$MOEDSL_FILES/preflight.py"' in text
    assert f"\nexec {ours} -P -m torch" in text


def test_what_this_machine_lacks(monkeypatch: Patch, capsys: Capture) -> None:
    """GPUs; or a package that training imports: the first run on a real GPU ended in that import after a minute."""
    for gpus, words, says in (
        (8, ["-e", ROW], "the plan is for 16 GPUs, and this machine has 8"),
        (0, [str(ROOT / "examples" / "smoke.moe")], "the plan is for 1 GPU, and this machine has none"),
        (0, [str(ROOT / "examples" / "smoke.moe")], "`moedsl rehearse` runs a small version on CPUs\n"),
    ):
        monkeypatch.setattr(local, "gpus", lambda gpus=gpus: gpus)
        assert main(["run", *words]) == 1
        assert says in capsys.readouterr().err
    assert main(["run", "-e", "nemotron_3_nano; h100 x 16; seq 8k"]) == 1
    assert "rehearse" not in capsys.readouterr().err  # its Mamba layers need a GPU
    monkeypatch.setattr(local, "gpus", lambda: 16)
    monkeypatch.setattr(local, "find_spec", lambda package: package != "nvidia_resiliency_ext")
    assert main(["run", "-e", ROW]) == 1
    assert "that Bridge's training imports: nvidia_resiliency_ext" in capsys.readouterr().err


def test_a_run_that_is_not_there(capsys: Capture) -> None:
    assert main(["run", "-e", ROW, "--run", "mian", "--dryrun"]) == 1
    assert "did you mean `main`?" in capsys.readouterr().err


SWEEP = ("qwen3_16gpu_h100_bf16.main.micro_batch_1", "qwen3_16gpu_h100_bf16.main.micro_batch_2")


@pytest.mark.parametrize(
    "jobs, source, called",
    [
        (SWEEP[:1], "runs/ladder.moe", SWEEP[0]), (SWEEP, "runs/ladder.moe", "ladder"),
        (SWEEP, "my runs (old).v2.moe", "my-runs-old-.v2"),
        (SWEEP, "<text>", "qwen3_16gpu_h100_bf16.main.micro_batch"),
        (SWEEP, "", "qwen3_16gpu_h100_bf16.main.micro_batch"),
        (SWEEP, "...moe", "qwen3_16gpu_h100_bf16.main.micro_batch"), (("a_8gpu", "a_16gpu"), "<stdin>", "a"),
        (("ab", "ac"), "<stdin>", "runs"), (SWEEP, f"{'x' * 200}.moe", "x" * LONGEST),
    ],
)  # fmt: skip
def test_a_title(jobs: tuple[str, ...], source: str, called: str) -> None:
    assert title(jobs, source) == called
