"""`moedsl gap`: prices multiply to the estimates' ratio, the rest is a number, and Megatron's own lines are read."""

import json
import random
from math import prod
from pathlib import Path
from typing import Any

import pytest

from moedsl.cli.main import main
from moedsl.compiler import compile_source
from moedsl.runs.gap import RUNS, Published, State, differing, nearest, priced, prices, problems
from moedsl.runs.measured_runs import Measured, of_line
from moedsl.support.source import Source, Span
from tests.helpers import bridge_process
from tests.helpers.logs import iteration_lines
from tests.helpers.one_gpu import MOONLIGHT
from tests.helpers.paths import ROOT
from tests.helpers.tables import table_of

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


def test_the_interval_of_the_step_in_words(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gap", str(folder / "train.log")]) == 0
    assert "the measured step is inside the interval of nine in ten runs, " in capsys.readouterr().out


def test_each_setting_has_a_price_and_the_rest_is_a_number(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = gap(str(folder / "train.log"), capsys=capsys)
    there = found["published"]
    assert there["id"].startswith("m")
    assert {s["setting"] for s in there["settings"]} >= {"dispatcher", "GPUs, batch and layout"}
    assert prod(s["speed"] for s in there["settings"]) == pytest.approx(there["explained"])
    assert there["explained"] * there["unexplained"] == pytest.approx(there["speed"])
    published = 512 * 4096 / SECONDS / 64
    assert found["measured"]["tokens_per_s_per_gpu"] == pytest.approx(published, rel=0.01)
    assert there["speed"] == pytest.approx(there["tokens_per_s_per_gpu"] / published, rel=0.01)
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
    here, there = (State(one.run.cost, one.run.row) for one in map(nearest, _two()) if one)
    forth, back = priced(here, there), priced(there, here)
    assert {s.name for s in differing(here, there)} == {s["setting"] for s in forth}
    factors = {s["setting"]: s["speed"] for s in back}
    for s in forth:
        assert s["speed"] * factors[s["setting"]] == pytest.approx(1)


def _two() -> list[State]:
    """The states of two programs; their nearest published runs are of other sizes and formats."""
    texts = (RUN + PINS, RUN.replace("bf16", "mxfp8").replace("512", "2048") + PINS)
    return [State(m.cost, m.row) for m in (_measured(json.dumps({"run": t})) for t in texts)]


def _measured(line: str) -> Measured:
    made = of_line(line, 1, Path(), Span("", 0, 0))
    assert isinstance(made, Measured), made
    return made


AGAIN = {"m0034": (4969 / 4912, "26.08", None), "m0090": (4193 / 4256, "26.04.01", "26.04.01"),
         "m0012": (None, None, None), "m0171": (None, None, "25.11"), "m0233": (None, None, "2026-07-25")}  # fmt: skip


@pytest.mark.parametrize("id", AGAIN)
def test_a_release_has_the_price_of_what_was_published_again(id: str) -> None:
    """Of the configuration itself, up to the last page that has it; the rest has none."""
    text = next(line for line in (ROOT / "stdlib" / RUNS).read_text().splitlines() if f'"{id}"' in line)
    found = Published(json.loads(text), _measured(text))
    speed, upto, rest = AGAIN[id]
    plan = compile_source(Source("", found.line["run"])).plans[0]
    known, unknown = prices(found.state, found, plan)
    assert {s["setting"] for s in (*known, *unknown)} <= {"release", "affinity"}
    assert [s["speed"] for s in known] == ([] if speed is None else [pytest.approx(speed)])
    assert [s["here"]["release"] for s in known] == ([upto] if upto else [])
    left = [s["there"]["release"] for s in unknown if s["setting"] == "release"]
    assert left == ([rest] if rest else [])


OWN = table_of("gap", "own")


def test_fields_and_variables_have_a_measured_price_or_none(folder: Path, tmp_path: Path, capsys: Any) -> None:
    """A deterministic run was measured twice on 96 GPUs; what belongs to it has no price of its own."""
    (tmp_path / "run.moe").write_text((RUN + PINS).replace("; ", "\n") + OWN)
    there = gap(str(folder / "train.log"), "--run", str(tmp_path / "run.moe"), capsys=capsys)["published"]
    (one,) = [s for s in there["settings"] if "measured" in s]
    assert one["setting"] == "model.deterministic_mode" and one["measured"]["pairs"] == 2
    assert one["speed"] == pytest.approx((10603 / 10261 * 10468 / 10186) ** 0.5)
    assert prod(s["speed"] for s in there["settings"]) == pytest.approx(there["explained"])
    assert {s["setting"] for s in there["unpriced"]} == {"release", "env_vars.NCCL_DEBUG", "affinity"}
    assert main(["gap", str(folder / "train.log"), "--run", str(tmp_path / "run.moe")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "on -> off (measured 2 times, +2.8% to +3.3%)" in said
    assert "env_vars.NCCL_DEBUG (INFO -> none); affinity, which no published row states" in said
    assert f"next: `moedsl next {folder / 'train.log'} --run {tmp_path / 'run.moe'}` proposes" in said


def test_what_the_log_shows_counts(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Data loading takes 5% of a step, and the slowest clock is 10% below the fastest."""
    (tmp_path / "plan.json").write_text((folder / "plan.json").read_text())
    more = f"  batch-generator ................................: (1.00, {50 * SECONDS:.1f})\n" * 60
    clocks = "MnRtt/Rnk: 90.10ms/1 | MxRtt/Rnk: 99.10ms/3 | MnClk/Rnk: 1800.00MHz/3 | MxClk/Rnk: 2000.00MHz/1\n"
    unbound = "local rank 3 is not bound to a NUMA node: numactl is not installed here\n"
    (tmp_path / "train.log").write_text((folder / "train.log").read_text() + more + clocks + unbound)
    found = gap(str(tmp_path / "train.log"), capsys=capsys)
    there = found["published"]
    assert there["log_at_most"] == pytest.approx(1 / 0.95 / 0.9, rel=0.01)
    assert there["left"] * there["log_at_most"] == pytest.approx(there["unexplained"])
    assert {s["what"] for s in found["log"]} == {"slow steps", "data loading", "clocks", "affinity"}


@pytest.mark.bridge
def test_lines_of_megatrons_timers_and_straggler_detector(tmp_path: Path) -> None:
    ranks = [{"time": 90.1, "btime": 100, "temp": 60, "power": 900, "util": 99, "clock": 1980, "flops": 500.0},
             {"time": 99.1, "btime": 120, "temp": 82, "power": 700, "util": 98, "clock": 1620, "flops": 440.0}]  # fmt: skip
    job = {"timers": {"forward-backward": [9.1, 9.3], "batch-generator": [0.02, 0.38]}, "ranks": ranks}
    made = bridge_process.run(str(ROOT / "tests/oracles/bridge_timers.py"), text=json.dumps(job))
    assert made.returncode == 0, made.stderr[-2000:]
    (tmp_path / "train.log").write_text("".join(f"3: {line}\n" for line in made.stdout.splitlines()))
    found = {s["what"]: s for s in problems([tmp_path / "train.log"], [9.5, 9.5])}
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


def test_a_run_file_of_another_layout_is_not_what_ran(folder: Path, tmp_path: Path, capsys: Any) -> None:
    """The folder's plan ran; a run file that plans something else would predict a step that nobody measured."""
    run = tmp_path / "run.moe"
    for other, said in (("pp=4", "pp=4"), ("x 128", "gpus=128"), ("gb300", "hardware=gb300")):
        text = (RUN + PINS).replace({"pp=4": "pp=8", "x 128": "x 64", "gb300": "gb200"}[other], other)
        run.write_text(text.replace("; ", "\n"))
        assert main(["gap", str(folder / "train.log"), "--run", str(run)]) == 1
        error = " ".join(capsys.readouterr().err.split())
        assert "error[gap.other_run]" in error and said in error and str(folder / "plan.json") in error


def test_of_axes_that_belong_together_only_the_one_that_differs_is_named() -> None:
    """Overlap runs in both; only the weight gradients differ."""
    base = "deepseek_v3; gb200 x 256; seq 4k; batch 2048; precision mxfp8; throughput first; pin ep_overlap=on vpp=4 "
    here, there = (
        State(m.cost, m.row)
        for m in (_measured(json.dumps({"run": f"{base}pp=4 delay_wgrad={w}"})) for w in ("off", "on"))
    )
    assert [(s["setting"], s["here"], s["there"]) for s in priced(here, there)] == [
        ("delay_wgrad", {"delay_wgrad": False}, {"delay_wgrad": True})
    ]


def test_a_recipe_that_may_not_fit_has_a_price(tmp_path: Path, capsys: Any) -> None:
    """As on the page of the plan, which says that it is tight."""
    text = "qwen3_30b_a3b; h100 x 16; seq 4k; batch 512; throughput first"
    assert main(["compile", "-e", text, "-o", str(tmp_path)]) == 0
    recipe = json.loads((tmp_path / "plan.json").read_text())["shipped"]
    assert recipe["refused_by"] == "std.memory.fits" and recipe["verdict"] == "TIGHT"
    (tmp_path / "train.log").write_text("".join(
        f" [t] iteration {n:8d}/ {30:8d} | elapsed time per iteration (ms): 14500.0 | global batch size: 512 |"
        " lm loss: 1.1E+01 | grad norm: 2.0 |\n" for n in range(1, 31)
    ))  # fmt: skip
    found = gap(str(tmp_path / "train.log"), capsys=capsys)["recipe"]
    assert found["verdict"] == "TIGHT" and "refused_by" not in found
    assert found["predicted_step_s"] == pytest.approx(recipe["step_time_s"])


H200_LOG = Path(__file__).parent / "moonlight_h200.log"
"""The lines of Bridge's log about steps and memory, from five layers of Moonlight on one H200."""
OURS = """
hardware ours {
  arch hopper device "NVIDIA H200" capability 9.0 memory 141 GB nvlink_domain 8 gpus_per_node 8 sms 132
  tflops bf16=989 fp8=1979
  hbm 4.8 TB/s nvlink 450 GB/s network 50 GB/s
}
"""


def test_a_plan_knows_the_model_that_its_run_file_declares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What reads a plan.json later does not have the run file."""
    (tmp_path / "run.moe").write_text(MOONLIGHT.replace("h200 x 1", "ours x 1") + OURS)
    assert main(["compile", str(tmp_path / "run.moe"), "-o", str(tmp_path)]) == 0
    published = [f"{H200_LOG}={tmp_path / 'plan.json'}"]
    found = gap(*published, capsys=capsys)["measured"]
    assert found["step_s"] == pytest.approx(1.38, abs=0.01), found
    assert main(["next", *published]) == 0
    assert "1 tried" in capsys.readouterr().out
    assert main(["results", *published, "--measured", str(tmp_path / "runs.jsonl")]) == 0
    (row,) = (tmp_path / "runs.jsonl").read_text().splitlines()
    again = of_line(row, 1, tmp_path, Span("runs.jsonl", 0, 0))
    assert isinstance(again, Measured) and (again.model, again.gpu) == ("five_layers", "ours")
    assert again.peak == pytest.approx(67.6, abs=0.1)


def test_a_vlms_images_are_no_useful_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """results, gap and watch print one figure under one name."""
    run = "qwen3_vl_30b_a3b; h100 x 16; seq 4k; batch 256; throughput first"
    assert main(["compile", "-e", run, "-o", str(tmp_path)]) == 0
    (tmp_path / "train.log").write_text(iteration_lines(1, 60, 9.0, 256))
    tokens = 256 * 4096 / 9.0 / 16
    speed = gap(str(tmp_path), capsys=capsys)["measured"]
    share = json.loads((tmp_path / "plan.json").read_text())["estimate"]["useful_share"]
    assert share < 0.8 and speed["tokens_per_s_per_gpu"] == pytest.approx(tokens)
    assert speed["useful_tokens_per_s_per_gpu"] == pytest.approx(tokens * share)
    for command in ("results", "gap", "watch"):
        assert main([command, str(tmp_path), *(["--once"] if command == "watch" else [])]) == 0
        said = capsys.readouterr().out
        assert "useful tokens/s/GPU" in said and f"{tokens * share:,.0f}" in said and f"{tokens:,.0f}" not in said
