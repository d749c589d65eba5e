"""What verify asks of the built model: whether it plans its layers for an overlapped schedule, and what its graphs get."""

from __future__ import annotations

import pytest

from moedsl.bridge.verify.cases import Report, render
from moedsl.bridge.verify.client import Server
from tests.helpers import bridge_process, rotation
from tests.helpers.paths import ROOT
from tests.helpers.programs import judged

pytestmark = pytest.mark.bridge
RULES = ROOT / "stdlib/rules/vision.moe"
GRAPHS = "pin cuda_graph=[attn, moe_router, moe_preprocess]"
RUNS = {
    "rope": f"qwen3_30b_a3b; h100 x 16; throughput first\n{GRAPHS}",
    "yarn": f"gpt_oss_120b; gb200 x 64; throughput first\n{GRAPHS}",
    "latent": f"moonlight_16b; h100 x 8; throughput first\n{GRAPHS}",
    "yarn, router alone": "gpt_oss_120b; gb200 x 64; throughput first\npin cuda_graph=[moe_router, moe_preprocess]",
    "Mamba layers": "nemotron_3_nano; h100 x 16; throughput first\npin cuda_graph=[attn, mamba] recompute=[moe]",
    "Mamba layers, MTP": f"nemotron_3_super; gb200 x 64; throughput first\n{GRAPHS.replace(']', ', mamba]')} pp=2",
    "delta nets, MTP": f"qwen3_next_80b_a3b; gb200 x 64; throughput first\n{GRAPHS} pp=2 vpp=4",
    "overlap with delta nets": "qwen3_next_80b_a3b; h100 x 64; throughput first\npin ep_overlap=on pp=2 vpp=4",
    "overlap of chunks": "qwen3_30b_a3b; h100 x 16; throughput first\npin ep_overlap=on pp=2 vpp=2",
    "overlap with MTP": "deepseek_v3; gb200 x 256; throughput first\npin ep_overlap=on pp=4 vpp=4",
}


CAUTION = "yarn"
TAKEN = [CAUTION, *rotation.some("built", [name for name in RUNS if name != CAUTION], 1)]


@pytest.fixture(scope="module")
def reports(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    return judged(server, {name: RUNS[name] for name in TAKEN}, tmp_path_factory.mktemp("built"))


@pytest.mark.parametrize("name", TAKEN)
def test_the_built_model_is_asked_and_accepts(name: str, reports: dict[str, Report]) -> None:
    assert reports[name].ok, reports[name].to_json()


def test_captured_attention_without_positions_is_a_caution(reports: dict[str, Report]) -> None:
    assert {name for name, r in reports.items() if r.cautions} == {CAUTION}
    (caution,) = reports[CAUTION].cautions
    assert "rotary_pos_emb (yarn)" in caution
    assert f"\n  caution  {caution}\n" in render(reports[CAUTION])


POSITIONS = """
import sys, traceback
from moedsl.bridge.verify import stand_ins
stand_ins.install_engine()
import torch
from megatron.bridge.models.qwen_vl.modelling_qwen3_vl.rope import get_rope_index
tokens = torch.full((1, 64), 7)
tokens[0, 3], tokens[0, 4:8] = 1, 2
grid = torch.tensor([[1, 4, 4]])
get_rope_index(2, 2, 3, 1, tokens, grid)
try:
    get_rope_index(2, 2, 3, 1, tokens.to("meta"), grid.to("meta"))
except Exception as error:
    print(next(f.lineno for f in reversed(traceback.extract_tb(error.__traceback__)) if f.filename.endswith("rope.py")))
"""


def test_positions_of_qwen3_vl_are_counted_on_the_host() -> None:
    """A tensor whose values the host cannot read, as while a graph is captured, ends it where std.vision cites it."""
    done = bridge_process.run("-c", POSITIONS)
    assert done.returncode == 0, done.stderr
    line = done.stdout.split()[-1]
    assert f'modelling_qwen3_vl/rope.py:{line}"' in RULES.read_text(encoding="utf-8")
