"""The wheel has what a user needs, and works alone; the files around it agree with the program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from moedsl.cli.arguments import COMMANDS
from tests.helpers.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_wheel_plans(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    names = {p.name for p in (tmp_path / "site").rglob("*") if p.is_file()}
    assert {"LICENSE", "plan.schema.json", "results.schema.json", "py.typed", "moe.lark"} <= names
    words = ["compile", "-e", "qwen3_30b_a3b; h100 x 16", "-o", "out"]
    alone = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    code = "import moedsl.cli.main as m, sys; assert 'site' in m.__file__, m.__file__; sys.exit(m.main())"
    subprocess.run([sys.executable, "-c", code, *words], cwd=tmp_path, env=alone, check=True, capture_output=True)
    assert (tmp_path / "out/recipe.py").stat().st_size > 0


def test_one_version_and_one_license() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {PROJECT['version']}\n" in citation and f"license: {PROJECT['license']}\n" in citation
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").lstrip().startswith("Apache License")


def test_the_hooks_are_commands() -> None:
    text = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    entries = re.findall(r"entry: moedsl (\w+)", text)
    assert {*entries} == {"fmt", "check"} <= {*COMMANDS}


def test_the_comment_of_a_pull_request(tmp_path: Path) -> None:
    """A changed file, a new one, one that is removed and one with a mistake."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    for name in ("a", "gone"):
        (tmp_path / f"{name}.moe").write_text("qwen3_30b_a3b; h100 x 16\n", encoding="utf-8")
    subprocess.run([*git, "add", "."], cwd=tmp_path, check=True)
    subprocess.run([*git, "commit", "-qm", "before"], cwd=tmp_path, check=True)
    (tmp_path / "gone.moe").unlink()
    (tmp_path / "a.moe").write_text("qwen3_30b_a3b; h100 x 16; seq 8k\n", encoding="utf-8")
    (tmp_path / "a b.moe").write_text("qwen3_30b_a3b; h100 x 16; pin tq=1\n", encoding="utf-8")
    subprocess.run([*git, "add", "."], cwd=tmp_path, check=True)
    tool = tmp_path / "bin/moedsl"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -m moedsl "$@"\n', encoding="utf-8")
    tool.chmod(0o755)
    env = {**os.environ, "PATH": f"{tool.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    script = [str(ROOT / "tools/plan_comment.sh"), "HEAD"]
    done = subprocess.run(script, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1, "a file has no plan"
    assert "### `a.moe`" in done.stdout and "4096 -> 8192" in done.stdout and "FITS" in done.stdout
    assert "### `a b.moe`" in done.stdout and "error[check.unknown_axis]" in done.stdout
    assert "### `gone.moe`\n\nremoved" in done.stdout
