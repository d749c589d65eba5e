"""The models that no other file of this folder is about: Bridge builds a plan of each with the counted parameters."""

import random
from collections.abc import Mapping
from itertools import chain, product
from pathlib import Path

import make_scale
import pytest
from attrs import evolve

from moedsl.bridge.verify.cases import Case, Report
from moedsl.bridge.verify.client import Server
from moedsl.compiler import Result, load_stdlib
from moedsl.cost import parameters
from moedsl.facts.axes import AXES
from moedsl.facts.releases import Release
from tests.helpers import random_plans, rotation, warm
from tests.helpers.cost_models import enough_gpus, model
from tests.helpers.programs import compiled, judged, stages_key, written
from tests.helpers.random_plans import MACHINES, Gene
from tests.helpers.targets import OLDER, available

pytestmark = pytest.mark.bridge


# Models x hardware x phases x sequences: every plan goes to the real Megatron Bridge, every refusal is explained. A
# run takes each model on one kind of hardware, in one of the nine cases of phase and sequence, and Bridge builds the
# stages of one of them; `make test-all` takes them all.

GPUS_OF = {
    "moonlight_16b": 32, "qwen3_30b_a3b": 32, "qwen3_vl_30b_a3b": 32, "gpt_oss_120b": 64, "qwen3_235b_a22b": 256,
    "qwen3_vl_235b_a22b": 256, "deepseek_v3": 256, "kimi_k2": 512,
}  # fmt: skip
GENERATIONS = (("h100", "h200"), ("b200", "b300"), ("gb200", "gb300"))
PHASES = ("fit", "scale", "throughput")
SEQUENCES = ("4k", "32k", "128k")
BATCH = 48
"""Cells that travel to the verifier at once."""

Cell = tuple[str, str, str, str]
Outcome = tuple[Result, Report | None]


def machines() -> list[tuple[str, str]]:
    """Each model on one kind of hardware, each kind for one model or more; or all of them."""
    dice, kinds = rotation.dice("hardware"), [*chain(*GENERATIONS)]
    if rotation.ALL:
        return [*product(GPUS_OF, kinds)]
    more = dice.sample(kinds, len(GPUS_OF) - len(kinds))
    return [*zip(GPUS_OF, dice.sample([*kinds, *more], len(GPUS_OF)), strict=True)]


CELLS = rotation.one_of_each(
    "matrix", [(*m, phase, seq) for m in machines() for phase in PHASES for seq in SEQUENCES], lambda cell: cell[:2]
)

BUILT = rotation.some("built cells", CELLS, 1)


def text_of_cell(cell: Cell) -> str:
    model, hardware, phase, seq = cell
    return f"model {model}; {hardware} x {GPUS_OF[model]}; seq {seq}; {phase} first"


@pytest.fixture(scope="module")
def outcomes(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[Cell, Outcome]:
    """Every cell compiled and, where it has a plan, judged. A stage that another cell built is not built again."""
    folder = tmp_path_factory.mktemp("matrix")
    results = {cell: compiled(text_of_cell(cell)) for cell in CELLS}
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


# The models that no other file of this folder is about: Bridge builds a plan of each with the counted parameters.


def own_file(name: str) -> bool:
    """Whether the matrix takes a model, or it has layers that another file is about."""
    m = model(name)
    return name in GPUS_OF or m.hybrid or m.linear


def text_of(name: str) -> str:
    if name == ALONE:
        return "exaone_moe_236b_a23b; gb300 x 64; pin pp=32 tp=2 ep=2"
    dice = rotation.dice(f"run of {name}")
    hardware = dice.choice([kind for kinds in GENERATIONS for kind in kinds])
    phase = dice.choice(PHASES)
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


# Programs drawn at random, of any model, machine, task, format and pins: the real Megatron Bridge, of each release,
# builds what is planned.

PLANNED = 80 if rotation.ALL else 1
SIZES = (8, 16, 32, 64, 72, 128, 256, 512, 1024)
LENGTHS = ("4k", "8k", "16k", "32k", "64k", "128k")
BATCHES = (64, 128, 256, 512, 720, 1024, 2048)
FORMATS = ("", "precision auto", *(f"precision {w}" for a in AXES if a.name == "precision" for w in a.words))
WITHOUT_WEIGHTS = "plan.sft_without_weights"
"""The warning of a run that Bridge refuses until its weights are named."""


def _pins(dice: random.Random) -> str:
    pinned = dice.sample([a for a in AXES if not a.is_format], dice.randint(0, 3))
    return "\n".join(random_plans.pin(axis, dice) for axis in pinned)


GENES: Mapping[str, Gene] = {
    **{n: random_plans.GENES[n] for n in ("model", "phase", "tuning", "resilience", "save", "length")},
    "machines": lambda dice: f"{dice.choice(MACHINES)} x {dice.choice(SIZES)}",
    "seq": lambda dice: f"seq {dice.choice(LENGTHS)}",
    "batch": lambda dice: f"batch {dice.choice(BATCHES)}",
    "precision": lambda dice: dice.choice(FORMATS),
    "pins": _pins,
}


def runs(planned: int, also: str = "") -> dict[str, str]:
    """So many programs that have a plan, by name; `also` is a statement of each."""
    dice, out = rotation.dice(f"random programs {also}"), dict[str, str]()
    while len(out) < planned:
        text = "\n".join([random_plans.text({name: gene(dice) for name, gene in GENES.items()}), also])
        result = compiled(text)
        if not result.failed and not any(d.id == WITHOUT_WEIGHTS for d in result.diagnostics):
            out[f"program{len(out)}"] = text
    return out


@pytest.mark.timeout(3000)
def test_bridge_builds_what_is_planned(server: Server, tmp_path: Path) -> None:
    drawn = runs(PLANNED)
    for name, report in judged(server, drawn, tmp_path).items():
        assert report.ok, (drawn[name], report.to_json())


@pytest.mark.skipif(not rotation.ALL, reason="each release starts a Bridge of its own: make test-all")
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("release", OLDER, ids=lambda r: r.bridge)
def test_an_older_release_builds_what_is_planned_for_it(release: Release, tmp_path: Path) -> None:
    available(release)
    drawn = runs(PLANNED // 2, f"target bridge {release.minor}")
    older = warm.server(2, release)
    try:
        for name, report in judged(older, drawn, tmp_path).items():
            assert report.ok, (drawn[name], report.to_json())
    finally:
        older.close()


# The process groups of ten thousand ranks, as the real Megatron-Core computes them.


def test_every_group_of_ten_thousand_ranks_is_megatron_s(server: Server, tmp_path: Path) -> None:
    gpus = make_scale.GPUS[1]
    (case,) = written(compiled(make_scale.PROGRAM.format(gpus=gpus, batch=4 * gpus)), tmp_path)
    (report,) = server.judge([evolve(case, stages=rotation.ALL)])
    assert report.verdict == "accepted" and not report.mismatches
    assert len(report.groups) == 11 and all(g["matches"] for g in report.groups.values())
    assert report.groups["TP"]["count"] * report.groups["TP"]["sizes"][0] == gpus
