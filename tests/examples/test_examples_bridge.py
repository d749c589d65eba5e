"""Every example, compiled and judged by the real Megatron Bridge."""

from __future__ import annotations

from pathlib import Path

import pytest

from moedsl.verify.client import Server
from tests.helpers import programs
from tests.helpers.paths import EXAMPLES
from tests.helpers.programs import written

pytestmark = pytest.mark.bridge


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.stem)
def test_bridge_accepts_the_example(example: Path, server: Server, tmp_path: Path) -> None:
    result = programs.example(example)
    assert not result.failed, result.diagnostics
    for report in server.judge(written(result, tmp_path)):
        assert report.ok, report.to_json()
