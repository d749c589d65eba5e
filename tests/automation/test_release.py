"""The job of .github/workflows/release.yml that builds, executed step by step on a copy of the checkout."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.automation.runner import Runner, read
from tests.helpers import rotation
from tests.helpers.paths import ROOT

JOBS: dict[str, Any] = read(".github/workflows/release.yml")["jobs"]
STEPS: list[dict[str, Any]] = JOBS["build"]["steps"]


def runner(folder: Path, workspace: Path, tag: str) -> Runner:
    return Runner(folder / tag, workspace, {"GITHUB_REF_NAME": tag}, {"github": {"ref_name": tag}})


def test_a_tag_of_another_version_ends_it(tmp_path: Path) -> None:
    first = next(i for i, step in enumerate(STEPS) if "run" in step)
    assert runner(tmp_path, ROOT, "v0.1.0").run(STEPS[first : first + 1])
    assert not runner(tmp_path, ROOT, "v0.1.1").run(STEPS[first : first + 1])


def test_only_the_job_that_publishes_has_a_token() -> None:
    publish = JOBS["publish"]
    assert publish["needs"] == "build" and publish["permissions"] == {"id-token": "write"}
    assert "permissions" not in JOBS["build"]
    kept, taken = ([s["with"] for s in job["steps"] if "artifact" in s.get("uses", "")] for job in JOBS.values())
    assert kept == taken == [{"name": "dist", "path": "dist/"}]


@pytest.mark.skipif(not rotation.ALL, reason="builds and installs from the index: MOEDSL_WIDE=all")
def test_it_builds_checks_installs_and_uses_both_distributions(tmp_path: Path) -> None:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    checkout = tmp_path / "checkout"
    for name in filter(None, tracked.decode().split("\0")):
        copy = checkout / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ROOT / name).read_bytes())
    made = runner(tmp_path, checkout, "v0.1.0")
    setup = tmp_path / "setup-python"
    subprocess.run([Path(sys.base_prefix, "bin/python3"), "-m", "venv", setup], check=True)
    made.environment["PATH"] = f"{setup}/bin:/usr/bin:/bin"
    assert made.run(STEPS), made.printed[-1]
    assert {p.name for p in (checkout / "dist").iterdir()} == {"moedsl-0.1.0-py3-none-any.whl", "moedsl-0.1.0.tar.gz"}
    assert made.printed[3].count("PASSED") == 2 and "FITS" in made.printed[4]
    with tarfile.open(checkout / "dist/moedsl-0.1.0.tar.gz") as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"LICENSE", "stdlib/hardware/h100.moe", "grammar/moe.lark", "pyproject.toml"} <= names
