"""`verify` of a run whose checkpoint lies on the cluster: that one question is answered, the others are Bridge's own."""

from __future__ import annotations

import pytest
from attrs import evolve

from moedsl.bridge.verify.cases import Report, render
from moedsl.bridge.verify.client import Server
from tests.helpers import rotation
from tests.helpers.programs import compiled, written

pytestmark = pytest.mark.bridge
SFT = 'qwen3_30b_a3b; h100 x 16; task sft; data "/data/sft"; batch 64\nset checkpoint.pretrained_checkpoint = "{}"\n'
MOONLIGHT = SFT.replace("qwen3_30b_a3b", "moonlight_16b") + "pin tp=4\nset model.vocab_size = 163844\n"
DEEPSEEK = SFT.replace("qwen3_30b_a3b; h100 x 16", "deepseek_v3; h100 x 512").replace("batch 64", "batch 512")
RUNS = {
    "elsewhere": SFT,
    "here": SFT,
    "half a batch of validation": SFT + "pin dp=8\nset validation.eval_global_batch_size = 4\n",
    "a larger vocabulary": MOONLIGHT,
    "virtual stages and MTP": DEEPSEEK + "scale first\npin pp=8 vpp=4\n",
}
BUILT = rotation.some("runs with weights", [n for n in RUNS if n not in ("here", "half a batch of validation")], 1)
"""Whose stages this run builds; those of "here" are the same as elsewhere."""


@pytest.fixture(scope="module")
def reports(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    folder = tmp_path_factory.mktemp("weights")
    places = {"here": str(folder)}
    texts = {name: run.format(places.get(name, "/on/the/cluster")) for name, run in RUNS.items()}
    cases = [(n, case) for n, text in texts.items() for case in written(compiled(text, n), folder / n)]
    return {r.file: r for r in server.judge([evolve(c, file=n, stages=n in BUILT) for n, c in cases])}


def stood_in(report: Report) -> list[str]:
    return [text for text in report.stood_in if "checkpoint" in text]


@pytest.mark.parametrize("name", [n for n in RUNS if n != "half a batch of validation"])
def test_bridge_accepts(name: str, reports: dict[str, Report]) -> None:
    assert reports[name].ok, reports[name].to_json()


def test_a_checkpoint_of_the_cluster_is_said(reports: dict[str, Report]) -> None:
    (text,) = stood_in(reports["elsewhere"])
    assert text.startswith("the checkpoint /on/the/cluster (not on this machine")
    assert f"  replaced by a stand-in: {text}" in render(reports["elsewhere"]).splitlines()
    assert stood_in(reports["here"]) == []


def test_bridge_wants_a_microbatch_for_each_replica(reports: dict[str, Report]) -> None:
    """What the plan writes is the smallest: half of it is refused."""
    (refusal,) = reports["half a batch of validation"].refusals
    assert (
        refusal.where.startswith("megatron/bridge/training/config.py:") and "eval_global_batch_size" in refusal.message
    )
