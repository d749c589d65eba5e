"""What tests of a launch share. They need NeMo-Run, which the environment of Python 3.11 does not have."""

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.launch import slurm_cluster
from tests.launch.launches import Patch, unable
from tests.launch.slurm_cluster import Slurm

if sys.version_info < (3, 12):
    collect_ignore_glob = ["test_*.py"]
else:
    import importlib_metadata

    importlib_metadata.entry_points = cache(importlib_metadata.entry_points)
    """torchx asks for them at each look at an experiment, and each time the files of all installed packages are read."""


@pytest.fixture(autouse=True)
def no_left_pipes() -> Iterator[None]:
    """NeMo-Run leaves the pipes of each program that it starts to the garbage collector, which rarely runs in tests; with
    1,024 of them `select` fails."""
    yield
    if len(os.listdir("/proc/self/fd")) > 200:
        gc.collect()


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    """One Slurm for all tests of a session; it ends with them, whatever happens."""
    if reason := slurm_cluster.why_not():
        unable(reason)
    with slurm_cluster.started() as cluster:
        yield cluster


@pytest.fixture
def login_node(slurm: Slurm, tmp_path: Path, monkeypatch: Patch) -> Path:
    """This process submits to the Slurm, as one on a login node; the folder that NeMo-Run keeps experiments in."""
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    home = tmp_path / "nemo"
    monkeypatch.setenv("NEMORUN_HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))  # sbatch passes it on: jobs leave nothing elsewhere
    return home


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stand-in for CUDA's driver."""
    folder, source = tmp_path_factory.mktemp("cuda"), Path(__file__).with_name("cuda_standin.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", folder / "libcuda.so.1", source], check=True)
    return folder


@pytest.fixture(scope="session")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stand-in for the driver's management library."""
    folder, source = tmp_path_factory.mktemp("nvml"), Path(__file__).with_name("nvml_standin.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", folder / "libnvidia-ml.so.1", source], check=True)
    return folder
