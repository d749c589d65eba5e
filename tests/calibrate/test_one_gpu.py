"""Steps that were measured on one H200 (docs/estimates.md), against today's plans of the same programs.

Bridge 0.6.2, Megatron-Core 0.19.2, Transformer Engine 2.20.2, torch 2.11.0, CUDA 13.0; a virtual machine with 16 cores.
Seconds are the median of a run's steps without a profiler, the first two left out; bytes are
`mem-max-allocated-gigabytes` of Bridge's log."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gpu_against_estimate as against
import measure_gpu
import pytest
from attrs import evolve, frozen

from moedsl.cli.main import main
from moedsl.facts.calibration import Constants
from moedsl.runs import calibrate
from moedsl.runs.calibrate import MemoryFit, fit_memory
from moedsl.runs.measured_runs import Measured, of_line
from moedsl.support.source import Span
from tests.helpers import rotation
from tests.helpers.cost_models import hardware
from tests.helpers.one_gpu import MOONLIGHT, QWEN3
from tests.helpers.paths import ROOT
from tests.helpers.programs import plan_of
from tests.helpers.tables import table_of

SMOKE = (ROOT / "examples/smoke.moe").read_text(encoding="utf-8").replace("h100 x 1", "h200 x 1")


@frozen
class MeasuredRow:
    """A run: its program, a step in seconds, and torch's peak in bytes."""

    program: str
    step_s: float
    peak: float


RUNS = {
    "four layers of Qwen3-30B": MeasuredRow(QWEN3, 1.698, 65.844e9),
    "five layers of Moonlight": MeasuredRow(MOONLIGHT, 1.377, 67.648e9),
    "examples/smoke.moe": MeasuredRow(SMOKE, 0.498, 0.81429e9),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_plan_of_a_run_on_one_gpu_is_near_what_was_measured(name: str) -> None:
    run = RUNS[name]
    estimate = plan_of(run.program).estimate
    assert estimate is not None and estimate.interval is not None
    assert estimate.memory.peak_gib * 2**30 == pytest.approx(run.peak, rel=0.003 if run.peak > 1e9 else 0.1)
    assert estimate.interval.lower_s < run.step_s < estimate.interval.upper_s


# Measurements of a GPU against the estimate's formulas: those that are stored, and made-up ones that must fail.

H100 = "NVIDIA H100 80GB HBM3"
SHAPES: dict[str, tuple[str, str, str, dict[str, int]]] = table_of("calibrate", "one gpu: shapes")
"""A shape of each formula: part, direction, library, facts."""


def line(what: str, seconds: float = 1.0, precision: str = "bf16", **changed: Any) -> dict[str, Any]:
    part, direction, by, shape = SHAPES[what]
    made = {"part": part, "what": what, "direction": direction, "by": by, "shape": shape, "precision": precision}
    return made | {"seconds": seconds, "device": H100} | changed


def expected(what: str, **changed: Any) -> float:
    return against.estimated(line(what, **changed), hardware("h100"))


def out(folder: Path, *lines: dict[str, Any]) -> list[str]:
    """What of a made-up file is outside its tolerance."""
    file = folder / "h100.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return [c.line["what"] for c in against.compared([file]) if not c.agrees]


def test_every_stored_measurement_agrees_with_the_estimate() -> None:
    files = sorted(measure_gpu.MEASURED.glob("*.jsonl"))
    found = against.compared(files)
    wrong = [
        f"{c.line['device']} {c.line['what']} {c.line['shape']} {c.line['precision']}: {c.ratio:.2f}"
        for c in found
        if not c.agrees and not c.few
    ]
    assert len(found) > 60
    assert not wrong


@pytest.mark.parametrize("precision", rotation.some("few tokens", ["bf16", "fp8_current", "fp8_blockwise"], 1))
def test_products_of_few_tokens_are_still_too_fast_in_the_estimate(precision: str) -> None:
    found = against.compared(sorted(measure_gpu.MEASURED.glob("*.jsonl")))
    few = [c for c in found if c.few and c.line["precision"] == precision]
    assert sum(not c.agrees for c in few) > len(few) / 3, "the exception is no longer needed"
    assert all(c.ratio < 1 + against.WITHIN["products"] for c in few)


def test_the_longest_name_of_a_gpu_counts() -> None:
    """torch.cuda's name of an H200 begins with that of an H20, which has a seventh of its rate."""
    assert against.hardware("NVIDIA H200").name == "h200"
    assert against.hardware("NVIDIA H20").name == "h20"
    assert against.hardware("NVIDIA H200 NVL").name == "h200_nvl"


@pytest.mark.parametrize("what", SHAPES)
def test_a_measurement_outside_the_tolerance_is_found(tmp_path: Path, what: str) -> None:
    seconds, near = expected(what), 1 + against.WITHIN[SHAPES[what][0]]
    assert out(tmp_path, line(what, seconds * near * 0.99), line(what, seconds / near * 1.01)) == []
    assert out(tmp_path, line(what, seconds), line(what, seconds * near * 1.01)) == [what]
    assert out(tmp_path, line(what, seconds / near * 0.99)) == [what]


def test_what_megatron_does_not_run_is_not_compared(tmp_path: Path) -> None:
    assert out(tmp_path, line("experts", 1.0, by="torch"), line("moe", 1.0, by="torch")) == []


def test_an_unknown_device_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="NVIDIA T4"):
        out(tmp_path, line("hbm", device="NVIDIA T4"))


def test_every_constant_that_names_the_script_names_a_part_of_it() -> None:
    texts = [known.measure for known in hardware("h100").constants.known.values()]
    named = [text.split()[1].rstrip(",") for text in texts if text.startswith("tools/measure_gpu.py")]
    assert {*named} == {*measure_gpu.PARTS}


