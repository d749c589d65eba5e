"""The Dockerfile, each instruction in its order, in a root folder of its own whose Python has older versions."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.helpers import rotation
from tests.helpers.paths import ROOT

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
