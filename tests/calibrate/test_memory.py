"""`moedsl calibrate` fits memory: constants move to those that made the peaks, runs kept back judge, and few runs are said."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from attrs import evolve

from moedsl.cli.commands import calibrate
from moedsl.cli.main import main
from moedsl.facts.calibration import Constants
from moedsl.runs.calibrate import MemoryFit, fit_memory
from moedsl.runs.measured_runs import Measured, of_line
from moedsl.support.source import Span
from tests.helpers.paths import ROOT

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


def line(i: int, noise: float = 0.005) -> str:
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
    file.write_text("\n".join(line(i) for i in range(len(LAYOUTS))))
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
    file.write_text("\n".join(line(i) for i in range(3)))
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
