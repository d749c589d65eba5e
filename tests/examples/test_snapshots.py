"""Snapshots of what `moedsl compile` writes for each example, one file each; --snapshot-update makes them anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from moedsl.emit.artifact import files_of
from moedsl.planner.text.plan import plan_text
from tests.helpers import programs
from tests.helpers.paths import EXAMPLES


class Recipe(SingleFileSnapshotExtension):
    _write_mode = WriteMode.TEXT
    file_extension = "py.txt"


class Overrides(Recipe):
    file_extension = "overrides.txt"


class Plan(Recipe):
    file_extension = "plan.txt"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.stem)
def test_example(example: Path, snapshot: SnapshotAssertion) -> None:
    result = programs.example(example)
    assert not result.failed, result.diagnostics
    for plan in result.plans:
        files = files_of(plan, result.source, result.library)
        assert files["recipe.py"] == snapshot(name=plan.name, extension_class=Recipe)
        assert files["overrides.txt"] == snapshot(name=plan.name, extension_class=Overrides)
        assert plan_text(plan) == snapshot(name=plan.name, extension_class=Plan)
