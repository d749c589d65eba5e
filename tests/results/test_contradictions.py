"""Figures that contradict each other or the GPU are named in each command, and are no line for `calibrate`."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from moedsl.cli.main import main
from moedsl.planner.plan import Plan
from moedsl.runs.measured_runs import read as read_calibration
from moedsl.runs.results.measure import FLOPS, PEAK, Attempt, Log, error_of, last_settings
from tests.gap.test_gap import H200_LOG
from tests.helpers.logs import iteration_lines, step
from tests.helpers.one_gpu import MOONLIGHT
from tests.helpers.programs import compiled
from tests.helpers.tables import table_of
from tests.results.test_results import results

TEXT = "qwen3_30b_a3b; h100 x 16; seq 4k; batch 64; fit first"
IMAGES = "qwen3_vl_30b_a3b; h100 x 16; seq 4k; batch 256; throughput first"
TUNED = 'qwen3_30b_a3b; h100 x 16; seq 4k; batch 64; task sft; data "/d"'
Json = dict[str, Any]


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Plan]:
    """Write the plan of a program, and the log of a run `faster` than it, whose TFLOPS are `more` than they mean."""
    monkeypatch.chdir(tmp_path)

    def write(run: str, faster: float = 1.0, more: float | None = 1.0) -> Plan:
        (plan,) = compiled(run).plans
        seconds, tflops = plan.estimate.step_time_s / faster, plan.estimate.model_tflops_per_gpu * faster
        Path("plan.json").write_text(json.dumps(plan.to_json()))
        lines = iteration_lines(1, 80, seconds, plan.batch.global_batch, None if more is None else tflops * more)
        Path("train.log").write_text(lines)
        return plan

    return write


def seen_in(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main([command, "train.log", *(["--once"] if command == "watch" else [])]) == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "faster, more, id, text",
    [
        (1.0, 3.0, FLOPS, "3 times the 23 of its plan"),
        (2.0, 0.5, FLOPS, "0.5 times the 23 of its plan"),
        (1000.0, None, PEAK, "and h100 has 989 in bf16"),
    ],
    ids=["another model", "twice the GPUs", "milliseconds"],
)
def test_what_contradicts_is_named_in_each_command(
    faster: float, more: float | None, id: str, text: str, ran: Callable[..., Plan], capsys: pytest.CaptureFixture[str]
) -> None:
    ran(TEXT, faster, more)
    (row,) = results("train.log", capsys=capsys)["runs"]
    assert [w["id"] for w in row["warnings"]] == [id]
    for command in ("results", "gap", "next", "watch"):
        assert text in seen_in(command, capsys), command
    assert main(["results", "train.log", "--measured", "runs.jsonl"]) == 1
    assert "main: no line for `moedsl calibrate`: " in capsys.readouterr().err and not Path("runs.jsonl").exists()


def test_rank_0_says_the_same(ran: Callable[..., Plan], capsys: pytest.CaptureFixture[str]) -> None:
    e = ran(TEXT).estimate
    line = "Step Time : {:.2f}s GPU utilization: {:.1f}MODEL_TFLOP/s/GPU\n"
    for lines in ("", iteration_lines(1, 80, e.step_time_s, 64)):
        for factor, ids in ((1.0, []), (2.0, [FLOPS])):
            own = line.format(e.step_time_s, factor * e.model_tflops_per_gpu) * 30
            Path("train.log").write_text(lines + own)
            assert [w["id"] for w in results("train.log", capsys=capsys)["runs"][0]["warnings"]] == ids


@pytest.mark.parametrize(
    "run, faster, more",
    [(TEXT, 1.0, 0.83), (TEXT, 1.0, 1.05), (TEXT, 2.0, 1.0), (TEXT, 2.0, None), (IMAGES, 1.0, 2.0), (TUNED, 1.0, 0.2)],
)
def test_an_honest_run_contradicts_nothing(
    run: str, faster: float, more: float | None, ran: Callable[..., Plan], capsys: pytest.CaptureFixture[str]
) -> None:
    """NVIDIA's published runs stray so far; images and samples are counted as they come."""
    ran(run, faster, more)
    assert results("train.log", capsys=capsys)["runs"][0]["warnings"] == []


def test_a_real_log_contradicts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (plan,) = compiled(MOONLIGHT).plans
    (tmp_path / "plan.json").write_text(json.dumps(plan.to_json()))
    (row,) = results(f"{H200_LOG}={tmp_path}", capsys=capsys)["runs"]
    assert row["warnings"] == [] and row["tflops_per_gpu"] > 200


