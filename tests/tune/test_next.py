"""`moedsl next`: one change to the fastest run, by expected gain, which never changes the experiment."""

from __future__ import annotations

import json
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moedsl.cli.main import main
from moedsl.diagnostics.source import Source
from moedsl.tune import run_file
from moedsl.tune.candidates import candidates, expected
from moedsl.tune.evidence import Tried
from moedsl.tune.posterior import known
from tests.helpers.programs import compiled, compiled_source
from tests.helpers.simulated_cluster import Truth

Json = dict[str, Any]
RUN = "model qwen3_235b_a22b; gb200 x 64; seq 4k; batch 512; precision bf16; routing balanced; throughput first"
PINS = "; pin tp=1 cp=1 pp=8 vpp=1 ep=8 micro_batch=1 dispatcher=alltoall"
SLOW_ALLTOALL = Truth({})


@pytest.fixture(scope="module")
def base() -> run_file.Base:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run_file, "compile_source", compiled_source)
        made = run_file.base(Source("run.moe", RUN))
    assert isinstance(made, run_file.Base)
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


def test_no_candidate_changes_the_experiment(base: run_file.Base) -> None:
    """Graphs of whole iterations, precision and the formats of the optimizer are part of the experiment."""
    found = candidates(base.chosen, base.start, [])
    assert found
    assert not {c.axis for c in found} & {"precision", "moments", "grad_reduce"}
    for c in found:
        if c.axis == "cuda_graph":
            assert "full_iteration" not in c.value
    for c in found[:3]:
        made = run_file.with_layout(base, c.codes, "tried")
        assert isinstance(made, run_file.RunFile)
        assert made.plan.experiment.fingerprint == base.plan.experiment.fingerprint


def test_what_ran_out_of_memory_is_not_tried_with_more(base: run_file.Base) -> None:
    free = candidates(base.chosen, base.start, [])
    failed = Tried("first", base.start, None, out_of_memory=True)
    left = candidates(base.chosen, base.start, [failed])
    assert 0 < len(left) < len(free)


def test_what_was_measured_moves_what_is_expected(base: run_file.Base) -> None:
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
    other = SLOW_ALLTOALL.run(plan.replace(name="other"), tmp_path / "other")
    run = tmp_path / "run.moe"
    run.write_text(RUN.replace("; ", "\n") + "\n")
    found = following(str(first), str(other), "--run", str(run), capsys=capsys)
    assert [t["name"] for t in found["tried"]] == ["main"]
    assert found["other_experiments"] == ["other"]


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
