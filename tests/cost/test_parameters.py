"""Parameters of every pipeline stage against the real Megatron model on the meta device
(tests/data/make_param_truth.py)."""

from __future__ import annotations

import json

import pytest
from attrs import evolve

from moedsl.cost import parameters, pipeline
from tests.helpers.cost_models import model
from tests.helpers.paths import DATA

TRUTH = json.loads((DATA / "param_truth.json").read_text())


def name(case: dict) -> str:
    mesh = "-".join(f"{k}{case[k]}" for k in ("tp", "cp", "pp", "vpp", "ep", "etp"))
    mtp = f"-mtp{case['mtp']}" if "mtp" in case else ""
    return f"{case['model']}-{mesh}-{case.get('layout', 'even')}{mtp}"


@pytest.mark.parametrize("case", [c for c in TRUTH if "stages" in c], ids=name)
def test_stages_equal_megatrons(case):
    m = model(case["model"])
    m = evolve(m, mtp_layers=case.get("mtp", m.mtp_layers) or 0)
    if case.get("pad"):
        divisor = 1280 if m.attention == "mla" else 128
        m = evolve(m, vocab=parameters.padded_vocab(m.vocab, divisor, case["tp"]))
    if "layout" in case:
        layout, wrong = pipeline.parse_layout(case["layout"], m, case["pp"], case["vpp"])
        assert not wrong
    else:
        layout = pipeline.layout_for(m, case["pp"], case["vpp"])
        assert layout.text is None
    said = [parameters.stage(m, layout, s, case["tp"], case["ep"], case["etp"]) for s in range(case["pp"])]
    assert [[p.dense, p.expert] for p in said] == case["stages"]


PUBLISHED = {
    "qwen3_30b_a3b": 30_532_122_624,
    "qwen3_235b_a22b": 235_093_634_560,
    "deepseek_v3": 682_636_472_320,
    "gpt_oss_120b": 116_829_156_672,
    "nemotron_3_nano": 31_577_937_344,
}


@pytest.mark.parametrize("key", PUBLISHED)
def test_unique_parameters_are_the_published_ones(key):
    assert parameters.unique(model(key)) == PUBLISHED[key]


def test_what_megatron_refused_is_known():
    refused = {c["model"]: c["refused"] for c in TRUTH if "refused" in c}
    assert set(refused) == {"gpt_oss_120b", "qwen3_vl_30b_a3b", "qwen3_vl_235b_a22b", "qwen3_next_80b_a3b"}
    assert "ETP==1" in refused["gpt_oss_120b"]
    assert "vp_stage" in refused["qwen3_vl_30b_a3b"]
    assert "get_gpt_decoder_layer_specs" in refused["qwen3_next_80b_a3b"]  # MTP, and a chunk without a decoder layer
