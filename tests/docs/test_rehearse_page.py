"""The output of a rehearsal that its page shows: what it says of groups and parameters is what the program counts now."""

from __future__ import annotations

from pathlib import Path

from moedsl.bridge.verify.cases import from_plan
from moedsl.rehearse.prepare import Prepared, prepare
from moedsl.rehearse.result import groups, parameters
from moedsl.rehearse.shrink import shrink
from tests.helpers.paths import ROOT
from tests.helpers.programs import compiled

RUN = "examples/models/deepseek_v3_h100.moe"


def test_the_checks_of_the_page_are_those_of_its_run(tmp_path: Path) -> None:
    result = compiled((ROOT / RUN).read_text())
    plan, model = result.plans[0], result.chosen[0].problem.program.model
    device = from_plan(plan)
    assert device is not None
    made = prepare(shrink(plan, model, 8, ""), (model.hf, model.family), tmp_path / "small", 3, device)
    assert isinstance(made, Prepared)
    shown = " ".join((ROOT / "docs" / "rehearse.md").read_text().partition(f"$ moedsl rehearse {RUN}\n")[2].split())
    assert groups(made, ()).says in shown
    assert parameters(made, ()).says in shown
