"""The job of .github/workflows/release.yml that builds, executed step by step on a copy of the checkout."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
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


# The Dockerfile, each instruction in its order, in a root folder of its own whose Python has older versions.

INSTRUCTIONS = [
    (line.split(maxsplit=1)[0], line.split(maxsplit=1)[1])
    for line in (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
OLDER = ("numpy==1.26.4", "attrs==23.2.0", "jinja2==3.1.3")
"""Versions of a container, which stay."""
SHOWN = ("/usr", "/etc", "/opt", "/dev", "/proc", sys.base_prefix)
"""Folders of this machine that the root shows: they stand for the container's own system."""


def test_it_copies_what_the_wheel_is_built_from() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {"pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]}
    needed |= {*wheel["packages"], *wheel["force-include"]}
    assert needed == {source for source, _ in copies()}
    assert [name for name, _ in INSTRUCTIONS if name != "COPY"] == ["ARG", "FROM", "RUN", "ENTRYPOINT"]
    assert INSTRUCTIONS[:2] == [("ARG", "NEMO"), ("FROM", "${NEMO}")]


def copies() -> list[tuple[str, str]]:
    """Each file or folder that is copied, and where to."""
    out: list[tuple[str, str]] = []
    for words in (text.split() for name, text in INSTRUCTIONS if name == "COPY"):
        out += [(source, words[-1] + source if words[-1].endswith("/") else words[-1]) for source in words[:-1]]
    return out


class Root:
    """A root folder, in which commands run as in a container without limits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        mounts = []
        for shown in SHOWN:
            (folder / shown[1:]).mkdir(parents=True, exist_ok=True)
            mounts.append(f"mount --rbind {shown} {folder}{shown}")
        for link in ("bin", "lib", "lib64", "sbin"):
            (folder / link).symlink_to(f"usr/{link}")
        (folder / "tmp").mkdir()
        self.enter = " && ".join([*mounts, f'exec chroot {folder} /usr/bin/env PATH="$1" HOME=/tmp /bin/sh -c "$2"'])

    def run(self, line: str) -> str:
        path = f"/venv/bin:{sys.base_prefix}/bin:/usr/bin:/bin"
        words = ["unshare", "--mount", "--map-root-user", "sh", "-c", self.enter, "sh", path, line]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.mark.skipif(not rotation.ALL, reason="installs from the index: MOEDSL_WIDE=all")
def test_its_image_plans_and_keeps_the_versions_of_the_container(tmp_path: Path) -> None:
    root = Root(tmp_path / "root")
    root.run(f"python3 -m venv /venv && pip install -q {' '.join(OLDER)}")
    for source, target in copies():
        copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
        (root.folder / "src").mkdir(exist_ok=True)
        copy(ROOT / source, root.folder / target[1:])
    for _, line in (i for i in INSTRUCTIONS if i[0] == "RUN"):
        root.run(line)
    (entry,) = (re.findall(r'"([^"]+)"', text) for name, text in INSTRUCTIONS if name == "ENTRYPOINT")
    assert "FITS" in root.run(f"cd /tmp && {' '.join(entry)} plan -e 'qwen3_30b_a3b; h100 x 16'")
    kept = root.run("pip list --format freeze").lower().splitlines()
    assert {*OLDER} <= {*kept} and not (root.folder / "src").exists()