def test_a_line_of_calibrate_above_the_peak_is_refused(tmp_path: Path) -> None:
    file, fast = tmp_path / "runs.jsonl", 989e12 / 18e9
    row = {"run": "qwen3_30b_a3b; h100 x 16; pin ep=16", "tokens_per_s_per_gpu": 12440}
    each = [row, row | {"tokens_per_s_per_gpu": fast}, row | {"step_time_s": 0.0145, "tokens_per_s_per_gpu": None}]
    file.write_text("".join(json.dumps(r) + "\n" for r in each))
    source, runs, found = read_calibration(file)
    assert [r.tokens for r in runs] == [12440]
    assert [(d.id, source.text.count("\n", 0, d.labels[0].span.start)) for d in found] == [
        ("calibrate.run", 1),
        ("calibrate.run", 2),
    ]
    assert all("TFLOPS, and h100 has 989 in bf16" in d.message for d in found)


# A log with another global batch than its plan's is another experiment; a ramp-up and a restart are told apart.

BATCH, SECONDS = 64, 5.0
RUN = f"qwen3_30b_a3b; h100 x 16; seq 4k; batch {BATCH}; fit first"


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("run")
    assert main(["compile", "-e", RUN, "-o", str(out)]) == 0
    return (out / "plan.json").read_text()


