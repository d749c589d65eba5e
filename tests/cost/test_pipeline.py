"""Pipeline layouts: NVIDIA's own are read as Megatron reads them, and ours are legal there and balanced."""

import json
from itertools import combinations, pairwise

import numpy as np
import pytest
from attrs import evolve

from moedsl.cost import blocks, pipeline
from moedsl.cost.pipeline import Layout, has_layout, layout_for, layout_string, parse_layout, unroll
from moedsl.facts.facts import Model
from tests.helpers import bridge_process
from tests.helpers.cost_models import model
from tests.helpers.tables import table_of

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


@pytest.mark.parametrize("text, word", table_of("cost", "a wrong layout says why"))
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


# Our layouts as Megatron-Core's own parser and validator read them, in a process of its own.

KEYS = ("deepseek_v3", "kimi_k2", "qwen3_235b_a22b", "moonlight_16b")
PAIRS = ((2, 1), (3, 2), (4, 4), (5, 1), (8, 3), (16, 2), (30, 2), (61, 1))
ASK = """
import json, sys
from moedsl.bridge.verify import stand_ins
stand_ins.install_engine()
from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout as Layout
letters = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
said = []
for text, pp, layers, mtp in json.load(sys.stdin):
    layout = Layout(text, pp)
    layout.validate_layer_layout(layers, mtp or None)
    said.append([["".join(letters[t.name] for t in chunk) for chunk in stage] for stage in layout.layout])
print(json.dumps(said))
"""


def written(key: str) -> list[Layout]:
    """The layouts of a model that Megatron has to be given."""
    layouts = [layout_for(model(key), pp, vpp) for pp, vpp in PAIRS]
    return [x for x in layouts if x is not None and x.text is not None]


@pytest.mark.bridge
def test_megatron_core_reads_the_same_chunks():
    layouts = [(model(key), x) for key in KEYS for x in written(key)]
    asked = [(x.text, x.pp, m.layers, m.mtp_layers) for m, x in layouts]
    ran = bridge_process.run("-c", ASK, text=json.dumps(asked))
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout.splitlines()[-1])
    assert len(said) == len(layouts) > 20
    for (_, ours), theirs in zip(layouts, said, strict=True):
        assert theirs == [[c.text for c in ours.stage(s)] for s in range(ours.pp)]


# A hybrid's stages: the heaviest as light as any split has it, and what Megatron would refuse in a user's own.


def hybrid(pattern: str) -> Model:
    return evolve(model("nemotron_3_super"), layer_pattern=pattern, layers=len(pattern))


def heaviest(m: Model, parts: list[str]) -> float:
    """What the heaviest stage weighs."""
    each = pipeline.layer_weights(m)
    loads = [sum(each[letter] for letter in part) for part in parts]
    return max(*loads[:-1], loads[-1] + each["last"])


@pytest.mark.parametrize("pattern", ["MEMEM*EMEM", "M*E-MEM*EME", "MMMM****EEEE"])
@pytest.mark.parametrize("pp", [2, 3, 4])
def test_no_split_has_a_lighter_heaviest_stage(pattern: str, pp: int) -> None:
    m = hybrid(pattern)
    cuts = combinations(range(1, len(pattern)), pp - 1)
    every = [[pattern[a:b] for a, b in pairwise((0, *cut, len(pattern)))] for cut in cuts]
    found = list(pipeline.split_pattern(m, pp))
    assert "".join(found) == pattern and all(found) and len(found) == pp
    assert heaviest(m, found) == pytest.approx(min(heaviest(m, parts) for parts in every))


@pytest.mark.parametrize("name", ["nemotron_3_nano", "nemotron_3_super", "nemotron_3_ultra", "nemotron_3_5_lightning"])
def test_every_layer_is_on_one_stage(name: str) -> None:
    m = model(name)
    whole = blocks.counted(m.layer_pattern)
    for pp in (1, 2, 3, 8, m.layers):
        layout = pipeline.layout_for(m, pp, 1)
        assert layout is not None and len(layout.chunks) == pp
        assert {kind: sum(c.of(kind) for c in layout.chunks) for kind in blocks.kinds(m)} == whole
        assert (layout.text is None) == (pp == 1)
        assert [c.mtp for c in layout.chunks] == [0] * (pp - 1) + [m.mtp_layers]
    assert pipeline.layout_for(m, m.layers + 1, 1) is None
    assert pipeline.layout_for(m, 2, 2) is None


@pytest.mark.parametrize("text, why", table_of("cost", "what is wrong with a users stages is said"))
def test_what_is_wrong_with_a_users_stages_is_said(text: str, why: str) -> None:
    layout, reasons = pipeline.parse_layout(text, hybrid("MEM*EM"), 2, 1)
    assert layout is None and any(why in reason for reason in reasons)


def test_a_users_stages_are_taken_as_they_are() -> None:
    layout, reasons = pipeline.parse_layout("M|EM*EM", hybrid("MEM*EM"), 2, 1)
    assert layout is not None and reasons == ()
    assert [c.layers for c in layout.chunks] == [1, 5] and layout.text == "M|EM*EM"
