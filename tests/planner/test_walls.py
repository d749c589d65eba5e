"""The Three Walls: shares that add up, counterfactuals that a second compile confirms, published figures that they bear."""

from typing import Any

import pytest

from moedsl.compiler import load_stdlib
from moedsl.facts.units import GIB
from moedsl.planner import walls
from moedsl.planner.plan import Plan
from moedsl.rules.collect import collect
from tests.helpers.programs import plan_of as plan
from tests.helpers.tables import table_of

MEASURED = "model qwen3_30b_a3b; h100 x 16; batch 1024; pin tp=1 cp=1 pp=1 ep=16 etp=1 micro_batch=1 recompute=none cuda_graph=none"
RUNS = table_of("planner", "walls: runs")


@pytest.mark.parametrize("text", RUNS)
def test_every_second_stands_at_one_wall(text: str) -> None:
    p = plan(text)
    w, breakdown, step = p.walls, p.estimate.breakdown, p.estimate.step_time_s
    shares = sum(x.share for x in (w.communication, w.host, w.compute)) + breakdown["recompute"] / step
    assert shares == pytest.approx(1, abs=1e-6)
    assert sum(w.communication.seconds.values()) == pytest.approx(w.communication.share * step)
    work = {k: s for k, s in w.compute.seconds.items() if k != "optimizer"}
    assert sum(work.values()) == pytest.approx(breakdown["compute"])
    assert (work["vision"] > 0) == ("_vl" in p.model)


@pytest.mark.parametrize("text", RUNS)
def test_the_dominant_wall_takes_the_most_or_is_compute(text: str) -> None:
    w = plan(text).walls
    lost = {"memory": w.memory.paid, "communication": w.communication.share, "host": w.host.share}
    worst = max(lost, key=lambda name: lost[name])
    assert w.dominant == (worst if lost[worst] >= 0.1 else "compute")


@pytest.mark.parametrize("text", RUNS)
def test_a_wall_beside_more_compute_is_called_a_loss(text: str) -> None:
    """Compute mostly takes more of the step than the wall to work on first, so that is not called dominant."""
    p = plan(text)
    printed = walls.text(p.walls)
    assert "dominant" not in printed
    lost = {"memory": p.walls.memory.paid, "communication": p.walls.communication.share, "host": p.walls.host.share}
    if p.walls.dominant == "compute":
        assert "  no large loss: compute" in printed
    else:
        assert f"  largest loss: {p.walls.dominant}, {max(lost.values()):.1%} of the step" in printed


@pytest.mark.parametrize(
    ("dispatcher", "without", "overlapped"), [("alltoall", 41.25, 31.31), ("hybridep", 24.71, 21.07)]
)
def test_overlap_hid_no_more_than_is_exposed(dispatcher: str, without: float, overlapped: float) -> None:
    """What EP overlap saved on 16 H100 (document "expert-parallel overlap", and Bridge's skill card) was exposed."""
    w = plan(f"{MEASURED} dispatcher={dispatcher} ep_overlap=off; throughput first; allow memory.fits").walls
    assert w.communication.shares["ep"] >= 0.9 * (without - overlapped) / without
    assert w.dominant == "communication"


def test_the_distributed_optimizer_shards_what_dp_repeats() -> None:
    """Bridge counts 3,353,032,704 parameters on a rank, 1,811,939,328 of them experts that EDP 1 cannot shard."""
    p = plan(f"{MEASURED} dispatcher=alltoall ep_overlap=off; throughput first; allow memory.fits")
    dense, replicas, state = 3_353_032_704 - 1_811_939_328, 16, 12
    (bought,) = p.walls.memory.bought_back
    assert bought.by == "sharding"
    assert bought.gib == pytest.approx(state * dense * (1 - 1 / replicas) / GIB, rel=1e-3)


def pinned(p: Plan, **changes: Any) -> str:
    """The run of a plan with every axis pinned, some to another value."""
    m, q, b = p.layout, p.policy, p.batch
    names = ("dispatcher", "recompute", "offload", "cuda_graph", "ep_overlap", "delay_wgrad")
    values = {n: getattr(m, n) for n in ("tp", "cp", "pp", "vpp", "ep", "etp")} | {n: getattr(q, n) for n in names}
    values = values | {"micro_batch": b.micro_batch} | changes
    pins = " ".join(f"{n}={_said(v)}" for n, v in values.items())
    head = f"model {p.model}; {p.hardware} x {p.gpus}; seq {b.seq}; batch {b.global_batch}"
    return f"{head}; pin {pins}; precision {q.precision}; {p.phase} first; allow memory.fits"


def _said(value: Any) -> str:
    return (
        f"[{', '.join(value)}]" if isinstance(value, list) and value else "none" if value == [] else str(value).lower()
    )


