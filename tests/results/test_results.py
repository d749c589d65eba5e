"""`moedsl results`: logs that Bridge's own formatting printed, as a table by useful tokens with winner and spread."""

import json
import random
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from moedsl.cli.main import main
from moedsl.compiler import compile_source, load_stdlib
from moedsl.diagnose import log_lines
from moedsl.diagnose.scan import symptoms
from moedsl.runs.measured_runs import read as read_calibration
from moedsl.runs.results import measure
from moedsl.runs.results.compare import comparisons
from moedsl.runs.results.compare import text as shown_as
from moedsl.runs.results.gather import Given, Numbers, Run, numbers
from moedsl.support.source import Source
from tests.helpers import bridge_process
from tests.helpers.paths import ROOT, example_path

STEPS = 40
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.11 GiB"
Json = dict[str, Any]


def steps(seconds: float, jitter: float, seed: int) -> list[Json]:
    """A run's steps: the first three slow, the rest around `seconds`."""
    rng = random.Random(seed)
    each = [seconds * (3.0 if i < 3 else 1 + jitter * rng.uniform(-1, 1)) for i in range(STEPS)]
    return [{"seconds": s, "loss": 12 - i / 10, "grad_norm": 2.0} for i, s in enumerate(each)]


JOBS: dict[str, Json] = {
    "1": {"steps": steps(26.0, 0.01, 1), "of": STEPS, "global_batch": 1024, "peak": 73_400_000_000},
    "2": {"steps": steps(25.0, 0.01, 2), "of": STEPS, "global_batch": 1024, "peak": 70_000_000_000, "throughput": True},
    "4": {"steps": steps(25.1, 0.01, 3)[:7], "of": STEPS, "global_batch": 1024},
    "close": {"steps": steps(26.01, 0.01, 4), "of": STEPS, "global_batch": 1024},
    "tens": {"steps": steps(26.0, 0.01, 5), "of": STEPS, "global_batch": 1024, "interval": 10},
    "nan": {
        "steps": [*steps(26.0, 0.01, 6)[:9], {"seconds": 26, "loss": "nan", "grad_norm": "nan"}],
        "of": STEPS,
        "global_batch": 1024,
    },
    "skipped": {
        "steps": [s | {"skipped": i % 2} for i, s in enumerate(steps(26.0, 0.0, 7))],
        "of": STEPS,
        "global_batch": 1024,
    },
    "resumed": {"steps": steps(26.0, 0.01, 8), "first": 20, "of": 20 + STEPS, "global_batch": 1024},
}


@pytest.fixture(scope="session")
def bridge_logs() -> dict[str, str]:
    """Each job as Bridge prints it; one import of Bridge for all of them."""
    jobs = json.dumps([_floats(j) for j in JOBS.values()])
    made = bridge_process.run(str(ROOT / "tests/oracles/bridge_log.py"), text=jobs)
    assert made.returncode == 0, made.stderr[-2000:]
    return dict(zip(JOBS, json.loads(made.stdout), strict=True))


def _floats(job: Json) -> Json:
    """NaN travels as a word."""
    return {**job, "steps": [{k: float(v) if isinstance(v, str) else v for k, v in s.items()} for s in job["steps"]]}


@pytest.fixture(scope="session")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled sweep of examples/tuning/sweep_micro_batch.moe: a folder with one for each value."""
    folder = tmp_path_factory.mktemp("sweep")
    assert main(["compile", str(example_path("sweep_micro_batch")), "-o", str(folder)]) == 0
    return folder


@pytest.fixture
def sweep(plans: Path, bridge_logs: dict[str, str], tmp_path: Path) -> Path:
    """The sweep as an experiment's folder: a task each, the third out of memory in its eighth step."""
    for value in ("1", "2", "4"):
        name = f"main.micro_batch_{value}"
        task = tmp_path / name
        (task / "code").mkdir(parents=True)
        (task / "code" / "plan.json").write_text((plans / name / "plan.json").read_text())
        (task / "log-account.job_7_0.out").write_text(bridge_logs[value])
    with (tmp_path / "main.micro_batch_4" / "log-account.job_7_0.out").open("a") as f:
        f.write(f"[rank3]: {OOM}\n")
    return tmp_path


