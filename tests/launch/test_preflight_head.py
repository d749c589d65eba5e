"""The first seconds of a job, run for real: a container that is right, and one thing wrong at a time."""

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve

from moedsl.compiler import compile_source, load_stdlib
from moedsl.diagnose import scan
from moedsl.launch.derive import Launch, derive
from moedsl.launch.in_job import head_check
from moedsl.launch.script import Payload, script, with_preflight
from moedsl.planner.plan import Plan
from moedsl.rules.check import cluster_reader
from moedsl.rules.check.cluster_facts import Cluster
from moedsl.support.source import Source
from tests.helpers.plans import changed

HERE = Path(__file__).resolve().parent
RUN = """
cluster lab { executor slurm; hardware h100; job_dir "/runs"; offline on }
qwen3_30b_a3b; h100 x 16; seq 4k; batch 256; fit first; pin dispatcher=deepep
data "FOLDER/data/corpus"
"""
H100 = "NVIDIA H100 80GB HBM3|9|0|85028765696"
GB200 = "NVIDIA GB200|10|0|198910000000"
PROBE = "print('the rank runs')\n"
STEP = {"SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1", "SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "16",
        "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}  # fmt: skip
Job = tuple[Plan, Launch, Cluster]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    text = RUN.replace("FOLDER", str(tmp_path_factory.mktemp("files")))
    result = compile_source(Source("run.moe", text))
    assert not result.failed, result.diagnostics
    cluster, _ = cluster_reader.read(result.library.clusters["lab"], result.library)
    assert cluster is not None
    launch, _ = derive(result.plans[0], cluster, result.library)
    assert launch is not None
    return result.plans[0], launch, cluster


class Container:
    """What a container has: packages by distribution, modules, GPUs, files."""

    def __init__(self, folder: Path, driver: Path, job: Job) -> None:
        self.folder, self.driver, self.job = folder, driver, job
        self.gpus, self.variables = [H100] * 8, dict[str, str]()
        for name, version in (("megatron-bridge", "0.6.2"), ("torch", "2.11.0"), ("transformer-engine", "2.20.2")):
            self.package(name, version)
        self.module("deep_ep", "class Buffer: pass\n")
        data = Path(job[0].policy.data)
        data.parent.mkdir(exist_ok=True)
        data.with_suffix(".idx").touch()
        self.file(f"hub/models--Qwen--Qwen3-30B-A3B/snapshots/{job[0].revision}/config.json")

    def package(self, name: str, version: str | None) -> None:
        info = self.folder / "site" / f"{name.replace('-', '_')}.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        if version is None:
            (info / "METADATA").unlink()
            info.rmdir()
        else:
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")

    def module(self, name: str, text: str) -> None:
        self.file(f"site/{name}.py", text)

    def file(self, name: str, text: str = "") -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(self, **step: str) -> subprocess.CompletedProcess[str]:
        """The job's own script in bash, with an interpreter that has no packages but the container's."""
        plan, launch, cluster = self.job
        python = self.folder / "python"
        python.write_text(f'#!/bin/bash\nexec {Path(sys.executable).resolve()} -S "$@"\n')
        python.chmod(0o755)
        own = evolve(cluster, python=str(python))
        text = script(launch, own, with_preflight(Payload({"recipe.py": PROBE}), plan, launch, own))
        env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(self.folder / "site"),
            "LD_LIBRARY_PATH": str(self.driver),
            "STANDIN_GPUS": ";".join(self.gpus),
            "HF_HUB_CACHE": str(self.folder / "hub"),
            "TMPDIR": str(self.folder),
            **STEP,
            **self.variables,
            **step,
        }
        return subprocess.run(["bash", "-c", text], env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def container(tmp_path: Path, driver: Path, job: Job) -> Container:
    return Container(tmp_path, driver, job)


def test_the_right_container_runs(container: Container) -> None:
    done = container.run()
    assert (done.returncode, done.stdout) == (0, PROBE.split("'")[1] + "\n"), done.stderr
    assert "preflight" not in done.stderr


def stops(container: Container, *reasons: str, **step: str) -> str:
    """The job ends with the code of a check, and says why; the rank does not run."""
    done = container.run(**step)
    assert done.returncode == head_check.WRONG == 79, (done.returncode, done.stderr)
    assert done.stdout == ""
    for reason in reasons:
        assert reason in done.stderr
    assert done.stderr.count("moedsl preflight: ") == len(reasons)
    return done.stderr


def needing_torch(container: Container) -> None:
    needs = [{"product": "torch", "at_least": "2.12", "rule": "house.torch", "because": "of a test"}]
    container.job = (changed(container.job[0], needs=needs), *container.job[1:])


def cached_at_another_commit(container: Container) -> None:
    hub = container.folder / "hub" / "models--Qwen--Qwen3-30B-A3B" / "snapshots"
    (hub / str(container.job[0].revision)).rename(hub / "abc")


def old_bridge_on_gb200(container: Container) -> None:
    container.package("megatron-bridge", "0.5.1")
    container.gpus = [GB200] * 8


LIBRARY = "print('hello')\nraise OSError('libnvshmem_host.so.3: cannot open shared object file')\n"
FEWER = "CUDA sees 1 GPUs, and 8 ranks run on a node (CUDA_VISIBLE_DEVICES is 3)"
WRONG: dict[str, tuple[Callable[[Container], object], tuple[str, ...]]] = {
    "another version of Bridge": (
        lambda c: c.package("megatron-bridge", "0.5.1"),
        ("moedsl preflight: bridge is 0.5.1 here, and the recipe is written for 0.6.2\n",),
    ),
    "no Bridge": (
        lambda c: c.package("megatron-bridge", None),
        ("bridge is not installed here, and the recipe is written for 0.6.2",),
    ),
    "an old package": (needing_torch, ("torch is 2.11.0 here, and the plan needs 2.12: of a test",)),
    "no package of the dispatcher": (
        lambda c: (c.folder / "site" / "deep_ep.py").unlink(),
        ("deep_ep cannot be imported (ModuleNotFoundError: No module named 'deep_ep')",),
    ),
    "an extension that does not load": (
        lambda c: c.module("deep_ep", LIBRARY), ("deep_ep cannot be imported (OSError: libnvshmem_host.so.3",)
    ),
    "other GPUs": (lambda c: setattr(c, "gpus", [GB200] * 8), ("GPU 0 is NVIDIA GB200: the plan is for H100",)),
    "less memory": (
        lambda c: setattr(c, "gpus", ["NVIDIA H100 64GB|9|0|68000000000"] * 8),
        ("it has 68 GB, and the plan expects 85",),
    ),
    "fewer GPUs than ranks": (
        lambda c: (setattr(c, "gpus", [H100]), c.variables.update(CUDA_VISIBLE_DEVICES="3")), (FEWER,)
    ),
    "CUDA that does not start": (
        lambda c: c.variables.update(STANDIN_INIT="802"),
        ("CUDA does not start: CUDA_ERROR_SYSTEM_NOT_READY (802)",),
    ),
    "no driver": (lambda c: setattr(c, "driver", c.folder), ("CUDA's driver cannot be loaded",)),
    "data that is not mounted": (
        lambda c: Path(c.job[0].policy.data).with_suffix(".idx").unlink(), ("{data} does not exist here: is it mounted?",)
    ),
    "a configuration that is not cached": (
        lambda c: c.variables.update(HF_HUB_CACHE=str(c.folder / "empty")),
        ("the configuration of Qwen/Qwen3-30B-A3B at commit {commit} is not in",),
    ),
    "a configuration at another commit": (cached_at_another_commit, ("at commit {commit} is not in",)),
    "everything at once": (old_bridge_on_gb200, ("bridge is 0.5.1", "GPU 0 is NVIDIA GB200")),
}  # fmt: skip
"""What is made wrong of a container, and what the check says of it."""


@pytest.mark.parametrize("what", WRONG)
def test_one_thing_is_wrong(what: str, container: Container) -> None:
    make, reasons = WRONG[what]
    make(container)
    plan, _, _ = container.job
    stops(container, *(r.format(data=plan.policy.data, commit=plan.revision) for r in reasons))


@pytest.mark.parametrize("version", ["0.6.2+0a1b2c3", "0.6.2.0"])
def test_the_same_version_said_otherwise(container: Container, version: str) -> None:
    container.package("megatron-bridge", version)
    assert container.run().returncode == 0


def test_a_source_tree_of_bridge_says_its_version_itself(container: Container) -> None:
    """In NVIDIA's images Bridge may lie as a source tree without metadata."""
    container.package("megatron-bridge", None)
    container.file("site/megatron/bridge/__init__.py", "raise ImportError('heavy')\n")
    container.file("site/megatron/bridge/package_info.py", "__version__ = '0.6.2'\n")
    assert container.run().returncode == 0
    container.file("site/megatron/bridge/package_info.py", "__version__ = '0.4.2'\n")
    stops(container, "bridge is 0.4.2 here")


def test_hybridep_needs_its_branch_of_deep_ep(container: Container, job: Job) -> None:
    plan = changed(job[0], policy={"dispatcher": "hybridep"})
    container.job = (plan, *job[1:])
    stops(container, "deep_ep has no HybridEPBuffer, and dispatcher=hybridep needs it")
    container.module("deep_ep", "class Buffer: pass\nclass HybridEPBuffer: pass\n")
    assert container.run().returncode == 0


def test_every_rank_ends_and_the_first_of_a_node_speaks(container: Container) -> None:
    container.gpus = [GB200] * 8
    done = container.run(SLURM_LOCALID="3", SLURM_PROCID="11")
    assert (done.returncode, done.stdout, done.stderr) == (79, "", "")


def test_the_check_is_plain_python() -> None:
    """It runs with an image's interpreter: nothing newer than 3.8, no package, ASCII."""
    text = Path(head_check.__file__).read_text(encoding="ascii")
    ast.parse(text, feature_version=(3, 8))


def test_diagnose_knows_what_the_check_says(container: Container, tmp_path: Path) -> None:
    known = scan.symptoms(load_stdlib())
    old_bridge_on_gb200(container)
    (tmp_path / "job.log").write_text(f"[n1] 0: {stops(container, 'bridge is 0.5.1', 'GPU 0 is NVIDIA GB200')}")
    with (tmp_path / "job.log").open("rb") as stream:
        report = scan.diagnose("job.log", scan.blocks(stream), known)
    assert {s.rule.name for s in report.sightings} == {"preflight_version", "preflight_gpu"}
