"""A Python that moedsl starts does not run what lies in the working directory."""

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from moedsl.bridge.verify.client import Server
from moedsl.launch import local
from moedsl.rehearse import launch
from moedsl.support import foreign, limits, resources
from tests.helpers import rotation
from tests.helpers.paths import ROOT

HOSTILE = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n"
IMPORT = "import ctypes, moedsl"
TWICE = f"{IMPORT}, subprocess, sys; subprocess.run([sys.executable, '-c', '{IMPORT}'], check=True)"
"""Import here and in a process that this one starts, as torchrun starts its workers."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with two modules that leave a mark when they are imported."""
    monkeypatch.chdir(tmp_path)
    for name in ("torch", "ctypes"):
        (tmp_path / f"{name}.py").write_text(HOSTILE)
    return tmp_path


@pytest.mark.bridge
def test_verify_imports_the_torch_that_is_installed(folder: Path) -> None:
    with Server(1) as server:
        process = psutil.Process(server._host._process.pid)
        while not any("libtorch" in loaded.path for loaded in process.memory_maps()):
            assert server._host._process.poll() is None
            time.sleep(0.1)
    assert not (folder / "ran").exists()


def test_the_gpus_of_this_machine_are_those_of_the_torch_that_is_installed(folder: Path) -> None:
    (folder / "torch.py").write_text(HOSTILE + "class cuda:\n    device_count = staticmethod(lambda: 4096)\n")
    assert local.gpus() < 4096
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_rehearsal_starts_without_the_working_directory(
    device: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    popen = subprocess.Popen

    def start_another(words: list[str], env: dict[str, str], **_: Any) -> None:
        monkeypatch.setattr(subprocess, "Popen", popen)
        subprocess.run([words[0], "-c", TWICE], env=env, check=True)
        raise InterruptedError

    monkeypatch.setattr(subprocess, "Popen", start_another)
    for module in (launch, launch):
        monkeypatch.setattr(module, "forget", lambda _: None)
    prepared: Any = SimpleNamespace(folder=folder, rehearsal=SimpleNamespace(ranks=4))
    with pytest.raises(InterruptedError):
        (launch.Ranks() if device == "cpu" else launch.Gpus()).run(prepared, 1.0)
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("found", ["on the path", "in the working directory"])
def test_a_child_finds_the_same_moedsl(found: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rest = [p for p in sys.path if p != str(ROOT)]
    monkeypatch.setattr(sys, "path", ["", *rest] if found == "in the working directory" else ["", str(ROOT), *rest])
    monkeypatch.setenv("PYTHONPATH", str(ROOT) if found == "on the path" else "")
    command = [sys.executable, "-c", "import moedsl; print(moedsl.__file__)"]
    done = subprocess.run(command, env=resources.child_environment(), cwd=tmp_path, capture_output=True, check=True)
    assert done.stdout.decode().strip() == str(ROOT / "moedsl" / "__init__.py")


# Python of somebody else: what its parser may need is bounded by the size of a file, and measured here.

DEAREST = {
    "statements": "a;",
    "names": "a,",
    "f-strings": "f'{a}' ",
    "signs": "x=" + "-" * 90 + "1\n",
    "lists": "x=" + "[" * 90 + "1" + "]" * 90 + "\n",
}
"""What needs the most memory, or the most seconds, for its size."""

PARSE = """
import resource, sys
from moedsl.support import foreign
from moedsl.support.limits import within_memory
text = sys.stdin.read()
with within_memory(420):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    assert foreign.parse_python(text) is not None
    assert resource.getrusage(resource.RUSAGE_SELF).ru_utime - before < 11
"""


@pytest.mark.parametrize("name", rotation.some("dearest", [*DEAREST], 1))
def test_the_largest_file_is_parsed_within_the_limits(name: str) -> None:
    piece = DEAREST[name]
    text = piece * (foreign.MOST_PYTHON // len(piece))
    ran = subprocess.run([sys.executable, "-c", PARSE], input=text, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("content", [b"x = (" * 300, b"x = \xff", b"x =", b"\0", b"x = " + b"-" * 100_000 + b"1"])
def test_what_is_not_python_is_no_crash(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(content)
    assert foreign.parse_python_file(tmp_path / "a.py") is None


def test_a_file_that_is_too_large_is_not_parsed(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("#" * (foreign.MOST_PYTHON + 1))
    with pytest.raises(limits.TooLarge, match="400 kB of Python"):
        foreign.parse_python_file(tmp_path / "a.py")
