"""Snapshots of what `moedsl compile` writes for each example; --snapshot-update makes them anew.

Twelve examples are kept whole, one file for each of their texts: between them they have each kind of model, layout and
run. Of the others one file keeps a digest of each text, which shows that something changed; the diff of the twelve,
or of `moedsl compile` before and after, shows what.
"""

from hashlib import sha256
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from moedsl.emit.artifact import files_of
from moedsl.planner.text import plan_text
from tests.helpers import programs
from tests.helpers.paths import EXAMPLES

WHOLE = frozenset([
    "deepseek_v3_gb200_fp8", "gpt_oss_120b", "hybrid_nemotron", "linear_attention", "long_deepseek_v3_256k", "lora",
    "offload_activations", "own_rules", "qwen3_235b_gb200_128k", "sft", "vlm_gb200_3d", "workflow_profile",
])  # fmt: skip


class Recipe(SingleFileSnapshotExtension):
    _write_mode = WriteMode.TEXT
    file_extension = "py.txt"


class Overrides(Recipe):
    file_extension = "overrides.txt"


class Plan(Recipe):
    file_extension = "plan.txt"


class Digests(Recipe):
    file_extension = "digests.txt"


def texts(example: Path) -> dict[str, tuple[str, str, str]]:
    """The recipe, the overrides and the plan's text of each run of an example."""
    result = programs.example(example)
    assert not result.failed, result.diagnostics
    made = {plan.name: (plan, files_of(plan, result.source, result.library)) for plan in result.plans}
    return {n: (f["recipe.py"], f["overrides.txt"], plan_text(plan)) for n, (plan, f) in made.items()}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.stem)
def test_example(example: Path, snapshot: SnapshotAssertion) -> None:
    made = texts(example)
    if example.stem not in WHOLE:
        rows = (f"{name} {sha256(text.encode()).hexdigest()[:16]}" for name, each in made.items() for text in each)
        assert "\n".join(rows) + "\n" == snapshot(extension_class=Digests)
        return
    for name, (recipe, overrides, plan) in made.items():
        assert recipe == snapshot(name=name, extension_class=Recipe)
        assert overrides == snapshot(name=name, extension_class=Overrides)
        assert plan == snapshot(name=name, extension_class=Plan)
