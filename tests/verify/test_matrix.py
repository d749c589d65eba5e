"""Models x hardware x phases x sequences: every plan goes to the real Megatron Bridge, every refusal is explained.

A run takes each model on one kind of hardware, in one of the nine cases of phase and sequence, and Bridge builds the
stages of one of them; `make test-all` takes them all.
"""

from __future__ import annotations

from itertools import chain, product

import pytest
from attrs import evolve

from moedsl.bridge.verify.cases import Case, Report
from moedsl.bridge.verify.client import Server
from moedsl.compiler import Result
from tests.helpers import rotation
from tests.helpers.programs import compiled, stages_key, written

GPUS = {
    "moonlight_16b": 32,
    "qwen3_30b_a3b": 32,
    "qwen3_vl_30b_a3b": 32,
    "gpt_oss_120b": 64,
    "qwen3_235b_a22b": 256,
    "qwen3_vl_235b_a22b": 256,
    "deepseek_v3": 256,
    "kimi_k2": 512,
}
GENERATIONS = (("h100", "h200"), ("b200", "b300"), ("gb200", "gb300"))
PHASES = ("fit", "scale", "throughput")
SEQUENCES = ("4k", "32k", "128k")
BATCH = 48
"""Cells that travel to the verifier at once."""

pytestmark = pytest.mark.bridge
Cell = tuple[str, str, str, str]
Outcome = tuple[Result, Report | None]


def machines() -> list[tuple[str, str]]:
    """Each model on one kind of hardware, each kind for one model or more; or all of them."""
    dice, kinds = rotation.dice("hardware"), [*chain(*GENERATIONS)]
    if rotation.ALL:
        return [*product(GPUS, kinds)]
    more = dice.sample(kinds, len(GPUS) - len(kinds))
    return [*zip(GPUS, dice.sample([*kinds, *more], len(GPUS)), strict=True)]


CELLS = rotation.one_of_each(
    "matrix", [(*m, phase, seq) for m in machines() for phase in PHASES for seq in SEQUENCES], lambda cell: cell[:2]
)

BUILT = rotation.some("built cells", CELLS, 1)


def text_of(cell: Cell) -> str:
    model, hardware, phase, seq = cell
    return f"model {model}; {hardware} x {GPUS[model]}; seq {seq}; {phase} first"


@pytest.fixture(scope="module")
def outcomes(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[Cell, Outcome]:
    """Every cell compiled and, where it has a plan, judged. A stage that another cell built is not built again."""
    folder = tmp_path_factory.mktemp("matrix")
    results = {cell: compiled(text_of(cell)) for cell in CELLS}
    jobs: list[tuple[Cell, Case]] = []
    built: set[str] = set()
    for cell, result in results.items():
        for case in written(result, folder / "_".join(cell)):
            new = cell in BUILT and stages_key(case.plan) not in built
            built |= {stages_key(case.plan)} if new else set()
            jobs.append((cell, evolve(case, stages=new)))
    reports: dict[Cell, Report] = {}
    for at in range(0, len(jobs), BATCH):
        part = jobs[at : at + BATCH]
        reports |= zip([cell for cell, _ in part], server.judge([case for _, case in part]), strict=True)
    return {cell: (r, reports.get(cell)) for cell, r in results.items()}


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("cell", CELLS, ids="-".join)
def test_bridge_accepts_what_is_planned(cell: Cell, outcomes: dict[Cell, Outcome]) -> None:
    result, report = outcomes[cell]
    if report is None:
        explained(result)
    else:
        assert report.ok, report.to_json()


def test_every_distinct_stage_was_built(outcomes: dict[Cell, Outcome]) -> None:
    built = {stages_key(r.plans[0]) for r, report in outcomes.values() if report is not None and report.stages}
    drawn = [outcomes[cell] for cell in BUILT]
    assert built == {stages_key(r.plans[0]) for r, report in drawn if report is not None}


def explained(result: Result) -> None:
    """One error that says what does not fit and offers a way out."""
    (found,) = [d for d in result.diagnostics if d.is_error]
    assert found.id == "solve.does_not_fit"
    assert found.values["least_gib"] > found.values["visible_gib"]
    assert found.help


@pytest.mark.skipif(not rotation.ALL, reason="of all cells: make test-all")
def test_most_cells_have_a_plan(outcomes: dict[Cell, Outcome]) -> None:
    planned = sum(report is not None for _, report in outcomes.values())
    assert planned > 0.9 * len(CELLS), f"{planned} of {len(CELLS)}"
