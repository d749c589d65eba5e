"""The shipped list of Bridge's fields is what the installed Bridge has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from moedsl.bridge import fields

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.bridge
def test_generating_it_again_leaves_no_difference(tmp_path: Path) -> None:
    made = tmp_path / "fields.json"
    command = [sys.executable, ROOT / "tools/bridge_fields.py", made]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert made.read_text() == (fields.DATA / "bridge_fields_0.6.2.json").read_text()


def test_lookup() -> None:
    found = fields.lookup("model.moe_router_dtype")
    assert found is not None and "fp64" in found.type and found.default is None
    assert fields.lookup("model.moe_a2a_overlap") is None
    assert "0.6.2" in fields.versions()


def test_a_field_of_one_class_says_which() -> None:
    found = fields.lookup("model.freeze_vision_model")
    assert found is not None and found.classes == ("Qwen3VLMoEModelProvider",)