def results(*words: str, capsys: pytest.CaptureFixture[str]) -> Json:
    capsys.readouterr()
    main(["results", *words, "--json"])
    found = json.loads(capsys.readouterr().out)
    if "diagnostics" not in found:
        main(["schema", "results"])
        jsonschema.validate(found, json.loads(capsys.readouterr().out))
    return found


# ---------------------------------------------------------------- Bridge's lines


@pytest.mark.bridge
def test_every_line_of_bridge_is_read(bridge_logs: dict[str, str]) -> None:
    said = [log_lines.read_line(text) for text in bridge_logs["2"].splitlines()]
    read = [s for s in said if isinstance(s, log_lines.Step)]
    assert [s.iteration for s in read] == list(range(1, STEPS + 1))
    for s, job in zip(read, JOBS["2"]["steps"], strict=True):
        assert s.seconds == pytest.approx(job["seconds"], abs=1e-4)
        assert s.loss == pytest.approx(job["loss"])
        assert (s.global_batch, s.grad_norm, s.of, s.tflops) == (1024, 2.0, STEPS, 240.0)
    assert [m.peak for m in said if isinstance(m, log_lines.Memory)] == [70_000_000_000] * 2
    assert len([t for t in said if isinstance(t, log_lines.StepTime)]) == STEPS


@pytest.mark.bridge
def test_a_nan_is_a_line_without_its_loss(bridge_logs: dict[str, str], tmp_path: Path, capsys: Any) -> None:
    """Bridge prints a loss only where it is at least zero."""
    (tmp_path / "train.log").write_text(bridge_logs["nan"])
    (row,) = results(str(tmp_path / "train.log"), "--seq", "4096", "--gpus", "16", capsys=capsys)["runs"]
    assert row["status"] == "failed"
    assert row["cause"] == "loss or gradient is NaN at iteration 10"


@pytest.mark.bridge
def test_a_line_that_averages_ten_iterations(bridge_logs: dict[str, str], tmp_path: Path, capsys: Any) -> None:
    """With log_interval 10 the first line is all warm-up, and each of the rest is one sample."""
    (tmp_path / "train.log").write_text(bridge_logs["tens"])
    (row,) = results(str(tmp_path / "train.log"), "--seq", "4096", "--gpus", "16", capsys=capsys)["runs"]
    assert (row["samples"], row["warmup"], row["status"]) == (3, 10, "ok")
    assert row["step_time_s"]["median"] == pytest.approx(26.0, rel=0.01)


@pytest.mark.bridge
def test_a_skipped_iteration_trains_nothing(bridge_logs: dict[str, str], tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "train.log").write_text(bridge_logs["skipped"])
    (row,) = results(str(tmp_path / "train.log"), "--seq", "4096", "--gpus", "16", capsys=capsys)["runs"]
    rate = 1024 * 4096 / 26.0 / 16
    assert row["useful_tokens_per_s_per_gpu"]["max"] == pytest.approx(rate)
    assert row["useful_tokens_per_s_per_gpu"]["min"] == 0
    assert row["skipped_iterations"] == STEPS // 2


@pytest.mark.bridge
def test_a_requeued_job_warms_up_again(bridge_logs: dict[str, str], tmp_path: Path, capsys: Any) -> None:
    """Iterations 1 to 40, then from the checkpoint at 20 on: both attempts leave out their first ten."""
    (tmp_path / "train.log").write_text(bridge_logs["1"] + bridge_logs["resumed"])
    (row,) = results(str(tmp_path / "train.log"), "--seq", "4096", "--gpus", "16", capsys=capsys)["runs"]
    assert (row["samples"], row["iteration"]) == (2 * (STEPS - 10), 60)
    assert row["step_time_s"]["max"] < 27


@pytest.mark.bridge
def test_what_two_files_of_a_run_say_counts_once(bridge_logs: dict[str, str], tmp_path: Path, capsys: Any) -> None:
    for name in ("sbatch.out", "log.out"):
        (tmp_path / name).write_text(bridge_logs["1"])
    (row,) = results(str(tmp_path), "--seq", "4096", "--gpus", "16", capsys=capsys)["runs"]
    assert row["samples"] == STEPS - 10


