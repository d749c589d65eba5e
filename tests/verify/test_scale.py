"""The process groups of ten thousand ranks, as the real Megatron-Core computes them."""

from __future__ import annotations

from pathlib import Path

import make_scale
import pytest
from attrs import evolve

from moedsl.bridge.verify.client import Server
from tests.helpers import rotation
from tests.helpers.programs import compiled, written

pytestmark = pytest.mark.bridge


def test_every_group_of_ten_thousand_ranks_is_megatron_s(server: Server, tmp_path: Path) -> None:
    gpus = make_scale.GPUS[1]
    (case,) = written(compiled(make_scale.PROGRAM.format(gpus=gpus, batch=4 * gpus)), tmp_path)
    (report,) = server.judge([evolve(case, stages=rotation.ALL)])
    assert report.verdict == "accepted" and not report.mismatches
    assert len(report.groups) == 11 and all(g["matches"] for g in report.groups.values())
    assert report.groups["TP"]["count"] * report.groups["TP"]["sizes"][0] == gpus