def test_the_formulas_get_the_measured_shape() -> None:
    """By hand, from the data sheet and the calibration: FLOPs over the rate, bytes over the bandwidth."""
    hw = hardware("h100")
    k, bf16 = hw.constants, 989e12
    assert expected("hbm") == pytest.approx(2 * 2**30 / 3.35e12)
    flops = 2 * 8192 * 3 * 2048 * 768
    full = 1024 / (1024 + k.half_full)
    weights = 8 * 3 * 2048 * 768 * (2 * 2 + 2 * 4) / 3 / 3.35e12
    assert expected("experts") == pytest.approx(
        flops / (bf16 * k.gemm * full) * (1 + 128 / 768 / 3) + weights, rel=1e-6
    )
    assert expected("experts", direction="backward") == pytest.approx(2 * expected("experts"))
    numbers = 32 * 2 * 128 + 32 * 128
    assert expected("gqa", direction="forward") == pytest.approx(
        2 * 4096 * 2048 * numbers / 1.5 / (bf16 * k.attention), rel=1e-6
    )
    assert expected("gqa") == pytest.approx(2.5 * expected("gqa", direction="forward"))
    assert expected("norm") == pytest.approx(16384 * 4096 * 10 / (3.35e12 * k.stream), rel=1e-6)
    assert expected("permutation") == pytest.approx(4096 * 8 * 4096 * 2 * 6 / (3.35e12 * k.stream), rel=1e-6)
    fp8 = expected("experts", precision="fp8_current")
    assert expected("experts", precision="fp8_blockwise") < fp8  # one read less for a cast


# `moedsl calibrate` fits memory: constants move to those that made the peaks, runs kept back judge, and few runs are
# said.

LAYOUTS = [
    (micro, tp, recompute, seq)
    for micro in (1, 2, 4)
    for tp in (1, 2)
    for recompute in ("none", "[moe_act]")
    for seq in (4096, 8192)
]
RUN = ("qwen3_30b_a3b; h100 x 16; throughput first; seq {seq}; batch 512; precision bf16; routing natural; "
       "pin tp={tp} cp=1 pp=1 vpp=1 ep=8 etp=1 micro_batch={micro} dispatcher=alltoall recompute={recompute} "
       "cuda_graph=none ep_overlap=off delay_wgrad=off moments=fp32 grad_reduce=fp32 sharding=optimizer offload=none")  # fmt: skip
TRUTH = {"uneven_natural": 1.4, "loss_te": 2.2}


def memory_line(i: int, noise: float = 0.005) -> str:
    """A run whose peak is the estimate with the constants of `TRUTH`."""
    micro, tp, recompute, seq = LAYOUTS[i]
    text = RUN.format(micro=micro, tp=tp, recompute=recompute, seq=seq)
    made = run(json.dumps({"run": text}))
    k = made.cost.hardware.constants
    truth = evolve(k, **{n: v * k.known[n].scale for n, v in TRUTH.items()})
    cost = evolve(made.cost, hardware=evolve(made.cost.hardware, constants=truth))
    peak = float(cost.memory(made.row)[0]) * (1 + noise * random.Random(i).gauss(0, 1))
    return json.dumps({"id": f"r{i}", "run": text, "peak_gb": peak / 1e9})


def run(text: str) -> Measured:
    made = of_line(text, 1, Path(), Span("", 0, 0))
    assert isinstance(made, Measured), made
    return made


def test_constants_move_to_those_that_made_the_peaks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of runs that were kept back falls with that of the fit."""
    fits: list[tuple[Constants, MemoryFit]] = []

    def fit(runs: Sequence[Measured], start: Constants) -> MemoryFit:
        fits.append((start, fit_memory(runs, start)))
        return fits[-1][1]

    monkeypatch.setattr(calibrate, "fit_memory", fit)
    file = tmp_path / "runs.jsonl"
    file.write_text("\n".join(memory_line(i) for i in range(len(LAYOUTS))))
    assert main(["calibrate", str(file), "-o", str(tmp_path / "mine.moe")]) == 0
    assert "on runs kept back" in capsys.readouterr().err
    ((start, found),) = fits
    assert found.runs == len(LAYOUTS)
    assert set(TRUTH) <= set(found.terms)
    assert found.errors is not None and found.helps
    before, fitted, kept_back = found.errors
    assert kept_back < 0.6 * before and fitted < 0.01
    assert found.moved
    assert "loss_te" in found.moved
    for name in {*found.moved} & {*TRUTH}:
        assert abs(found.constants.stated(name) - TRUTH[name]) < abs(start.stated(name) - TRUTH[name]), name
    assert f"  {found.moved[0]} " in (tmp_path / "mine.moe").read_text()
    use = tmp_path / "run.moe"
    use.write_text(f'use "mine.moe"\n{RUN.format(micro=1, tp=1, recompute="none", seq=4096)}\n'.replace("; ", "\n"))
    assert main(["plan", str(use)]) == 0


def test_three_runs_are_too_few(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text("\n".join(memory_line(i) for i in range(3)))
    assert main(["calibrate", str(file)]) == 0
    said = capsys.readouterr()
    assert "3 measured peaks are too few for" in said.err
    assert "loss_te" not in said.out


def test_published_peaks_state_nothing_that_runs_kept_back_contradict() -> None:
    """NVIDIA's own peaks: what is stated makes runs that were kept back better, or nothing is."""
    lines = (ROOT / "stdlib/calibration/published.jsonl").read_text().splitlines()
    runs = [run(text) for text in lines if json.loads(text).get("peak_gb")]
    assert len(runs) > 8
    for arch in sorted({r.arch for r in runs}):
        mine = [r for r in runs if r.arch == arch]
        found = fit_memory(mine, mine[0].cost.hardware.constants)
        assert found.helps or not found.moved
