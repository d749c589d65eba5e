"""What is asked for but is no recipe: a report with a way out, in whichever Python, Bridge or not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from moedsl.bridge.verify import cases, client, environments
from moedsl.bridge.verify.cases import Mismatch, Refusal, Report, render
from moedsl.bridge.verify.client import verify


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def recipe():\n    pass\n", "does not name its GPU"),
        ("def a_config():\n    pass\ndef b_config():\n    pass\n", "one public function"),
        ("def (", "one public function"),
        ("\0\0", "one public function"),
    ],
)
def test_a_file_that_is_no_recipe(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.py").write_text(text)
    (report,) = verify([tmp_path])
    assert (report.verdict, report.id) == ("failed", "verify.input")
    assert message in report.message


@pytest.mark.parametrize("name", ["", ":a_16gpu_h100_bf16_config"])
def test_a_pipe_is_not_waited_for(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "recipe.py")
    for target in (f"{tmp_path / 'recipe.py'}{name}", "/dev/zero"):
        read = cases.read(target, "h100", 16)
        assert isinstance(read, Report) and read.message == "not a regular file"


def test_missing_files_and_broken_plans(tmp_path: Path) -> None:
    (tmp_path / "recipe.py").write_text("def x_16gpu_h100_bf16_config():\n    pass\n")
    (tmp_path / "plan.json").write_text("{")
    reports = verify([tmp_path, tmp_path / "nothing", tmp_path.parent])
    assert [r.id for r in reports] == ["verify.input"] * 3
    assert "is not a plan" in reports[0].message


@pytest.mark.parametrize("name", ["qwen_pretrain_256gpu_gb200_bf16_config", "ours_256gpu_gb200", "256gpu_gb200_run"])
def test_gpu_and_world_are_read_from_the_functions_name(name: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.py").write_text(f"def recipe_{name}():\n    pass\n")
    case = cases.read(str(tmp_path))
    assert isinstance(case, cases.Case)
    assert (case.world, case.device.name, case.plan) == (256, "NVIDIA GB200", None)
    assert cases.Case.from_json(json.loads(json.dumps(case.to_json()))) == case


def test_without_bridge_the_answer_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "is_installed", lambda: False)
    (tmp_path / "recipe.py").write_text("def qwen_pretrain_256gpu_gb200_bf16_config():\n    pass\n")
    (report,) = verify([tmp_path])
    assert report.id == "verify.no_bridge" and "moedsl[bridge]" in report.help
    assert "moedsl[bridge]" in render(report)


def test_a_report_survives_json() -> None:
    refusals, mismatches = (Refusal("a.py:1", "ValueError", "no", "update"),), (Mismatch("model.x", 1, 2),)
    report = Report("f", "refused", refusals, mismatches, stages=({"stage": 0},), warnings=("w",))
    assert Report.from_json(json.loads(json.dumps(report.to_json()))) == report


def test_the_package_imports_nothing_heavy() -> None:
    code = "import sys, moedsl.bridge.verify; print([m for m in ('torch', 'transformers', 'megatron') if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_the_hub_cache_prefers_what_the_user_has(tmp_path: Path) -> None:
    mine = tmp_path / "cache" / "models--org--mine" / "snapshots" / "abc"
    mine.mkdir(parents=True)
    (mine / "config.json").write_text('{"of": "mine"}')
    for name in ("org--mine", "org--theirs"):
        (tmp_path / "shipped" / name).mkdir(parents=True)
        (tmp_path / "shipped" / name / "config.json").write_text('{"of": "stdlib"}')
    assert environments.build_hub(tmp_path / "home", tmp_path / "shipped", tmp_path / "cache") == ["org/theirs"]
    folder = tmp_path / "home" / "hub"
    assert "mine" in (folder / "models--org--mine" / "snapshots" / "abc" / "config.json").read_text()
    revision = (folder / "models--org--theirs" / "refs" / "main").read_text()
    assert (folder / "models--org--theirs" / "snapshots" / revision / "config.json").exists()