@pytest.mark.bridge
def test_rank_0_alone_still_gives_a_time(bridge_logs: dict[str, str], tmp_path: Path, capsys: Any) -> None:
    """The last rank prints the iterations; where its log is missing, rank 0's `Step Time` stands for them."""
    kept = [text for text in bridge_logs["1"].splitlines() if " iteration " not in text or "Rank 0" in text]
    (tmp_path / "rank0.log").write_text("\n".join(kept))
    words = ("--seq", "4096", "--gpus", "16", "--global-batch", "1024")
    (row,) = results(str(tmp_path / "rank0.log"), *words, capsys=capsys)["runs"]
    assert row["step_time_s"]["median"] == pytest.approx(26.0, rel=0.01)
    assert row["samples"] == STEPS - 10


def test_megatron_lm_prints_the_same_fields() -> None:
    """core's megatron/training/training.py:2844 and megatron/training/utils/common_utils.py:323."""
    text = (" [2026-11-02 10:11:12.131415] iteration        7/      50 | consumed samples:         7168 |"
            " elapsed time per iteration (ms): 1234.5 | throughput per GPU (TFLOP/s/GPU): 321.0 |"
            " learning rate: 3.000000E-04 | global batch size:  1024 | lm loss: 1.105000E+01 | loss scale: 1.0 |"
            " grad norm: 1.500 | number of skipped iterations:   0 | number of nan iterations:   1 |")  # fmt: skip
    said = log_lines.read_line(text)
    assert isinstance(said, log_lines.Step)
    assert (said.iteration, said.seconds, said.global_batch, said.loss, said.nan) == (7, 1.2345, 1024, 11.05, 1)
    memory = log_lines.read_line(
        "[Rank 0] (after 2 iterations) memory (MB) | allocated: 10.00 | max allocated: 2048.00 | reserved: 3.00"
    )
    assert memory == log_lines.Memory(0, 2 << 30)


def test_other_lines_say_nothing() -> None:
    for text in (
        "",
        "iteration",
        "validation loss at iteration 10 | lm loss value: 1.0E+01 |",
        "[Rank 0] memory (GB) |",
    ):
        assert log_lines.read_line(text) is None


# ---------------------------------------------------------------- sweeps


