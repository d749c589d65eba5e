"""Exports to Nsight's schema whose unions, overlaps and idle times are known by hand."""

import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from moedsl.cli.main import main
from moedsl.compiler import Result, compile_source
from moedsl.facts import axes
from moedsl.runs.profile import predicted
from moedsl.support.source import Source
from tests.helpers.nsight_export import Export, write

GEMM = "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NTN"
ATTENTION = "void cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16"
SEND = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ADAM = "void multi_tensor_apply_kernel<1l, TensorListMetadata<4>, transformer_engine::multi_tensor_adam::AdamFunctor<float>>"
STEP = 1000.0
Json = dict[str, Any]


def step(e: Export, at: float, named: bool = True) -> None:
    """One step of 1000 us: compute 100-400 on two streams that overlap, an all-gather half hidden, an exposed
    all-to-all, a copy, a late launch, a wait for another stage."""
    if named:
        e.range(f"step {at / STEP:.0f}", at, at + STEP)
    e.range("mlp.forward.linear_fc1", at + 90, at + 96)
    e.kernel(GEMM, at + 100, at + 300, at + 91)
    e.kernel(GEMM, at + 200, at + 400, at + 95, stream=8)
    e.kernel(GATHER, at + 350, at + 450, at + 97, stream=20)
    e.range("nccl:all_to_all", at + 98, at + 99)
    e.kernel(SEND, at + 450, at + 500, at + 98.5, stream=21)
    e.kernel(ATTENTION, at + 560, at + 660, at + 550)
    e.kernel("Memcpy DtoH", at + 640, at + 680, at + 551, stream=9)
    e.range("nccl:recv 0->1", at + 555, at + 557)
    e.kernel(SEND, at + 700, at + 750, at + 556, stream=22)
    e.kernel(ADAM, at + 800, at + 900, at + 558)


