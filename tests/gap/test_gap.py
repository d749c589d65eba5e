"""`moedsl gap`: prices multiply to the estimates' ratio, the rest is a number, and Megatron's own lines are read."""

from __future__ import annotations

import json
import random
from math import prod
from pathlib import Path
from typing import Any

import pytest

from moedsl.cli.main import main
from moedsl.gap import log_shows, published
from moedsl.gap.settings import State, differing, priced
from tests.helpers import bridge_process
from tests.helpers.paths import ROOT

Json = dict[str, Any]
RUN = "model qwen3_235b_a22b; gb200 x 64; seq 4k; batch 512; precision bf16; routing balanced; throughput first; "
PINS = "pin tp=1 cp=1 pp=8 vpp=1 ep=8 micro_batch=1 dispatcher=alltoall"
SECONDS = 9.5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    assert main(["compile", "-e", RUN + PINS, "-o", str(out)]) == 0
    rng = random.Random(1)
    each = [SECONDS * (1 + 0.01 * rng.gauss(0, 1)) * (1.5 if n % 20 == 0 else 1) for n in range(1, 61)]
    (out / "train.log").write_text("".join(
        f" [t] iteration {n:8d}/ {60:8d} | elapsed time per iteration (ms): {1000 * s:.1f} | global batch size: 512 |"
        " lm loss: 1.1E+01 | grad norm: 2.0 |\n" for n, s in enumerate(each, 1)
    ))  # fmt: skip
    return out