@pytest.fixture
def folder(plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("run", "old"):
        Path(name).mkdir()
        Path(name, "plan.json").write_text(plan)
    return tmp_path


def write(*texts: str, folder: str = "run") -> None:
    Path(folder, "train.log").write_text("".join(texts))


def ids(row: Json) -> list[str]:
    return [w["id"] for w in row["warnings"]]


def seconds_of(json_file: str = "run/plan.json") -> float:
    return json.loads(Path(json_file).read_text())["estimate"]["step_time_s"]


def test_the_batch_of_the_log_is_not_its_plans(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(iteration_lines(1, 40, seconds_of() * 2, 2 * BATCH))
    (row,) = results("run", capsys=capsys)["runs"]
    assert (ids(row), row["predicted"], row["global_batch"]) == (["batch"], None, 2 * BATCH)
    assert main(["results", "run", "--measured", "x.jsonl"]) == 1 and not Path("x.jsonl").exists()
    said = capsys.readouterr()
    assert "a global batch of 128, its plan 64" in said.out and "no line for `moedsl calibrate`" in said.err
    for command in ("gap", "next"):
        assert main([command, "run"]) == 1
        assert "a global batch of 128, its plan 64" in capsys.readouterr().err
    assert main(["watch", "run", "--once", "--json"]) == 0
    (seen,) = json.loads(capsys.readouterr().out)["runs"]
    assert (ids(seen), seen["predicted"], seen["alarms"]) == (["batch"], None, [])
    assert main(["watch", "run", "--once"]) == 0
    assert "warning    its log states" in capsys.readouterr().out


def test_a_plan_with_the_batch_of_the_log_is_compared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(iteration_lines(1, 40, seconds_of() * 2, 2 * BATCH))
    assert main(["compile", "-e", RUN.replace(f"batch {BATCH}", f"batch {2 * BATCH}"), "-o", "again"]) == 0
    capsys.readouterr()
    assert main(["gap", "run/train.log=again", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["remarks"] == []


def test_a_batch_of_the_command_line_that_the_log_contradicts(folder: Path, capsys: Any) -> None:
    Path("a.log").write_text(iteration_lines(1, 40, SECONDS, 128))
    words = ("--seq", "4k", "--gpus", "16", "--global-batch")
    assert ids(results("a.log", *words, "64", capsys=capsys)["runs"][0]) == ["batch"]
    assert ids(results("a.log", *words, "128", capsys=capsys)["runs"][0]) == []


def test_a_baseline_with_another_batch_has_changed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(iteration_lines(1, 40, SECONDS * 2, 2 * BATCH))
    write(iteration_lines(1, 40, SECONDS, BATCH), folder="old")
    for new, old, change in (("run", "old", (64, 128)), ("old", "run", (128, 64))):
        (found,) = results(new, "--baseline", old, capsys=capsys)["regressions"]
        assert [(c["a"], c["b"], c["effect"]) for c in found["changes"]] == [(*change, "experiment")]
        assert (found["same_experiment"], found["predicted_change"]) == (False, None)
        assert len(found["warnings"]) == (old == "run")
    assert main(["results", "run", "old"]) == 0
    assert "these runs are different experiments" in capsys.readouterr().out


@pytest.mark.parametrize("batch, counts", [(BATCH // 2, ["batch", "restart"]), (2 * BATCH, ["batch", "restart"])])
@pytest.mark.parametrize("first", [21, 41], ids=["from a checkpoint before", "at the next step"])
def test_a_restart_with_another_batch_is_not_merged(
    batch: int, counts: list[str], first: int, folder: Path, capsys: Any
) -> None:
    write(iteration_lines(1, 40, SECONDS, BATCH), iteration_lines(first, 80, 7.0, batch, after=3600))
    (row,) = results("run", capsys=capsys)["runs"]
    assert ids(row) == counts
    assert (row["samples"], row["step_time_s"]["max"], row["batches"]) == (80 - first + 1 - 10, 7.0, [batch])
    assert main(["watch", "run", "--once", "--json"]) == 0
    (seen,) = json.loads(capsys.readouterr().out)["runs"]
    assert (ids(seen), seen["step_time_s"]["max"]) == (["batch"], 7.0)


def test_a_restart_with_the_batch_of_the_plan_counts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In two files, of which the later one is shorter."""
    Path("run/job_2.log").write_text(iteration_lines(1, 30, seconds_of(), BATCH, after=3600))
    Path("run/job_1.log").write_text(iteration_lines(1, 80, 3.0, BATCH // 2))
    (row,) = results("run", capsys=capsys)["runs"]
    assert (ids(row), row["samples"], row["batches"]) == (["restart"], 20, [BATCH])
    assert row["predicted"] and main(["results", "run", "--measured", "x.jsonl"]) == 0


@pytest.mark.parametrize("grows", [True, False])
def test_a_batch_that_ramps_up(grows: bool, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each step has the tokens of its own batch; a restart goes on at the batch of its checkpoint."""
    rate = seconds_of() / BATCH
    stages = [(1, 20, 16), (21, 40, 32), (31, 40, 32), (41, 60, 64)]
    write(*(iteration_lines(a, b, rate * n, n, after=3600 * (a > 30)) for a, b, n in (stages if grows else stages[:2])))
    (row,) = results("run", capsys=capsys)["runs"]
    assert (ids(row), row["batches"]) == ([], [16, 32, 64] if grows else [16, 32])
    assert row["useful_tokens_per_s_per_gpu"]["spread"] == pytest.approx(0, abs=1e-3)
    assert row["useful_tokens_per_s_per_gpu"]["median"] == pytest.approx(64 * 4096 / seconds_of() / 16, rel=1e-3)
    assert main(["results", "run", "--measured", "x.jsonl"]) == 1
    assert "its batch ramps up to 64" in capsys.readouterr().err
    assert main(["gap", "run", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["runs"]
    assert found["measured"]["step_s"] == pytest.approx(seconds_of(), rel=1e-3) and found["predicted"]["inside"]
    assert main(["watch", "run", "--once", "--json"]) == 0
    (seen,) = json.loads(capsys.readouterr().out)["runs"]
    assert ids(seen) == [] and seen["step_time_s"]["max"] == seen["step_time_s"]["min"]


def test_starts_of_different_speeds_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(iteration_lines(1, 40, 4.0, BATCH), iteration_lines(21, 60, 6.0, BATCH, after=3600))
    (row,) = results("run", capsys=capsys)["runs"]
    assert ids(row) == ["starts"] and "4.00 and 6.00 s a step" in row["warnings"][0]["text"]
    assert main(["results", "run", "--measured", "x.jsonl"]) == 1
    for command in ("gap", "next"):
        assert main([command, "run", "--json"]) == 0
        assert "4.00 and 6.00 s a step" in capsys.readouterr().out
    write(iteration_lines(1, 40, 4.0, BATCH), iteration_lines(21, 60, 4.2, BATCH, after=3600))
    assert ids(results("run", capsys=capsys)["runs"][0]) == []


@pytest.mark.parametrize("each, full, counted, earlier", table_of("results", "the last settings", none="-"))
def test_the_last_settings(each: list[list[int | None]], full: int | None, counted: int, earlier: Any) -> None:
    """Attempts begin at step 1, 2, 3 and so on, so a later one repeats the steps of the one before."""
    attempts: tuple[Attempt, ...] = tuple(
        tuple(step(i + n, 1.0, batch) for n, batch in enumerate(some)) for i, some in enumerate(each, 1)
    )
    found = last_settings(Log((), attempts), full)
    assert (len(found.attempts), found.earlier) == (counted, earlier)


# `moedsl results --baseline`: a regression is beyond the noise of the steps, and what changed is named.

COMPARED_RUN = "model qwen3_30b_a3b; h100 x 16; seq 4k; batch 512; precision bf16; routing balanced; throughput first; "
PINS = "pin tp=1 cp=1 pp=1 vpp=1 ep=8 etp=1 micro_batch=1"


def logged(seconds: float, jitter: float, seed: int, steps: int = 60, drift: float = 0.0) -> str:
    """Iteration lines as Bridge prints them; consecutive steps drift together."""
    rng = random.Random(seed)
    each = (seconds * (1 + jitter * rng.gauss(0, 1) + drift * (n / steps - 0.5)) for n in range(steps))
    return "".join(f" [t] iteration {n:8d}/ {steps:8d} | elapsed time per iteration (ms): {1000 * s:.1f} |"
                   " global batch size: 512 | lm loss: 1.1E+01 | grad norm: 2.0 |\n" for n, s in enumerate(each, 1))  # fmt: skip


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plans")
    for name, more in (("old", " dispatcher=alltoall"), ("new", " dispatcher=deepep")):
        assert main(["compile", "-e", COMPARED_RUN + PINS + more, "-o", str(folder / name)]) == 0
    return folder


def run_of(plans: Path, folder: Path, plan: str, text: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text((plans / plan / "plan.json").read_text())
    (folder / "train.log").write_text(text)
    return folder


def judged(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[Json]]:
    capsys.readouterr()
    code = main(["results", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)["regressions"]


def test_what_changed_and_what_it_cost(plans: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = run_of(plans, tmp_path / "old", "old", logged(10.0, 0.01, 1))
    new = run_of(plans, tmp_path / "new", "new", logged(10.6, 0.01, 2))
    code, (found,) = judged(str(new), "--baseline", str(old), capsys=capsys)
    assert code == 1
    assert found["verdict"] == "slower"
    assert found["change"] == pytest.approx(10 / 10.6 - 1, abs=0.01)
    assert found["noise"] < 0.02
    assert ("dispatcher", "alltoall", "deepep") in [(c["name"], c["a"], c["b"]) for c in found["changes"]]
    assert found["same_experiment"] is True
    assert found["predicted_change"] > 0
    assert main(["results", str(new), "--baseline", str(old)]) == 1
    shown = capsys.readouterr().out
    assert "dispatcher alltoall -> deepep" in shown
    assert "ran once, on its own machines" in shown


def test_a_difference_within_the_noise_is_no_regression(plans: Path, tmp_path: Path, capsys: Any) -> None:
    """Both runs drift by 10%: their medians are known to a few percent only, though their steps are many."""
    old = run_of(plans, tmp_path / "old", "old", logged(10.0, 0.005, 1, drift=0.1))
    new = run_of(plans, tmp_path / "new", "old", logged(10.3, 0.005, 2, drift=0.1))
    code, (found,) = judged(str(new), "--baseline", str(old), capsys=capsys)
    assert (code, found["verdict"], found["changes"]) == (0, "within noise", [])


def test_a_small_difference_needs_a_smaller_tolerance(plans: Path, tmp_path: Path, capsys: Any) -> None:
    old = run_of(plans, tmp_path / "old", "old", logged(10.0, 0.001, 1))
    new = run_of(plans, tmp_path / "new", "old", logged(10.1, 0.001, 2))
    words = (str(new), "--baseline", str(old))
    assert judged(*words, capsys=capsys)[1][0]["verdict"] == "below the tolerance"
    code, (found,) = judged(*words, "--tolerance", "0.5%", capsys=capsys)
    assert (code, found["verdict"]) == (1, "slower")


def test_repeated_runs_give_the_noise_between_allocations(plans: Path, tmp_path: Path, capsys: Any) -> None:
    """The steps of each run agree to 0.1%, and the runs differ by 4%."""
    for i, seconds in enumerate((9.8, 10.0, 10.2)):
        run_of(plans, tmp_path / "old" / str(i), "old", logged(seconds, 0.001, i))
    new = run_of(plans, tmp_path / "new", "old", logged(10.3, 0.001, 9))
    code, (found,) = judged(str(new), "--baseline", str(tmp_path / "old"), capsys=capsys)
    assert (code, found["verdict"], found["runs"]) == (0, "within noise", [3, 1])


def test_a_run_that_fails_now_is_a_regression(plans: Path, tmp_path: Path, capsys: Any) -> None:
    for name in ("old", "new"):
        for value in ("a", "b"):
            folder = run_of(plans, tmp_path / name / value, "old" if value == "a" else "new", logged(10.0, 0.01, 1))
            plan = json.loads((folder / "plan.json").read_text())
            (folder / "plan.json").write_text(json.dumps({**plan, "name": value}))
    (tmp_path / "new" / "b" / "train.log").write_text("torch.OutOfMemoryError: CUDA out of memory.\n")
    code, found = judged(str(tmp_path / "new"), "--baseline", str(tmp_path / "old"), capsys=capsys)
    assert code == 1
    assert [(r["name"], r["verdict"]) for r in found] == [("a", "within noise"), ("b", "failed")]


def test_blocks_know_what_single_steps_do_not() -> None:
    rng = random.Random(0)
    steps = [rng.gauss(100, 1) for _ in range(200)]
    drifting = [s + i / 20 for i, s in enumerate(steps)]
    alone, together = error_of(steps), error_of(drifting)
    assert alone is not None and together is not None
    assert 0.03 < alone < 0.3
    assert together > 5 * alone
    assert error_of(steps[:5]) is None
