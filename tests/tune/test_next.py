"""`moedsl next`: one change to the fastest run, by expected gain, which never changes the experiment."""

import json
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve

from moedsl.cli.main import main
from moedsl.runs.tune import loop
from moedsl.runs.tune.candidates import Tried, candidates, expected, known
from moedsl.support.source import Source
from tests.helpers.programs import compiled
from tests.helpers.simulated_cluster import Truth

Json = dict[str, Any]
RUN = "model qwen3_235b_a22b; gb200 x 64; seq 4k; batch 512; precision bf16; routing balanced; throughput first"
PINS = "; pin tp=1 cp=1 pp=8 vpp=1 ep=8 micro_batch=1 dispatcher=alltoall"
SLOW_ALLTOALL = Truth({})


@pytest.fixture(scope="module")
def base() -> loop.Base:
    made = loop.base(Source("run.moe", RUN))
    assert isinstance(made, loop.Base)
    return made


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (plan,) = compiled(RUN + PINS).plans
    return SLOW_ALLTOALL.run(plan, tmp_path_factory.mktemp("runs") / "first")


def following(*words: str, capsys: pytest.CaptureFixture[str]) -> Json:
    capsys.readouterr()
    assert main(["next", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_next_experiment_of_a_run_on_real_data_is_of_that_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its plan.json holds the data, the formats, and the steps that a time and the file system of a cluster gave."""
    more = '\ndata "/d/text_document"; pin moments=bf16; for 3 days; set checkpoint.save = "/c"\n'
    text = RUN.replace("routing balanced; ", "") + PINS + more
    (plan,) = compiled(text + "cluster c { executor slurm; hardware gb200; storage_write 2 GB/s }").plans
    path = tmp_path / "next.moe"
    found = following(str(SLOW_ALLTOALL.run(plan, tmp_path / "first")), "-o", str(path), capsys=capsys)
    assert found["other_experiments"] == [] and len(found["tried"]) == 1
    (now,) = compiled(path.read_text(), "next.moe").plans
    assert now.experiment.fingerprint == plan.experiment.fingerprint
    assert now.policy.data == "/d/text_document"


def test_a_run_that_its_plan_does_not_hold_asks_for_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = 'qwen3_30b_a3b; h100 x 16; task sft; data "/d"; set checkpoint.pretrained_checkpoint = "/w"\n'
    (plan,) = compiled(text).plans
    folder = SLOW_ALLTOALL.run(plan, tmp_path / "first")
    assert main(["next", str(folder)]) == 1
    assert "help: give its run file, as in `--run run.moe`" in capsys.readouterr().err
    (tmp_path / "run.moe").write_text(text)
    assert main(["next", str(folder), "--run", str(tmp_path / "run.moe")]) == 0


def test_the_next_experiment_is_one_change(first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "next.moe"
    found = following(str(first), "-o", str(path), capsys=capsys)
    best = found["next"]
    assert (best["axis"], best["from"], best["to"]) == ("dispatcher", "alltoall", "hybridep")
    assert best["low"] < best["gain"] < best["high"]
    assert [c["expected"] for c in found["candidates"]] == sorted(
        (c["expected"] for c in found["candidates"]), reverse=True
    )
    (now,) = compiled(path.read_text(), "next.moe").plans
    (before,) = compiled(RUN + PINS).plans
    assert now.experiment.fingerprint == before.experiment.fingerprint
    assert now.policy.dispatcher == "hybridep"
    assert now.layout == before.layout
    assert main(["next", str(first), "-o", str(path)]) == 1
    assert "overwrites nothing" in capsys.readouterr().err
    assert main(["next", str(first)]) == 0
    assert "next: dispatcher alltoall -> hybridep" in capsys.readouterr().out


def test_no_candidate_changes_the_experiment(base: loop.Base) -> None:
    """Graphs of whole iterations, precision and the formats of the optimizer are part of the experiment."""
    found = candidates(base.chosen, base.start, [])
    assert found
    assert not {c.axis for c in found} & {"precision", "moments", "grad_reduce"}
    for c in found:
        if c.axis == "cuda_graph":
            assert "full_iteration" not in c.value
    for c in found[:3]:
        made = loop.with_layout(base, c.codes, "tried")
        assert isinstance(made, loop.RunFile)
        assert made.plan.experiment.fingerprint == base.plan.experiment.fingerprint


def test_what_ran_out_of_memory_is_not_tried_with_more(base: loop.Base) -> None:
    free = candidates(base.chosen, base.start, [])
    failed = Tried("first", base.start, None, out_of_memory=True)
    left = candidates(base.chosen, base.start, [failed])
    assert 0 < len(left) < len(free)


def test_what_was_measured_moves_what_is_expected(base: loop.Base) -> None:
    """A measured layout is known to its noise; another one moves with it, and stays less well known."""
    cost, start = base.chosen.cost, base.start
    other = candidates(base.chosen, start, [])[0].codes
    before = known(cost, [start, other], [])
    step = 1.2 * float(np.exp(before.log_step[0]))
    after = known(cost, [start, other], [Tried("first", start, step, 0.001)])
    assert after.log_step[0] == pytest.approx(log(step), abs=0.002)
    assert before.log_step[1] < after.log_step[1] < before.log_step[1] + log(1.2) + 0.01
    assert after.covariance[0, 0] < 0.002**2
    assert after.covariance[0, 0] < after.covariance[1, 1] < before.covariance[1, 1]
    assert (np.linalg.eigvalsh(after.covariance) > -1e-12).all()


SMALL = "model qwen3_30b_a3b; h100 x 16; seq 4k; batch 512; throughput first"
REFUSED = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {}. GPU 3 has 79.11 GiB\n"


def ended(folder: Path, log: str) -> Path:
    """A run of `SMALL` with that log."""
    (plan,) = compiled(SMALL).plans
    SLOW_ALLTOALL.run(plan, folder)
    (folder / "train.log").write_text(log)
    return folder


def test_after_a_run_out_of_memory_enough_is_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`next` and `diagnose` judge alike what is enough: 2.28 GiB less are not, where 2.37 were missing."""
    log, path, run = REFUSED.format("2.37 GiB"), tmp_path / "next.moe", tmp_path / "run.moe"
    folder = ended(tmp_path / "first", log)
    found = following(str(folder), "-o", str(path), capsys=capsys)
    (tried,) = found["tried"]
    assert (tried["out_of_memory"], tried["refused_gib"], found["fastest"]) == (True, 2.37, None)
    peaks = {(c["axis"], str(c["to"])): c["peak_gib"] for c in found["candidates"]}
    assert peaks and max(peaks.values()) <= tried["predicted_peak_gib"] - 2.37
    assert ("recompute", "['moe_act']") not in peaks
    assert all(c[n] is None for c in found["candidates"] for n in ("gain", "low", "high", "expected"))
    steps = [c["step_s"] for c in found["candidates"]]
    assert steps == sorted(steps) and found["next"] == found["candidates"][0]
    run.write_text(SMALL.replace("; ", "\n") + "\n")
    assert main(["diagnose", str(folder / "train.log"), "--run", str(run), "--json"]) == 1
    (made,) = json.loads(capsys.readouterr().out)["symptoms"][0]["runs"]
    assert made["compiled"]["changes"]["recompute"]["after"] == found["next"]["to"]
    assert made["compiled"]["after"]["peak_gib"] == pytest.approx(found["next"]["peak_gib"], abs=0.001)
    (now,) = compiled(path.read_text(), "next.moe").plans
    assert now.estimate.memory.peak_gib == pytest.approx(found["next"]["peak_gib"], abs=0.001)
    assert main(["next", str(folder)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "need 2.4 GiB less, which it asked for and did not get" in said
    assert "s a step and 61.4 GiB predicted" in said and "gain" not in said


@pytest.mark.parametrize(("said", "least"), [("512.00 MiB", 0.5), ("20.00 GiB", 20.0), ("all of it", 0.0), ("1.2.3 GiB", 0.0)])  # fmt: skip
def test_what_was_asked_for_is_read_in_each_unit(
    tmp_path: Path, said: str, least: float, capsys: pytest.CaptureFixture[str]
) -> None:
    found = following(str(ended(tmp_path / "first", REFUSED.format(said))), capsys=capsys)
    (tried,) = found["tried"]
    assert tried["refused_gib"] == least
    peaks = [c["peak_gib"] for c in found["candidates"]]
    assert peaks and max(peaks) < tried["predicted_peak_gib"] - least + 1e-9


def test_diagnose_names_what_an_edit_does_not_save(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.moe").write_text(SMALL.replace("; ", "\n") + "\n")
    log = ended(tmp_path / "first", REFUSED.format("20.00 GiB")) / "train.log"
    main(["diagnose", str(log), "--run", str(tmp_path / "run.moe"), "--json"])
    (made,) = json.loads(capsys.readouterr().out)["symptoms"][0]["runs"]
    assert "not enough below 64.5, and the run missed 20.0" in made["failures"]["pin recompute=[layernorm, moe_act]"]
    assert made["compiled"] is None or made["compiled"]["after"]["peak_gib"] <= 44.5


@pytest.mark.parametrize(
    "line", ["RuntimeError: boom", "AssertionError: NVTE_CPU_OFFLOAD_V1 environment variable should be set to 1"]
)
def test_after_a_run_that_failed_otherwise_nothing_is_next(
    tmp_path: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another layout is no cure for it, and a failed run is nothing to gain over."""
    folder = ended(tmp_path / "first", f"Traceback (most recent call last):\n{line}\n")
    found = following(str(folder), "-o", str(tmp_path / "next.moe"), capsys=capsys)
    assert found["next"] is None and found["candidates"] == [] and "memory ran out in none" in found["stop"]
    assert not (tmp_path / "next.moe").exists()


def test_a_step_outside_of_the_interval_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (plan,) = compiled(SMALL).plans
    for factor, outside in ((1.0, False), (0.4, True)):
        slow = Truth(dict.fromkeys(("gemm", "stream", "attention"), factor))
        folder = str(slow.run(plan, tmp_path / str(factor)))
        (tried,) = following(folder, capsys=capsys)["tried"]
        assert (tried["lower_s"] <= tried["step_s"] <= tried["upper_s"]) != outside
        interval = plan.estimate.interval
        assert interval is not None
        assert (tried["lower_s"], tried["upper_s"]) == pytest.approx((interval.lower_s, interval.upper_s), rel=1e-6)
        assert main(["next", folder]) == 0
        said = capsys.readouterr().out
        assert ("outside the interval of nine in ten runs" in said) == outside
        assert ("first: the fastest run is slower than its interval" in said) == (
            outside and tried["step_s"] > interval.upper_s
        )


def test_expected_gains() -> None:
    assert expected(0.1, 0.0) == 0.1
    assert expected(-0.1, 0.0) == 0.0
    assert expected(0.0, 0.1) == pytest.approx(0.1 / (2 * np.pi) ** 0.5)
    draws = np.random.default_rng(0).normal(-0.05, 0.1, 400_000)
    assert expected(-0.05, 0.1) == pytest.approx(np.maximum(draws, 0).mean(), rel=0.01)


def test_a_stop_is_said_with_its_reason(first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = following(str(first), "--stop", "50%", "-o", str(tmp_path / "next.moe"), capsys=capsys)
    assert found["next"] is None
    assert "less than 50.0%" in found["stop"]
    assert not (tmp_path / "next.moe").exists()


def test_another_experiment_is_left_out(first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (plan,) = compiled(RUN.replace("batch 512", "batch 1024") + PINS).plans
    other = SLOW_ALLTOALL.run(evolve(plan, name="other"), tmp_path / "other")
    run = tmp_path / "run.moe"
    run.write_text(RUN.replace("; ", "\n") + "\n")
    found = following(str(first), str(other), "--run", str(run), capsys=capsys)
    assert [t["name"] for t in found["tried"]] == ["main"]
    assert found["other_experiments"] == ["other"]


def test_runs_on_other_machines_are_left_out(first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A step on twice the GPUs, or on another type, says nothing of these, though the experiment is the same."""
    for text in (RUN.replace("x 64", "x 128"), RUN.replace("gb200", "gb300")):
        (plan,) = compiled(text + PINS).plans
        name = f"{plan.hardware}_{plan.gpus}"
        other = SLOW_ALLTOALL.run(evolve(plan, name=name), tmp_path / name)
        run = tmp_path / f"{name}.moe"
        run.write_text(RUN.replace("; ", "\n") + "\n")
        found = following(str(first), str(other), "--run", str(run), capsys=capsys)
        assert [t["name"] for t in found["tried"]] == ["main"]
        assert (found["other_experiments"], found["other_machines"]) == ([], [name])
        assert main(["next", str(first), str(other), "--run", str(run)]) == 0
        assert f"left out, ran on {plan.gpus} {plan.hardware}, not on 64 gb200: {name}" in capsys.readouterr().out
        assert main(["next", str(other), "--run", str(run), "-o", str(tmp_path / "next.moe")]) == 1
        said = capsys.readouterr().err
        assert f"on 64 gb200 has measured or failed ({name}: ran on {plan.gpus} {plan.hardware}" in said
        assert not (tmp_path / "next.moe").exists()


def test_runs_of_other_experiments_alone_are_no_start(
    first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run.moe"
    run.write_text(RUN.replace("; ", "\n") + "\nset optimizer.lr = 0.0002\n")
    assert main(["next", str(first), "--run", str(run), "-o", str(tmp_path / "next.moe")]) == 1
    assert "(main: another experiment)" in capsys.readouterr().err
    assert not (tmp_path / "next.moe").exists()


def test_wrong_input_is_answered(tmp_path: Path, first: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.log").write_text("nothing\n")
    assert main(["next", str(tmp_path)]) == 1
    assert "no run with a plan" in capsys.readouterr().err
    (tmp_path / "two.moe").write_text(RUN.replace("; ", "\n") + "\nsweep micro_batch in 1, 2\n")
    assert main(["next", str(first), "--run", str(tmp_path / "two.moe")]) == 1
    assert "has 2 runs" in capsys.readouterr().err


def test_a_vlms_images_are_no_useful_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The figure that `results` prints, under the same name."""
    (plan,) = compiled("qwen3_vl_30b_a3b; h100 x 16; seq 4k; batch 256; throughput first").plans
    folder = str(Truth({}, noise=0.0).run(plan, tmp_path / "vl"))
    assert plan.estimate.useful_share < 0.8
    rate = pytest.approx(plan.estimate.useful_tokens_per_s_per_gpu, rel=1e-3)
    assert following(folder, capsys=capsys)["tried"][0]["useful_tokens_per_s_per_gpu"] == rate
    assert main(["results", folder, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["useful_tokens_per_s_per_gpu"]["median"] == rate
    assert main(["next", folder]) == 0
    assert "useful tokens/s/GPU" in capsys.readouterr().out