def gap(*words: str, capsys: pytest.CaptureFixture[str]) -> Json:
    capsys.readouterr()
    assert main(["gap", *words, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["runs"]
    return found


def test_each_setting_has_a_price_and_the_rest_is_a_number(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = gap(str(folder / "train.log"), capsys=capsys)
    there = found["published"]
    assert there["id"].startswith("m")
    assert {s["setting"] for s in there["settings"]} >= {"dispatcher", "GPUs, batch and layout"}
    assert prod(s["speed"] for s in there["settings"]) == pytest.approx(there["explained"])
    assert there["explained"] * there["unexplained"] == pytest.approx(there["speed"])
    measured = 512 * 4096 / SECONDS / 64
    assert found["measured"]["tokens_per_s_per_gpu"] == pytest.approx(measured, rel=0.01)
    assert there["speed"] == pytest.approx(there["tokens_per_s_per_gpu"] / measured, rel=0.01)
    dispatcher = next(s for s in there["settings"] if s["setting"] == "dispatcher")
    assert (dispatcher["here"], dispatcher["there"]) == ({"dispatcher": "alltoall"}, {"dispatcher": "hybridep"})
    assert dispatcher["speed"] > 1.05
    assert found["recipe"]["name"] == "qwen3_235b_a22b_pretrain_64gpu_gb200_bf16_config"
    (slow,) = found["log"]
    assert (slow["what"], slow["steps"]) == ("slow steps", 3)


def test_the_run_file_stands_for_the_plan(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.log").write_text((folder / "train.log").read_text())
    (tmp_path / "run.moe").write_text((RUN + PINS).replace("; ", "\n"))
    log = str(tmp_path / "train.log")
    one, other = (
        gap(str(folder / "train.log"), capsys=capsys),
        gap(log, "--run", str(tmp_path / "run.moe"), capsys=capsys),
    )
    assert other["predicted"]["step_s"] == pytest.approx(one["predicted"]["step_s"])
    assert main(["gap", log]) == 1
    assert "--run run.moe" in capsys.readouterr().err


def test_a_published_run_has_no_gap_to_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A log that measures what a page publishes: nothing differs, and nothing is left."""
    run = "deepseek_v3; gb300 x 256; throughput first; seq 4096; batch 4096; precision mxfp8; routing balanced"
    pins = ("pin tp=1 cp=1 pp=2 vpp=8 ep=32 etp=1 micro_batch=1 dispatcher=hybridep recompute=none"
            " cuda_graph=[full_iteration] ep_overlap=on delay_wgrad=on moments=bf16 grad_reduce=bf16"
            " sharding=optimizer offload=none")  # fmt: skip
    assert main(["compile", "-e", f"{run}; {pins}", "-o", str(tmp_path)]) == 0
    ms = 1000 * 4096 * 4096 / 256 / 6288
    (tmp_path / "train.log").write_text("".join(
        f" [t] iteration {n:8d}/ {30:8d} | elapsed time per iteration (ms): {ms:.2f} | global batch size: 4096 |"
        " lm loss: 1.1E+01 | grad norm: 2.0 |\n" for n in range(1, 31)
    ))  # fmt: skip
    there = gap(str(tmp_path / "train.log"), capsys=capsys)["published"]
    assert (there["id"], there["settings"]) == ("m0000", [])
    assert there["unexplained"] == pytest.approx(1, abs=1e-4)
    assert there["tells"] > 0


def test_the_order_of_two_runs_inverts_the_prices() -> None:
    here, there = (State(one.run.cost, one.run.row) for one in map(published.nearest, _two()) if one)
    forth, back = priced(here, there), priced(there, here)
    assert {s.name for s in differing(here, there)} == {s["setting"] for s in forth}
    factors = {s["setting"]: s["speed"] for s in back}
    for s in forth:
        assert s["speed"] * factors[s["setting"]] == pytest.approx(1)


def _two() -> list[State]:
    """The states of two programs; their nearest published runs are of other sizes and formats."""
    from moedsl.calibrate.runs import Measured, of_line
    from moedsl.diagnostics.source import Span

    texts = (RUN + PINS, RUN.replace("bf16", "mxfp8").replace("512", "2048") + PINS)
    made = [of_line(json.dumps({"run": t}), 1, Path(), Span("", 0, 0)) for t in texts]
    return [State(m.cost, m.row) for m in made if isinstance(m, Measured)]


@pytest.mark.bridge
def test_lines_of_megatrons_timers_and_straggler_detector(tmp_path: Path) -> None:
    ranks = [{"time": 90.1, "btime": 100, "temp": 60, "power": 900, "util": 99, "clock": 1980, "flops": 500.0},
             {"time": 99.1, "btime": 120, "temp": 82, "power": 700, "util": 98, "clock": 1620, "flops": 440.0}]  # fmt: skip
    job = {"timers": {"forward-backward": [9.1, 9.3], "batch-generator": [0.02, 0.38]}, "ranks": ranks}
    made = bridge_process.run(str(ROOT / "tests/oracles/bridge_timers.py"), text=json.dumps(job))
    assert made.returncode == 0, made.stderr[-2000:]
    (tmp_path / "train.log").write_text("".join(f"3: {line}\n" for line in made.stdout.splitlines()))
    found = {s["what"]: s for s in log_shows.shown([tmp_path / "train.log"], [9.5, 9.5])}
    assert found["data loading"]["seconds"] == pytest.approx(0.38)
    assert found["data loading"]["share"] == pytest.approx(0.04)
    assert (found["clocks"]["least_mhz"], found["clocks"]["most_mhz"]) == (1620, 1980)
    assert found["stragglers"]["share"] == pytest.approx(0.12)
    assert found["temperature"]["most_celsius"] == 82


def test_wrong_input_is_answered(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.json").write_text((folder / "plan.json").read_text())
    (tmp_path / "train.log").write_text("nothing yet\n")
    assert main(["gap", str(tmp_path / "train.log")]) == 1
    assert "no iteration line" in capsys.readouterr().err
    (tmp_path / "rules.moe").write_text("rules mine { }\n")
    assert main(["gap", str(tmp_path / "train.log"), "--run", str(tmp_path / "rules.moe")]) == 1
    assert "has not one run" in capsys.readouterr().err
    assert main(["gap", str(tmp_path / "no.log")]) == 1
    assert "neither a file" in capsys.readouterr().err
