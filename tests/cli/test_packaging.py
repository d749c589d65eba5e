"""The wheel has what a user needs, and works alone; the files around it agree with the program."""

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
    assert {"LICENSE", "plan.schema.json", "results.schema.json", "py.typed", "moe.lark", "stdlib"} <= names
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