@pytest.mark.bridge
def test_a_sweep_has_a_winner_and_a_cause(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = results(str(sweep), capsys=capsys)
    one, two, four = data["runs"]
    assert one["useful_tokens_per_s_per_gpu"]["median"] == pytest.approx(1024 * 4096 / 26.0 / 16, rel=0.005)
    assert one["peak_gib"] == pytest.approx(73_400_000_000 / 2**30)
    assert two["predicted"]["useful_tokens_per_s_per_gpu"] == pytest.approx(9808, rel=0.2)
    assert (four["status"], four["symptoms"][0]["id"]) == ("failed", "std.memory_failures.out_of_memory")
    (c,) = data["comparisons"]
    assert (c["axis"], c["winner"], c["runner_up"]) == ("micro_batch", "main.micro_batch_2", "main.micro_batch_1")
    assert c["beyond_spread"] is True
    assert c["difference"] == pytest.approx(0.04, abs=0.005)
    assert main(["results", str(sweep)]) == 0
    shown = capsys.readouterr().out
    assert "micro_batch=2 leads 1 by" in shown
    assert "more memory than the GPU has" in shown


@pytest.mark.bridge
def test_a_difference_within_the_spread_is_said_to_be(sweep: Path, bridge_logs: dict[str, str], capsys: Any) -> None:
    (sweep / "main.micro_batch_2" / "log-account.job_7_0.out").write_text(bridge_logs["close"])
    (c,) = results(str(sweep), capsys=capsys)["comparisons"]
    assert c["beyond_spread"] is False
    assert abs(c["difference"]) < 0.005


@pytest.mark.bridge
def test_rows_for_calibrate_are_read_by_calibrate(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = sweep / "measured.jsonl"
    assert main(["results", str(sweep), "--measured", str(file)]) == 0
    _, runs, found = read_calibration(file)
    assert not found
    assert [r.id for r in runs] == ["main.micro_batch_1", "main.micro_batch_2"]
    for r, value in zip(runs, ("1", "2"), strict=True):
        plan = json.loads((sweep / f"main.micro_batch_{value}" / "code" / "plan.json").read_text())
        assert r.predicted() == pytest.approx(plan["estimate"]["tokens_per_s_per_gpu"])
        assert float(r.cost.memory(r.row)[0]) / 1e9 == pytest.approx(
            plan["estimate"]["memory"]["peak_gib"] * 2**30 / 1e9
        )
    assert runs[0].tokens == pytest.approx(1024 * 4096 / 26.0 / 16, rel=0.005)
    assert main(["results", str(sweep), "--measured", str(file)]) == 1
    assert "--force" in capsys.readouterr().err


def logged(steps: int, ms: float) -> str:
    """Iteration lines as Bridge prints them."""
    return "".join(f" [t] iteration {n:8d}/ {steps:8d} | elapsed time per iteration (ms): {ms + n % 3:.1f} |"
                   " global batch size: 1024 | lm loss: 1.1E+01 | grad norm: 2.0 |\n" for n in range(1, 1 + steps))  # fmt: skip


def test_plans_of_one_name_are_two_runs(plans: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both runs are called main; b is faster, and ran twice."""
    for name, value, ms in (("a", "1", 26000.0), ("b", "2", 25000.0), ("b2", "2", 25010.0)):
        plan = json.loads((plans / f"main.micro_batch_{value}" / "plan.json").read_text())
        (tmp_path / f"p{name}").mkdir()
        kept = {k: v for k, v in plan.items() if k != "sweep"}
        (tmp_path / f"p{name}" / "plan.json").write_text(json.dumps({**kept, "name": "main"}))
        (tmp_path / f"{name}.log").write_text(logged(STEPS, ms))
    words = [f"{tmp_path / name}.log={tmp_path / f'p{name}'}" for name in ("a", "b", "b2")]
    data = results(*words, capsys=capsys)
    assert [r["name"] for r in data["runs"]] == ["main (pa)", "main (pb)", "main (pb)"]
    (c,) = data["comparisons"]
    assert (c["winner"], c["runner_up"]) == ("main (pb)", "main (pa)")
    assert main(["results", *words]) == 0
    assert "main (pb) leads main (pa) by 4.0%" in capsys.readouterr().out


def test_runs_of_one_plan_are_told_apart_by_their_logs(
    plans: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two logs of one plan, and a log of another program."""
    plan = plans / "main.micro_batch_1"
    for name, text in (("a", logged(STEPS, 26000.0)), ("b", logged(STEPS, 13000.0)), ("c", "step 1 loss 2.3\n" * 40)):
        (tmp_path / f"{name}.log").write_text(text)
    assert main(["results", *(f"{tmp_path / name}.log={plan}" for name in ("a", "b", "c"))]) == 0
    out = capsys.readouterr().out
    assert "1 (a.log)     30     26.00" in out and "1 (b.log)     30     13.00" in out
    assert "1 (c.log): too short, no iteration line as Megatron Bridge and Megatron-LM print them" in out
    assert "micro_batch=1 ran 2 times; only it has a measurement" in out
    for command, says in (("gap", "the last rank prints these lines"), ("next", "no iteration line as Megatron")):
        assert main([command, f"{tmp_path / 'c.log'}={plan}"]) == 1
        said = capsys.readouterr().err
        assert says in said and "diagnose" not in said and "the first experiment" not in said


def test_values_of_two_sweeps_of_one_name(plans: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same file twice, with another batch the second time."""
    for folder, batch in (("first", 1024), ("second", 2048)):
        for value in ("1", "2"):
            name = f"main.micro_batch_{value}"
            plan = json.loads((plans / name / "plan.json").read_text())
            plan["batch"]["global_batch"] = batch
            (tmp_path / folder / name).mkdir(parents=True)
            (tmp_path / folder / name / "plan.json").write_text(json.dumps(plan))
            (tmp_path / folder / name / "train.log").write_text(logged(STEPS, 26000.0 - 1000 * int(value)))
    names = [f"main.micro_batch_{v} ({f}/main.micro_batch_{v})" for f in ("first", "second") for v in ("1", "2")]
    assert [r["name"] for r in results(str(tmp_path), capsys=capsys)["runs"]] == names
    assert main(["results", str(tmp_path)]) == 0
    assert "micro_batch=2 (first/main.micro_batch_2) leads" in capsys.readouterr().out


def test_options_that_contradict_the_plan_are_refused(plans: Path, tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "plan.json").write_text((plans / "main.micro_batch_1" / "plan.json").read_text())
    (folder / "train.log").write_text(logged(30, 100.0))
    plan = json.loads((folder / "plan.json").read_text())
    assert main(["results", str(folder / "train.log"), "--seq", "8k", "--gpus", str(plan["gpus"])]) == 1
    told = capsys.readouterr().err
    assert "plan.json contradicts --seq 8192 (it has 4096)" in told and "--gpus" not in told.splitlines()[0]
    assert main(["results", str(folder / "train.log"), "--seq", "4k"]) == 0


def test_a_plan_without_a_log(plans: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.json").write_text((plans / "main.micro_batch_1" / "plan.json").read_text())
    assert main(["results", str(tmp_path)]) == 1
    assert ": no log, no job of the run has written one yet" in capsys.readouterr().out


def test_a_folder_without_its_numbers_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.log").write_text("nothing\n")
    for words, text in (
        ([str(tmp_path)], "unknown length and number of GPUs"),
        ([str(tmp_path / "no.log")], "is neither a file"),
    ):
        assert main(["results", *words]) == 1
        assert text in capsys.readouterr().err
    assert main(["results", str(tmp_path), "--seq", "4096", "--gpus", "16"]) == 1
    assert "no run has a measurement" in capsys.readouterr().out


# ---------------------------------------------------------------- laws of the comparison


def row(name: str, low: float, middle: float, high: float, status: str = "ok") -> Json:
    rate = {"q1": low, "median": middle, "q3": high}
    return {"name": name, "status": status, "useful_tokens_per_s_per_gpu": rate}


@pytest.mark.parametrize(
    "rows, winner, beyond",
    [
        ([row("a", 99, 100, 101), row("b", 109, 110, 111)], "b", True),
        ([row("a", 99, 100, 110), row("b", 109, 110, 111)], "b", False),
        ([row("a", 99, 100, 101), row("b", 109, 110, 111, "failed")], "a", None),
        ([row("a", 99, 100, 101), row("b", 109, 110, 111), row("b", 98, 99, 100)], "b", False),
        ([row("a", 99, 100, 101, "failed")], None, None),
    ],
)  # fmt: skip
def test_the_winner_and_the_spread(rows: list[Json], winner: str | None, beyond: bool | None) -> None:
    (c,) = comparisons(rows)
    assert (c["winner"], c["beyond_spread"]) == (winner, beyond)


def test_two_sweeps_of_one_axis_are_two_tables() -> None:
    """Runs of one file may each have a sweep of the same axis."""
    of = {"a.1": "a", "a.2": "a", "b.1": "b", "b.2": "b"}
    rows = [
        {**measured(name, 100 + i), "value_of": {"of": of[name], "axis": "micro_batch", "value": name[-1]}}
        for i, name in enumerate(of)
    ]
    shown = shown_as({"runs": rows, "comparisons": comparisons(rows)})
    assert [log.split(":")[0] for log in shown.splitlines() if "measured" in log] == ["a", "b"]
    assert [shown.count(f"\n            {value} ") for value in ("1", "2")] == [2, 2]


def measured(name: str, rate: float) -> Json:
    """A whole row, as `measure` makes it."""
    spread = {"min": rate, "q1": rate, "median": rate, "q3": rate, "max": rate, "spread": 0.0}
    figures = {"useful_tokens_per_s_per_gpu": spread, "step_time_s": spread, "samples": 3, "tflops_per_gpu": None}
    ending = {"status": "ok", "cause": None, "symptoms": [], "skipped_iterations": 0, "warnings": []}
    return {"name": name, **figures, **ending, "predicted": None, "peak_gib": None}


def test_a_vlms_image_tokens_are_not_useful() -> None:
    result = compile_source(Source("run.moe", "qwen3_vl_30b_a3b; h100 x 16; seq 4k; batch 256; fit first"))
    (plan,) = result.plans
    (n,) = numbers([Run("vlm", (), plan)], Given())
    assert isinstance(n, Numbers)
    share = plan.estimate.useful_share
    assert 0 < share < 1
    assert n.useful_rate(10.0, 256) == pytest.approx(share * 4096 * 256 / 10 / 16)
    assert n.useful_rate(plan.estimate.step_time_s, 256) == pytest.approx(plan.estimate.useful_tokens_per_s_per_gpu)


def test_attempts_split_where_the_number_does_not_grow(tmp_path: Path) -> None:
    def said(n: int, ms: float) -> str:
        return f" [t] iteration {n:8d}/      50 | elapsed time per iteration (ms): {ms:.1f} | global batch size: 8 |\n"

    file = tmp_path / "x.log"
    lines = [said(n, 1000 + i) for i, n in enumerate((1, 2, 3, 2, 3, 4))]
    file.write_text("".join([*lines, lines[-1]]))  # the last line twice, as where two ranks print it
    read = measure.read_all([file], symptoms(load_stdlib()))
    assert [[s.iteration for s in a] for a in read.attempts] == [[1, 2, 3], [2, 3, 4]]


# ---------------------------------------------------------------- a damaged plan.json

DAMAGE = {
    "cut": (lambda text: text[:3000], "is cut or damaged"),
    "empty": (lambda text: "", "is cut or damaged"),
    "other bytes": (lambda text: text.encode("utf-16"), "cannot be read"),
    "without its layout": (lambda text: text.replace('"layout"', '"layouts"'), "is not a plan"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_plan_is_named(damage: str, plans: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change, text = DAMAGE[damage]
    made = change((plans / "main.micro_batch_1" / "plan.json").read_text())
    file, log_file = tmp_path / "plan.json", tmp_path / "train.log"
    file.write_bytes(made if isinstance(made, bytes) else made.encode())
    log_file.write_text(logged(STEPS, 26000.0))
    for command in ("results", "gap", "next"):
        for target in (str(tmp_path), str(log_file), f"{log_file}={tmp_path}"):
            assert main([command, target]) == 1
            said = capsys.readouterr().err
            assert said.count("error[") == 1 and f"error[results.plan]: {file} {text}" in said, (command, said)
            assert f"-o {tmp_path} --force" in said
    assert main(["watch", str(log_file), "--once", "--json"]) == 0
    (seen,) = json.loads(capsys.readouterr().out)["runs"]
    assert seen["iteration"] == STEPS and text in seen["warnings"][0]["text"]


def test_json_of_somebody_else_is_no_damaged_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.json").write_text('{"terraform_version": "1.9"}')
    (tmp_path / "train.log").write_text(logged(STEPS, 26000.0))
    assert main(["results", str(tmp_path), "--seq", "4k", "--gpus", "16"]) == 0


def test_a_run_file_needs_no_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A compiled folder is also mended as the help says."""
    run = "qwen3_30b_a3b; h100 x 16; seq 4k; batch 1024; fit first"
    assert main(["compile", "-e", run, "-o", str(tmp_path)]) == 0
    (tmp_path / "plan.json").write_text((tmp_path / "plan.json").read_text()[:3000])
    (tmp_path / "run.moe").write_text(run.replace("; ", "\n"))
    (tmp_path / "train.log").write_text(logged(STEPS, 26000.0))
    assert main(["gap", str(tmp_path / "train.log"), "--run", str(tmp_path / "run.moe")]) == 0
    assert main(["gap", str(tmp_path / "train.log")]) == 1
    assert main(["compile", "-e", run, "-o", str(tmp_path), "--force"]) == 0
    assert main(["gap", str(tmp_path / "train.log")]) == 0
