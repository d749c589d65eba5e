"""NVIDIA's recipes that `runtime_config_update` accepts and our laws refuse: Megatron-Core refuses each of them too."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from moedsl.bridge.verify import cases
from moedsl.bridge.verify.client import Server
from tests.helpers import rotation
from tests.stdlib.test_recipes import LATE, ROWS

pytestmark = pytest.mark.bridge
_WHERE = {
    "check.pipeline_layout": {"megatron/core/models/gpt/gpt_layer_specs.py:572"},
    "mesh.expert_mesh": {"megatron/core/parallel_state.py:882"},
    # 94 layers on 8 stages are refused before the virtual stage is asked for
    "vision.no_vpp": {
        "megatron/core/transformer/transformer_layer.py:190",
        "megatron/core/transformer/transformer_block.py:150",
    },
    # and so are 60 layers on 8 stages, or 20 of a stage on 12 chunks, before the plan of the layers
    "vision.no_ep_overlap": {
        "megatron/core/utils.py:666",
        "megatron/core/transformer/transformer_block.py:150",
        "megatron/core/transformer/transformer_block.py:169",
    },
}
BUILT = {"vision.no_ep_overlap", "check.pipeline_layout"}
"""What only building the model shows."""


def asked(name: str) -> cases.Case:
    row: dict[str, Any] = ROWS[name]
    read = cases.read(f"megatron.bridge.{row['module']}:{row['function']}", gpu=row["hardware"], world=row["gpus"])
    assert isinstance(read, cases.Case), read
    return evolve(read, stages={*LATE[name]} & BUILT != set())


def test_megatron_refuses_them_before_the_first_step(server: Server) -> None:
    names = [n for law in _WHERE for n in rotation.some(law, [n for n in LATE if LATE[n][0] == law], 1)]
    reports = dict(zip(names, server.judge([asked(name) for name in names]), strict=True))
    assert {n: r.verdict for n, r in reports.items()} == dict.fromkeys(names, "refused")
    for name, report in reports.items():
        law, *_ = LATE[name]
        assert report.refusals[0].where in _WHERE[law], (name, report.refusals)