@pytest.mark.parametrize("text", RUNS[:1])
def test_a_second_compile_confirms_what_is_bought_back(text: str) -> None:
    p = plan(text)
    (bought,) = (b for b in p.walls.memory.bought_back if b.by == "recompute")
    other = plan(pinned(p, recompute=[])).estimate
    assert other.memory.peak_gib - p.estimate.memory.peak_gib == pytest.approx(bought.gib, abs=1e-6)
    assert p.estimate.step_time_s - other.step_time_s == pytest.approx(bought.paid_s, abs=1e-6)


@pytest.mark.parametrize(("axis", "wall"), [("dispatcher", "communication"), ("offload", "memory")])
def test_a_second_compile_confirms_a_fix(axis: str, wall: str) -> None:
    p = plan(RUNS[0])
    (here,) = (h for h in p.walls.fixes[wall].here if h.axis == axis)
    other = plan(pinned(p, **{axis: here.value})).estimate
    slower = (other.step_time_s / p.estimate.step_time_s - 1) * 100
    assert here.against_plan.startswith(f"{slower:+.1f}% step time")
    assert here.helps


def test_the_profile_table_has_every_wall_and_names_axes() -> None:
    fixes = {r.name: tuple(named) for r, named in walls.symptoms(collect(load_stdlib().rules)[0])}
    assert [*fixes] == list(walls.WALLS)
    assert fixes == {
        "memory": ("recompute", "precision", "offload", "vpp", "pp"),
        "communication": ("dispatcher", "ep_overlap", "vpp", "pp"),
        "host": ("cuda_graph", "micro_batch"),
        "compute": ("precision", "dispatcher", "micro_batch"),
    }


def test_launches_are_a_wall_where_layers_are_short() -> None:
    """1,024 tokens a microbatch leave a GB200 waiting for its host; graphs are the fix, and less of it with them."""
    text = "model qwen3_30b_a3b; gb200 x 16; seq 512; pin micro_batch=1 ep=16 tp=1 pp=1 cp=1 dispatcher=hybridep"
    bare, captured = (
        plan(f"{text} cuda_graph={g}; throughput first").walls for g in ("none", "[attn, moe_router, moe_preprocess]")
    )
    assert bare.dominant == "host" == bare.usual.says
    assert captured.host.share < bare.host.share
    (graphs,) = (h for h in bare.fixes["host"].here if h.axis == "cuda_graph")
    assert graphs.helps


def test_graphs_hold_memory_and_it_is_said() -> None:
    graphs = "pin cuda_graph=[attn, moe_router, moe_preprocess]"
    p = plan(f"model deepseek_v3; gb200 x 256; throughput first; precision mxfp8; {graphs}")
    without = plan(pinned(p, cuda_graph=[])).estimate.memory.peak_gib
    held = p.walls.memory.graphs_gib
    assert held == pytest.approx(p.estimate.memory.peak_gib - without, abs=1e-6) and held > 1
    assert f"CUDA graphs hold {held:.1f} GiB" in walls.text(p.walls)
    assert "budget several extra" in walls.text(p.walls)


def test_low_precision_shows_both_shares_of_the_peak() -> None:
    p = plan("model deepseek_v3; gb200 x 256; throughput first; precision mxfp8")
    mfu = p.walls.mfu
    assert mfu.of_bf16 > mfu.share > 0
    assert mfu.of_bf16 == pytest.approx(p.estimate.model_tflops_per_gpu / 2500, rel=0.05)
    assert "of the mxfp8 peak" in walls.text(p.walls) and "compare absolute throughput" in walls.text(p.walls)
    assert "MFU" not in walls.text(plan(RUNS[0]).walls)


@pytest.mark.parametrize(("hardware", "wall"), [("h100", "communication"), ("gb200", "host"), ("b200", None)])
def test_the_usual_wall_is_the_platforms(hardware: str, wall: str | None) -> None:
    usual = plan(f"model qwen3_30b_a3b; {hardware} x 16").walls.usual
    assert (usual and usual.says) == wall


def test_the_text_has_a_line_for_each_wall() -> None:
    text = walls.text(plan(RUNS[0]).walls).splitlines()
    assert text[0] == "Walls"
    assert [line.split()[0] for line in text[1:5]] == ["memory", "communication", "host", "compute"]
    assert text[5].strip().startswith("largest loss: communication, ")
    assert all(len(line) < 200 for line in text)


def test_precision_is_marked_as_the_experiments() -> None:
    (here,) = (
        h for h in plan(RUNS[1].replace("; precision mxfp8", "")).walls.fixes["compute"].here if h.axis == "precision"
    )
    assert here.changes == "experiment" and here.value == "mxfp8"
