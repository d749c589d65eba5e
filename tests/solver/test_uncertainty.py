"""How well a step time is known: the intervals hold what was published, and know what they rest on."""

import numpy as np
import pytest
from attrs import evolve

from moedsl.facts.symbols import ARCHS
from moedsl.runs.measured_runs import Measured, batches, read
from moedsl.solver import uncertainty
from moedsl.solver.uncertainty import ADDED, LAUNCHED, NINE_OF_TEN, added, apart, doubt, known, leaning, slopes
from moedsl.support.resources import stdlib_dir

CALIBRATION = stdlib_dir() / "calibration"


@pytest.fixture(scope="module")
def published() -> list[Measured]:
    return read(CALIBRATION / "published.jsonl")[1]


def one(runs: list[Measured], id: str) -> Measured:
    return next(r for r in runs if r.id == id)


def slope(r: Measured) -> uncertainty.Floats:
    return leaning(r.cost, r.row, r.cost.time(r.row))[0]


def test_the_file_is_of_the_constants_and_the_runs(published: list[Measured]) -> None:
    generations, unexplained = known()
    papers = read(CALIBRATION / "papers.jsonl")[1]
    assert {r.arch for r in published} | {r.arch for r in papers} < {*generations} == {*ARCHS}
    assert 0 < unexplained.like <= unexplained.unlike
    for arch, seen in generations.items():
        mine = [r for r in [*published, *papers] if r.arch == arch]
        assert {*seen.names} <= {*published[0].cost.hardware.constants.known}
        assert seen.gpus == max((r.cost.gpus for r in mine), default=0)
        assert {*seen.on} == {r.gpu for r in published if r.arch == arch}
        assert seen.seq == max((r.cost.seq for r in mine), default=0)
        assert (seen.spread > 0).all()


@pytest.mark.parametrize("id", ["m0000", "m0288"])
def test_constants_that_are_moved_at_once_are_each_moved_alone(published: list[Measured], id: str) -> None:
    r = one(published, id)
    k, base = r.cost.hardware.constants, r.cost.time(r.row)
    names = [c.name for c in k.known.values() if getattr(k, c.name) > 0]
    moved = [evolve(k, **{n: getattr(k, n) * np.exp(-0.3)}) for n in names]
    whole = [evolve(r.cost, hardware=evolve(r.cost.hardware, constants=c)).time(r.row) for c in moved]
    found = slopes(r.cost, r.row, base, dict.fromkeys(names, -0.3))
    assert found[0].tolist() == [float(np.log(t[0] / base[0]) / -0.3) for t in whole]


def test_most_published_runs_are_inside(published: list[Measured]) -> None:
    inside = list[bool]()
    for b in batches(published):
        moved = leaning(b.cost, b.columns, b.cost.time(b.columns))
        for i, row in zip(b.at, moved, strict=True):
            r = published[i]
            off = np.log(r.predicted() / (r.tokens or 0))
            inside.append(abs(off) <= NINE_OF_TEN * doubt(r.cost, row).spread)
    assert np.mean(inside) > 0.88


def test_a_run_unlike_all_others_has_a_wider_interval(published: list[Measured]) -> None:
    r = one(published, "m0000")
    far = evolve(r, cost=evolve(r.cost, gpus=2**15, global_batch=2**19))
    assert doubt(r.cost, slope(r)).unlike == ()
    other = evolve(r.cost, hardware=evolve(r.cost.hardware, name="own_gpu"))
    assert doubt(other, slope(r)).unlike == ("no MoE run on own_gpu",)
    assert doubt(far.cost, slope(far)).unlike == ("no run on more than 8192 GPUs",)
    hosted = one(published, "m0155")  # 16 experts a rank, microbatch 1, alltoall and no graph
    assert doubt(hosted.cost, slope(hosted)).unlike == ("hardly a run whose launches add 45% to its step",)
    for arch in ("ampere", "rubin"):
        new = evolve(r.cost, hardware=evolve(r.cost.hardware, arch=arch))
        found = doubt(new, leaning(new, r.row, new.time(r.row))[0])
        assert found.unlike == (f"no MoE run on {arch}",) and found.spread > doubt(r.cost, slope(r)).spread


