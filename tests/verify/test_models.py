"""The models that no other file of this folder is about: Bridge builds a plan of each with the counted parameters."""

from __future__ import annotations

import pytest

from moedsl.bridge.verify.cases import Report
from moedsl.bridge.verify.client import Server
from moedsl.compiler import load_stdlib
from moedsl.cost import parameters
from tests.helpers import rotation
from tests.helpers.cost_models import enough_gpus, model
from tests.helpers.programs import judged
from tests.verify import test_matrix

pytestmark = pytest.mark.bridge


def own_file(name: str) -> bool:
    """Whether the matrix takes a model, or it has layers that another file is about."""
    m = model(name)
    return name in test_matrix.GPUS or m.hybrid or m.linear


def text_of(name: str) -> str:
    if name == ALONE:
        return "exaone_moe_236b_a23b; gb300 x 64; pin pp=32 tp=2 ep=2"
    dice = rotation.dice(f"run of {name}")
    hardware = dice.choice([kind for kinds in test_matrix.GENERATIONS for kind in kinds])
    phase = dice.choice(test_matrix.PHASES)
    return f"model {name}; {hardware} x {enough_gpus(model(name))}; seq 4k; {phase} first"


ALONE = "a layer of MTP and the loss"
"""48 layers, MTP and the loss leave them alone on 32 stages, where Bridge would build a dense layer with experts."""
MODELS = rotation.some("other models", [ALONE, *(n for n in sorted(load_stdlib().models) if not own_file(n))], 1)


@pytest.fixture(scope="module")
def reports(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    return judged(server, {name: text_of(name) for name in MODELS}, tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize("name", MODELS)
def test_bridge_builds_what_was_planned(name: str, reports: dict[str, Report]) -> None:
    report = reports[name]
    assert report.ok, (text_of(name), report.to_json())
    assert all(stage["planned"] is not None for stage in report.stages)
    if name == ALONE:
        last = report.stages[-1]["real"]["chunks"]
        assert last == [last[0] | {"layers": 1, "mtp": 1}]
    else:
        assert report.parameters == parameters.unique(model(name)), text_of(name)
