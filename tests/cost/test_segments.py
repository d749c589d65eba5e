"""A hybrid's stages: the heaviest as light as any split has it, and what Megatron would refuse in a user's own."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from attrs import evolve

from moedsl.cost import blocks, pipeline
from moedsl.facts.facts import Model
from tests.helpers.cost_models import model


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


@pytest.mark.parametrize(
    "text, why",
    [
        ("MEM|*E|M", "3 segments"),
        ("MEM*E|", "without a layer"),
        ("MEx|*EM", "not a letter"),
        ("MEM|*EE", "from layer 6 on"),
        ("MEM|*EMM", "from layer 7 on"),
        ("MEM|*E", "from layer 6 on"),
    ],
)
def test_what_is_wrong_with_a_users_stages_is_said(text: str, why: str) -> None:
    layout, reasons = pipeline.parse_layout(text, hybrid("MEM*EM"), 2, 1)
    assert layout is None and any(why in reason for reason in reasons)


def test_a_users_stages_are_taken_as_they_are() -> None:
    layout, reasons = pipeline.parse_layout("M|EM*EM", hybrid("MEM*EM"), 2, 1)
    assert layout is not None and reasons == ()
    assert [c.layers for c in layout.chunks] == [1, 5] and layout.text == "M|EM*EM"
