"""What a recipe's source states is compared with its plan, and nothing is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from moedsl.bridge.lint.run import against_plan
from tests.helpers import rotation
from tests.helpers.paths import EXAMPLES, ROOT
from tests.helpers.programs import example, written


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A compiled run."""
    (case,) = written(example(ROOT / "examples" / "qwen3_235b_gb200_128k.moe"), tmp_path)
    return Path(case.file)


@pytest.mark.parametrize("file", rotation.some("read only", EXAMPLES, 3), ids=lambda e: e.stem)
def test_our_own_recipes_state_what_their_plans_decide(file: Path, tmp_path: Path) -> None:
    for case in written(example(file), tmp_path):
        report = against_plan(case.file)
        assert report.ok and report.verdict == "read", report
        stated, of, total, *_ = report.read[0].split()
        assert of == "of" and 20 < int(stated) < int(total) and "nothing was run" in report.read[0]


def test_an_edited_line_differs_from_the_plan(folder: Path) -> None:
    recipe = folder / "recipe.py"
    text = recipe.read_text(encoding="utf-8")
    lines = text.replace("tensor_model_parallel_size = 4", "tensor_model_parallel_size = 2")
    assert lines != text
    recipe.write_text(lines, encoding="utf-8")
    report = against_plan(str(folder))
    assert not report.ok and report.verdict == "read"
    (found,) = report.mismatches
    assert (found.field, found.planned, found.resolved) == ("model.tensor_model_parallel_size", 4, 2)


def test_without_a_plan_there_is_nothing_to_compare(folder: Path) -> None:
    (folder / "plan.json").unlink()
    report = against_plan(str(folder), "gb200", 256)
    assert (report.verdict, report.id) == ("failed", "verify.input") and "lint --read-only" in report.help
