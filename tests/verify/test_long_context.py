"""The laws on shapes that vary, asked of the real Bridge: what they refuse it refuses, where they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from moedsl.bridge.verify.client import Server
from tests.helpers.programs import compiled, written

pytestmark = pytest.mark.bridge

PACKED = """\
model qwen3_vl_30b_a3b; gb200 x 16; seq 32k; batch 64; throughput first
set dataset.enable_in_batch_packing = true
"""
REFUSED = {
    "packed_micro_batch": ("pin micro_batch=1", "micro_batch_size should be greater than 1"),
    "image_graphs": (
        "pin pp=2 ep=8 ep_overlap=off dispatcher=hybridep cuda_graph=[moe_router, moe_preprocess]",
        "requires fixed sequence lengths",
    ),
}


@pytest.mark.parametrize("law", REFUSED)
def test_bridge_refuses_what_the_law_does(law: str, server: Server, tmp_path: Path) -> None:
    pins, said = REFUSED[law]
    allowed = f'{PACKED}{pins}\nallow std.variable_shapes.{law} because "to ask Bridge"'
    (report,) = server.judge(written(compiled(allowed), tmp_path))
    assert not report.ok and said in str(report.to_json())


def test_bridge_takes_packed_images_without_graphs(server: Server, tmp_path: Path) -> None:
    (report,) = server.judge(written(compiled(PACKED), tmp_path))
    assert report.ok, report.to_json()
