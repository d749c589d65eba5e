"""The examples, compiled and judged by the real Megatron Bridge: half of them in a run."""

from pathlib import Path

import pytest
from attrs import evolve

from moedsl.bridge.verify.cases import Case
from moedsl.bridge.verify.client import Server
from tests.helpers import programs, rotation
from tests.helpers.paths import EXAMPLES
from tests.helpers.programs import stages_key, written

pytestmark = pytest.mark.bridge
BUILT: set[str] = set()
"""The stages that have been built: those of a sweep are often the same, and are built once."""


@pytest.mark.parametrize("example", rotation.some("judged examples", EXAMPLES, 1), ids=lambda p: p.stem)
def test_bridge_accepts_the_example(example: Path, server: Server, tmp_path: Path) -> None:
    result = programs.example(example)
    assert not result.failed, result.diagnostics
    asked: list[Case] = []
    for case, plan in zip(written(result, tmp_path), result.plans, strict=True):
        stages = stages_key(plan)
        asked.append(evolve(case, stages=stages not in BUILT))
        BUILT.add(stages)
    for report in server.judge(asked):
        assert report.ok, report.to_json()
