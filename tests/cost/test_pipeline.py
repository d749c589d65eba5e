"""Pipeline layouts: NVIDIA's own are read as Megatron reads them, and ours are legal there and balanced."""

from __future__ import annotations

import numpy as np
import pytest

from moedsl.cost import pipeline
from moedsl.cost.pipeline import has_layout, layout_for, layout_string, parse_layout, unroll
from tests.helpers.cost_models import model

NVIDIAS = [  # pipeline layouts of Bridge 0.6.2's recipes
    ("deepseek_v3", 2, 8, "Et*4|(t*4|)*14tmL"),
    ("deepseek_v3", 2, 8, "Et*5|(t*4|)*14mL"),
    ("deepseek_v3", 8, 4, "Et|(tt|)*30mL"),
    ("kimi_k2", 16, 2, "Et|(tt|)*30L"),
]
MODELS = ("qwen3_30b_a3b", "qwen3_235b_a22b", "deepseek_v3", "gpt_oss_120b", "kimi_k2", "moonlight_16b")


@pytest.mark.parametrize("key, pp, vpp, text", NVIDIAS)
def test_nvidias_layouts_are_read(key, pp, vpp, text):
    layout, wrong = parse_layout(text, model(key), pp, vpp)
    assert not wrong
    assert sum(c.layers for c in layout.chunks) == model(key).layers
    assert sum(c.dense for c in layout.chunks) == model(key).dense_layers
    assert [c.text for c in layout.chunks] == unroll(text)[0]


def test_chunks_are_listed_with_the_stage_fastest():
    layout, _ = parse_layout("Ett|ttt|(t*4|)*13t|mL", model("deepseek_v3"), 8, 2)
    assert layout is None
    layout, _ = parse_layout("Et*5|(t*4|)*14mL", model("deepseek_v3"), 2, 8)
    assert [c.layers for c in layout.stage(0)] == [5, 4, 4, 4, 4, 4, 4, 4]
    assert [c.text for c in layout.stage(1)][-1] == "mL"


@pytest.mark.parametrize("key", MODELS)
def test_every_layout_of_ours_is_read_back_and_balanced(key):
    m = model(key)
    mtp, loss = pipeline.weights(m)
    for pp in (1, 2, 3, 4, 5, 8, 12, 16, 32):
        for vpp in (1, 2, 3, 4, 8):
            layout = layout_for(m, pp, vpp)
            if layout is None:
                assert pp == 1 or pp * vpp > m.layers + 1
                continue
            if layout.text is None:
                assert m.layers % (pp * vpp) == 0
                continue
            again, wrong = parse_layout(layout.text, m, pp, vpp)
            assert not wrong
            assert again.chunks == layout.chunks
            load = [c.layers + c.mtp * mtp + c.loss * loss for c in layout.chunks]
            fewest = max(-(-m.layers // (pp * vpp)), loss + mtp * m.mtp_layers)
            assert max(load) <= fewest + max(1, loss + mtp * m.mtp_layers)


def test_the_balance_is_nvidias_where_theirs_is_best():
    theirs, _ = parse_layout("Et*4|(t*4|)*14tL", model("kimi_k2"), 4, 4)
    ours = layout_for(model("kimi_k2"), 4, 4)
    assert max(sum(c.moe for c in ours.stage(s)) for s in range(4)) == 16
    assert max(sum(c.moe for c in theirs.stage(s)) for s in range(4)) == 16
    assert layout_string(model("deepseek_v3"), 4, 4) == "Et*4|(t*4|)*14tmL"
    assert layout_string(model("deepseek_v3"), 8, 1) == "Et*8|(t*8|)*6t*5mL"
    assert layout_string(model("qwen3_30b_a3b"), 4, 4) is None


@pytest.mark.parametrize(
    "text, word",
    [
        ("t*61L", "first"),
        ("Et*61", "last"),
        ("Et*60mL", "60 layers"),
        ("Et*61L", "0 MTP"),
        ("Emt*61L", "before MTP"),
        ("Et*30|t*31mL", "2 chunks"),
        ("Et*61xL", "not a letter"),
        ("EEt*61mL", "2 times E"),
        ("Et*99999999999999mL", "more than"),
    ],
)
def test_a_wrong_layout_says_why(text, word):
    layout, wrong = parse_layout(text, model("deepseek_v3"), 1, 1)
    assert layout is None
    assert any(word in w for w in wrong), wrong


@pytest.mark.parametrize("key", ["exaone_moe_236b_a23b", "qwen3_next_80b_a3b", "glm5_744b"])
def test_mtp_that_takes_a_layer_beside_it_has_one(key):
    m = model(key)
    layouts = [layout_for(m, pp, vpp) for pp in (5, 16, 32) for vpp in (1, 2)]
    assert all(c.layers for x in layouts if x is not None for c in x.chunks)
    _, wrong = parse_layout(f"Et*{m.layers}|mL", m, 2, 1)
    assert any("a chunk without a layer t" in w for w in wrong)


@pytest.mark.parametrize(("key", "refused"), [("exaone_moe_236b_a23b", False), ("glm5_744b", True)])
def test_a_chunk_without_a_layer_between_others(key, refused):
    """Bridge builds it beside a dense MTP layer, and refuses it with sparse attention and MTP: `rule_cases.py`."""
    m = model(key)
    _, wrong = parse_layout(f"Et*{m.layers - 1}||tmL", m, 3, 1)
    assert [w.startswith("a chunk without a layer t") for w in wrong] == [True] * refused


def test_the_column_is_the_scalar_answer():
    pp = np.array([1, 1, 2, 64, 4, 16, 48])
    vpp = np.array([1, 2, 8, 4, 4, 4, 1])
    said = has_layout(model("deepseek_v3"), pp, vpp)
    assert said.tolist() == [
        layout_for(model("deepseek_v3"), int(p), int(v)) is not None for p, v in zip(pp, vpp, strict=True)
    ]
    assert said.tolist() == [True, False, True, False, True, False, True]