def profile(capsys: pytest.CaptureFixture[str], *words: str) -> Json:
    assert main(["profile", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def three_steps(named: bool = True) -> Export:
    e = Export()
    for i in range(3):
        step(e, i * STEP, named)
    return e


def test_known_unions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = profile(capsys, str(write(tmp_path / "known.sqlite", [three_steps()])))
    us = 1e-6
    assert data["step_s"] == pytest.approx(STEP * us) and data["steps"]["n"] == 3
    found = {c["class"]: (c["busy_s"] / us, c["exposed_s"] / us, c["launches"]) for c in data["classes"]}
    assert found == {
        "gemm": pytest.approx((300, 250, 2)),  # 400 of work, in 300 of time; 50 with the all-gather
        "all_gather": pytest.approx((100, 50, 1)),
        "alltoall": pytest.approx((50, 50, 1)),
        "attention_backward": pytest.approx((100, 80, 1)),
        "host_copy": pytest.approx((40, 20, 1)),
        "pipeline": pytest.approx((50, 50, 1)),
        "optimizer": pytest.approx((100, 100, 1)),
    }
    device = {n: s / us for n, s in data["device"].items()}
    assert device == {
        "busy_s": pytest.approx(670), "idle_s": pytest.approx(330), "compute_s": pytest.approx(500),
        "compute_absent_s": pytest.approx(500), "communication_s": pytest.approx(200),
        "communication_exposed_s": pytest.approx(150),
    }  # fmt: skip
    assert data["unknown"]["share"] == 0
    assert data["modules"] == [
        {"module": "mlp.forward.linear_fc1", "work_s": pytest.approx(400 * us), "share": pytest.approx(400 / 600)}
    ]


def test_idle_time_has_causes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = profile(capsys, str(write(tmp_path / "known.sqlite", [three_steps()])))
    causes = {c: s / 1e-6 for c, s in data["idle"]["by_cause"].items()}
    # 0-100 and 500-560 are launched late, in the last step also 900-1000 for all that the trace knows;
    # 680-700 and 750-800 wait beside a receive. In the steps before, 900-1000 goes to the next launch, which is late.
    assert causes == {
        "launch": pytest.approx(100 + 60 + 100 * 2 / 3), "bubble": pytest.approx(20 + 50), "communication": 0,
        "dependency": 0, "unresolved": pytest.approx(100 / 3),
    }  # fmt: skip
    walls = {n: w["s"] / 1e-6 for n, w in data["walls"].items()}
    assert walls["compute"] == pytest.approx(500)
    assert walls["communication"] == pytest.approx(150 + 70)
    assert walls["memory"] == pytest.approx(20)
    assert sum(walls.values()) == pytest.approx(STEP)
    absent = {c: s / 1e-6 for c, s in data["compute_absent"]["by_cause"].items()}
    assert absent["bubble"] == pytest.approx(120) and absent["communication"] == pytest.approx(100)
    assert sum(absent.values()) == pytest.approx(500)


def test_steps_without_ranges_are_found_by_the_optimizer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = profile(capsys, str(write(tmp_path / "anchor.sqlite", [three_steps(named=False)])))
    assert data["steps"]["found_by"] == "optimizer" and data["steps"]["n"] == 2
    assert data["step_s"] == pytest.approx(STEP * 1e-6)


def test_steps_without_an_optimizer_are_found_by_what_recurs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four layers a step, and one kernel of the loss; a trace of the layers alone, and one of other kernels, has no
    steps."""
    e, layers, other = Export(), Export(), Export()
    for i in range(5):
        for layer in range(4):
            at = i * STEP + 200 * layer
            for one in (e, layers) if not i else (e,):
                one.kernel(GEMM, at, at + 100, at)
                one.kernel("rmsnorm_fwd_kernel", at + 100, at + 120, at + 50)
            other.kernel(f"nvjet_{(7 * i + layer * layer) % 5}", at, at + 90 + i, at)
        e.kernel("cross_entropy_forward_kernel", i * STEP + 800, i * STEP + 850, i * STEP + 500)
    for start in range(4):
        layers.kernel(ATTENTION, 800 + 300 * start, 900 + 300 * start, 700)
    data = profile(capsys, str(write(tmp_path / "loop.sqlite", [e])))
    assert (data["steps"]["found_by"], data["steps"]["n"]) == ("recurring", 4)
    assert data["steps"]["name"] == "cross_entropy_forward_kernel, which recurs"
    assert data["step_s"] == pytest.approx(STEP * 1e-6)
    assert {c["class"]: c["launches"] for c in data["classes"]} == {"gemm": 4, "norm": 4, "loss": 1}
    for name, one in (("layers", layers), ("other", other)):
        assert main(["profile", str(write(tmp_path / f"{name}.sqlite", [one]))]) == 1
        assert "profile.no_steps" in capsys.readouterr().err


def test_a_slow_first_step_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    e = Export()
    e.range("step 0", 0, 3000)
    e.kernel(GEMM, 1000, 2500, 900)
    for i in range(4):
        step(e, 3000 + i * STEP)
    data = profile(capsys, str(write(tmp_path / "slow.sqlite", [e])))
    assert (data["steps"]["n"], data["steps"]["used"]) == (5, 4)
    assert data["step_s"] == pytest.approx(STEP * 1e-6)


def test_a_host_that_runs_ahead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The host launches four steps in a tenth of the time that the device needs: steps are by launch."""
    e = Export()
    for i in range(4):
        e.range(f"step {i}", i * 100, i * 100 + 100)
        e.kernel(GEMM, 50 + i * STEP, 50 + i * STEP + 900, i * 100 + 10)
        e.kernel(ADAM, 50 + i * STEP + 900, 50 + i * STEP + 950, i * 100 + 20)
    data = profile(capsys, str(write(tmp_path / "ahead.sqlite", [e])))
    assert data["steps"]["found_by"] == "range and launch"
    assert data["steps"]["each_s"][1:] == pytest.approx([STEP * 1e-6] * 3)
    assert {c["class"]: c["launches"] for c in data["classes"]} == {"gemm": 1, "optimizer": 1}


def test_ranks_of_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A report of a node has several processes; correlations repeat in them."""
    one, other = three_steps(), three_steps()
    other.pid, other.device = 0x1235, 1
    other.kernels = [(n, a + 30 * (n == GEMM), b + 30 * (n == GEMM), *rest) for n, a, b, *rest in other.kernels]
    data = profile(capsys, str(write(tmp_path / "node.sqlite", [one, other])))
    assert [r["part"] for r in data["ranks"]] == [0, 0]
    assert [r["trace"].partition(",")[2] for r in data["ranks"]] == [
        " process 4660, device 0",
        " process 4661, device 1",
    ]


def test_a_device_without_steps_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The optimizer of the first process recurs, and the second process only copies something."""
    loads = Export(pid=0x1235, device=1)
    loads.kernel("Memcpy HtoD", 10, 20, 5)
    path = write(tmp_path / "node.sqlite", [three_steps(named=False), loads])
    assert main(["profile", str(path), "--json"]) == 0
    said = capsys.readouterr()
    assert "warning[profile.left_out]" in said.err and "process 4661" in said.err
    assert json.loads(said.out)["steps"]["n"] == 2


def test_the_slowest_rank_of_a_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The fast rank waits 40 us longer in a collective in two of three steps, the slow one 10 us in the third."""
    slow, fast = three_steps(), three_steps()
    for e, at, more in ((fast, 0, 40), (fast, STEP, 40), (slow, 2 * STEP, 10)):
        e.kernel(SEND, at + 500, at + 500 + more, at + 98.5, stream=21)
    paths = [str(write(tmp_path / f"{name}.sqlite", [e])) for name, e in (("slow", slow), ("fast", fast))]
    (found,) = profile(capsys, *paths)["spread"]
    # Of 1000 us, 150 are communication that nothing hides, and 70 idle time beside a receive.
    assert found == {
        "part": 0, "slowest": "slow.sqlite", "slowest_s": pytest.approx((780 - 10 / 3) * 1e-6), "fastest": "fast.sqlite",
        "fastest_s": pytest.approx((780 - 80 / 3) * 1e-6), "steps": 3, "slowest_in": 2,
    }  # fmt: skip
    assert main(["profile", *paths]) == 0
    assert "part 0: slow.sqlite has most time outside communication" in capsys.readouterr().out


def test_ranks_that_share_an_optimizer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The distributed optimizer gives each rank of a stage other weights, and more launches to some."""
    first, second = three_steps(), three_steps()
    for i in range(3):
        for k in range(9):
            second.kernel(ADAM, i * STEP + 905 + k, i * STEP + 906 + k, i * STEP + 600)
    paths = [str(write(tmp_path / f"{name}.sqlite", [e])) for name, e in (("first", first), ("second", second))]
    assert [r["part"] for r in profile(capsys, *paths)["ranks"]] == [0, 0]


def test_ranks_of_different_stages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, last = three_steps(), three_steps()
    for i in range(3):
        for k in range(5):
            last.kernel("cross_entropy_forward_kernel", i * STEP + 905 + k, i * STEP + 906 + k, i * STEP + 600)
    paths = [str(write(tmp_path / f"{name}.sqlite", [e])) for name, e in (("first", first), ("last", last))]
    assert main(["profile", *paths, "--json"]) == 0
    said = capsys.readouterr()
    assert "profile.parts" in said.err and "2 different parts" in said.err
    data = json.loads(said.out)
    assert [r["part"] for r in data["ranks"]] == [0, 1] and len(data["parts"]) == 2
    assert data["trace"] == "last.sqlite"


def test_a_run_file_names_its_own_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    e = three_steps()
    for i in range(3):
        e.kernel("our_secret_mixer", i * STEP + 400, i * STEP + 440, i * STEP + 97)
    trace = str(write(tmp_path / "own.sqlite", [e]))
    before = profile(capsys, trace)
    assert before["unknown"]["kernels"][0]["name"] == "our_secret_mixer"
    assert before["unknown"]["share"] == pytest.approx(40 / (400 + 100 + 50 + 100 + 40 + 50 + 100 + 40))
    run = tmp_path / "own.moe"
    run.write_text(
        'rules compute of trace {\n  symptom scan: "^our_secret" because "ours" cite ours "mixer.cu"\n}\n'
        "qwen3_30b_a3b; h100 x 16; seq 4k; fit first\n"
    )
    after = profile(capsys, trace, "--run", str(run))
    assert after["unknown"]["share"] == 0
    assert {c["class"]: c["busy_s"] for c in after["classes"]}["scan"] == pytest.approx(40e-6)


def test_the_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", str(write(tmp_path / "known.sqlite", [three_steps()]))]) == 0
    said = capsys.readouterr().out
    assert "known.sqlite: Nsight Systems, NVIDIA H100 80GB HBM3\n  3 steps of 1.0 ms" in said
    assert "gemm" in said and "waits for another stage" in said


# The measured step next to the predicted one: a trace in which one constant is another names that constant.

PROGRAM = "qwen3_30b_a3b; h100 x 16; seq 4k; batch 64; throughput first; pin tp=2 pp=2 ep=8 vpp=1 dispatcher=deepep"
CLASSES = {
    "matrix products": ("gemm", "compute"), "attention": ("attention_forward", "compute"), "optimizer": ("optimizer", "compute"),
    "passes over memory": ("cast", "compute"), "expert communication": ("deepep_dispatch", "communication"),
    "other collectives": ("all_gather", "communication"), "pipeline and bubble": ("pipeline", "communication"),
}  # fmt: skip


@pytest.fixture(scope="module")
def result() -> Result:
    made = compile_source(Source("run.moe", PROGRAM))
    assert not made.failed, made.diagnostics
    return made


def report(parts: predicted.Seconds, wall: str = "communication") -> Json:
    """The report of a trace in which each part took so long."""
    rows = [
        {"class": name, "wall": block, "busy_s": parts[part], "exposed_s": parts[part], "launches": 1}
        for part, (name, block) in CLASSES.items()
    ]
    return {
        "step_s": sum(parts.values()), "classes": rows, "on_cpu": False, "device_name": "", "world": 16,
        "idle": {"by_cause": {"launch": parts["launches"], "bubble": 0.0, "communication": parts["waits for communication"],
                              "dependency": 0.0, "unresolved": parts["other idle time"]}},
        "walls": {name: {"s": sum(parts[p] for p in of)} for name, of in predicted.WALLS.items()}, "largest_loss": wall,
    }  # fmt: skip


def compared(result: Result, parts: predicted.Seconds) -> Json:
    return predicted.compare(report(parts), result.chosen[0], result.plans[0])


def test_the_parts_are_the_step(result: Result) -> None:
    c = result.chosen[0]
    parts = predicted.predicted(c.cost, c.solution.rows[0].codes)
    assert sum(parts.values()) == pytest.approx(result.plans[0].estimate.step_time_s, rel=1e-6)


def test_a_trace_as_predicted_differs_nowhere(result: Result) -> None:
    c = result.chosen[0]
    parts = predicted.predicted(c.cost, c.solution.rows[0].codes)
    data = compared(result, parts)
    told = [x for x in data["table"] if x["measured_s"] is not None and x["part"] != "step"]
    assert len(told) >= 6
    assert [x["difference_s"] for x in told] == pytest.approx([0.0] * len(told), abs=1e-12)
    assert all(x["constant"] is None for x in data["table"])
    assert [w["difference_s"] for w in data["walls"]] == pytest.approx([0.0] * len(predicted.WALLS), abs=1e-12)
    assert sum(w["predicted_s"] for w in data["walls"]) == pytest.approx(result.plans[0].estimate.step_time_s, rel=1e-6)


def test_parts_that_overlap_are_said(result: Result) -> None:
    c = result.chosen[0]
    parts = predicted.predicted(c.cost, c.solution.rows[0].codes)
    both = report(parts)
    both["step_s"] -= parts["matrix products"]
    said = predicted.compare(both, c, result.plans[0])["remarks"]
    assert any(f"{parts['matrix products'] * 1e3:,.1f} ms longer than the step" in text for text in said), said
    on_cpu = report({**parts, "matrix products": 9 * parts["matrix products"]}) | {"on_cpu": True}
    table = predicted.compare(on_cpu, c, result.plans[0])["table"]
    assert all(line["constant"] is None for line in table)


def test_a_fix_costs_what_the_estimate_says_where_the_trace_agrees_with_it(result: Result) -> None:
    c = result.chosen[0]
    row = c.solution.rows[0]
    data = compared(result, predicted.predicted(c.cost, row.codes))
    assert data["fixes"]["wall"] == "communication" and len(data["fixes"]["tried"]) >= 2
    for t in data["fixes"]["tried"]:
        codes = {**row.codes, t["axis"]: axes.BY_NAME[t["axis"]].encode(t["value"])}
        assert t["step_s"] == pytest.approx(float(c.cost.time(codes)[0]), rel=1e-6)


def test_a_fix_gains_more_where_its_part_took_longer(result: Result) -> None:
    c = result.chosen[0]
    parts = predicted.predicted(c.cost, c.solution.rows[0].codes)
    slow = parts | {"expert communication": 3 * parts["expert communication"]}
    before, after = (
        {(t["axis"], str(t["value"])): t["change"] * sum(p.values()) for t in compared(result, p)["fixes"]["tried"]}
        for p in (parts, slow)
    )
    axis, value = "dispatcher", "hybridep"
    new = predicted.predicted(c.cost, {**c.solution.rows[0].codes, axis: axes.BY_NAME[axis].encode(value)})
    gain = new["expert communication"] - parts["expert communication"]
    assert gain < 0
    assert after[axis, value] - before[axis, value] == pytest.approx(2 * gain)


def test_a_part_that_took_no_time_gains_none(result: Result) -> None:
    """On a machine that is 50 times as fast, and hides the experts' communication whole."""
    row = result.chosen[0].solution.rows[0]
    theirs = predicted.predicted(result.chosen[0].cost, row.codes)
    parts = {name: 0.0 if name == predicted.EXPERTS else s / 50 for name, s in theirs.items()}
    (data,) = [
        t for t in compared(result, parts)["fixes"]["tried"] if (t["axis"], t["value"]) == ("dispatcher", "hybridep")
    ]
    new = predicted.predicted(
        result.chosen[0].cost, {**row.codes, "dispatcher": axes.BY_NAME["dispatcher"].encode("hybridep")}
    )
    gain = sum((new[n] - theirs[n]) / 50 for n in new if n != predicted.EXPERTS)
    assert data["step_s"] == pytest.approx(sum(parts.values()) + gain, rel=0.01)


@pytest.mark.parametrize(
    ("constant", "part", "factor"),
    [("gemm", "matrix products", 0.8), ("attention", "attention", 0.7), ("stream", "optimizer", 0.5)],
)
def test_the_constant_that_explains_a_difference(result: Result, constant: str, part: str, factor: float) -> None:
    """The trace is priced with another value of one constant, and the table finds it."""
    c = result.chosen[0]
    k = c.cost.hardware.constants
    other = evolve(
        c.cost, hardware=evolve(c.cost.hardware, constants=evolve(k, **{constant: getattr(k, constant) * factor}))
    )
    codes = c.solution.rows[0].codes
    mine, theirs = predicted.predicted(other, codes), predicted.predicted(c.cost, codes)
    parts = theirs | {part: theirs[part] + 50 * (mine[part] - theirs[part])} if part == "optimizer" else mine
    found = {x["part"]: x["constant"] for x in compared(result, parts)["table"]}[part]
    assert found is not None and found["name"] == constant
    if part != "optimizer":
        assert found["would_be"] == pytest.approx(k.stated(constant) * factor, rel=0.05)


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(write(tmp_path / "known.sqlite", [three_steps()]))
    run = tmp_path / "run.moe"
    run.write_text(PROGRAM)
    assert main(["profile", trace, "--run", str(run), "--json"]) == 0
    (data,) = json.loads(capsys.readouterr().out)["plans"]
    assert data["table"][-1]["part"] == "step" and "slowest stage" in data["remarks"][0]
    assert main(["profile", trace, "--run", str(run)]) == 0
    assert "Compared with the plan of main" in capsys.readouterr().out
    run.write_text("qwen3_30b_a3b; h100 x 16; seq 4k; fit first; pin tp=3")
    assert main(["profile", trace, "--run", str(run)]) == 1
    assert "error[" in capsys.readouterr().err