def test_it_leans_on_what_it_spends_its_time_on(published: list[Measured]) -> None:
    """Faster products make every step shorter, and a step without HybridEP does not read its rate."""
    r = one(published, "m0167")
    base = r.cost.time(r.row)
    assert -1 < slopes(r.cost, r.row, base, {"gemm": 0.02})[0, 0] < -0.2
    assert slopes(r.cost, r.row, base, {"dispatch_alltoall": 0.02, "cast_nvfp4": 0.02}).tolist() == [[0.0, 0.0]]
    found = doubt(r.cost, slope(r))
    moves = [term.moves for term in found.leans_on]
    assert len(moves) == 3 and moves == sorted(moves, reverse=True)
    assert found.factor == pytest.approx(np.exp(NINE_OF_TEN * found.spread))


def test_layouts_that_differ_little_are_told_apart_sooner(published: list[Measured]) -> None:
    """What two layouts share cancels: their difference is known better than either."""
    r = one(published, "m0167")
    row = slope(r)
    assert len(row) == len(known()[0][r.arch].names) + len(ADDED)
    (same,) = apart(r.cost, np.zeros((1, len(row))))
    (other,) = apart(r.cost, row[None, :] / 2)
    assert same == pytest.approx(NINE_OF_TEN * known()[1].between)
    assert same < other


def test_balanced_runs_that_resemble_published_ones_are_known_within_a_quarter(published: list[Measured]) -> None:
    like, launched = dict[str, float](), dict[str, float]()
    balanced = [r for r in published if r.cost.routing == "balanced"]
    for b in batches(balanced):
        moved = leaning(b.cost, b.columns, b.cost.time(b.columns))
        for i, row in zip(b.at, moved, strict=True):
            found, id = doubt(b.cost, row), balanced[i].id
            launched[id] = row[-1]
            if not found.unlike:
                like[id] = 2 * np.sinh(NINE_OF_TEN * found.spread)
    assert max(like.values()) <= 0.26  # the goal of 25% is missed by a little: docs/accuracy.md
    assert {*launched} - {*like} == {id for id, share in launched.items() if share > LAUNCHED}
    assert len(like) > 0.9 * len(launched)


def test_uneven_tokens_widen_an_interval_by_what_they_add(published: list[Measured]) -> None:
    """What they add is the difference of a step under natural routing and one with forced balance."""
    r = one(published, "m0330")
    even = evolve(r, cost=evolve(r.cost, routing="balanced"))
    step, balanced = r.cost.time(r.row), even.cost.time(r.row)
    uneven, _ = added(r.cost, r.row, step)[0]
    assert uneven == pytest.approx(1 - balanced[0] / step[0], abs=1e-6)
    assert added(even.cost, r.row, balanced)[0, 0] == 0
    wide, narrow = doubt(r.cost, slope(r)), doubt(even.cost, slope(even))
    assert wide.leans_on[0].name == "uneven tokens"
    assert wide.spread > max(narrow.spread, known()[1].added["uneven tokens"] * uneven)


def test_launches_widen_an_interval_where_the_host_decides(published: list[Measured]) -> None:
    runs = one(published, "m0318"), one(published, "m0167")  # packed sequences of a hybrid; a graph of the iteration
    slow, fast = ((r, added(r.cost, r.row, r.cost.time(r.row))[0, 1]) for r in runs)
    assert slow[1] > 0.2 > 0.05 > fast[1]
    found = doubt(slow[0].cost, slope(slow[0]))
    assert found.leans_on[0].name == "launches"
    assert found.spread > known()[1].added["launches"] * slow[1] > doubt(fast[0].cost, slope(fast[0])).spread
