"""Constants from measured runs: known ones are found again, wrong lines are named, a user's file takes effect."""

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from accuracy_goldens import FAR, MIB, TERMS, Golden, goldens
from accuracy_groups import GROUPS, rank_correlation, summary
from accuracy_interval import slopes
from accuracy_left_out import folds, left_out
from accuracy_parts import GOAL, PARTS, parts
from accuracy_statements import statements
from accuracy_tflops import stated
from attrs import evolve

from moedsl.cli.main import main
from moedsl.compiler import compile_source
from moedsl.cost import step
from moedsl.cost.estimate import FITS, NOT, bounds
from moedsl.facts.calibration import first_guess, fitted, outside
from moedsl.runs.calibrate import errors, fit
from moedsl.runs.measured_runs import SHOWN, Measured, read
from moedsl.solver.fits import violations
from moedsl.support.resources import stdlib_dir
from moedsl.support.source import Source
from tests.helpers.paths import ROOT
from tests.helpers.tables import table_of

PUBLISHED = stdlib_dir() / "calibration" / "published.jsonl"


def on(runs: list[Measured], arch: str) -> list[Measured]:
    return [r for r in runs if r.arch == arch]


def test_the_published_runs_are_there(published: list[Measured]) -> None:
    assert len(published) == 173
    assert {r.gpu for r in published} == {"h100", "b200", "gb200", "gb300"}


def test_the_published_runs_are_legal(published: list[Measured]) -> None:
    """They ran: one that Megatron-Core would refuse has been misread."""
    refused = {r.id: [law.id for law in violations(r.program, r.program.gpus or 0)] for r in published}
    assert {name: laws for name, laws in refused.items() if laws} == {}


def test_constants_that_made_the_runs_are_found_again(published: list[Measured]) -> None:
    """Runs whose speeds other constants made: the fit finds the speeds, and most of the constants."""
    some = on(published, "blackwell")[::5]
    start = some[0].cost.hardware.constants
    truth = evolve(start, gemm8=0.82 * start.gemm8, stream=1.2 * start.stream, unfused=0.83 * start.unfused)
    made = [evolve(r, tokens=r.predicted(truth)) for r in some]
    found = fit(made, start)
    assert max(abs(errors(made, found.constants))) < 0.03
    assert found.constants.gemm8 == pytest.approx(truth.gemm8, rel=0.1)
    assert {"gemm8", "stream"} <= {*found.moved}


def test_what_no_run_speaks_of_stays(published: list[Measured]) -> None:
    some = [r for r in on(published, "blackwell") if r.precision == "mxfp8"][:6]
    start = some[0].cost.hardware.constants
    found = fit(some, start)
    assert found.constants.gemm4 == pytest.approx(start.gemm4)
    assert "gemm4" not in found.moved
    assert not [*outside(found.constants)]


def test_the_stdlibs_constants_are_within_their_ranges(published: list[Measured]) -> None:
    for r in published[:1] + on(published, "hopper")[:1]:
        assert fitted(r.cost.hardware.constants) and not [*outside(r.cost.hardware.constants)]


@pytest.mark.parametrize("arch, median", [("blackwell", 0.06), ("hopper", 0.09)])
def test_the_stdlibs_constants_explain_the_published_runs(published: list[Measured], arch: str, median: float) -> None:
    off = sorted(abs(errors(on(published, arch))))
    assert off[len(off) // 2] < median


def test_speeds_that_come_as_tflops() -> None:
    """Configurations of NVIDIA's guides and of the model zoo, with TFLOPS and no tokens."""
    off = sorted(abs(s.error) for s in stated())
    assert len(off) == 13
    assert off[len(off) // 2] < 0.12
    assert all(s.measured.predicted() / (s.measured.tokens or 0) == pytest.approx(1 + s.error) for s in stated())


def test_left_out_beats_one_tflops_figure(published: list[Measured]) -> None:
    some = [r for r in on(published, "blackwell") if r.release in ("26.08", "25.11")]
    (found,) = left_out(list(folds(some, {"model": GROUPS["model"]})), slopes(some)).values()
    s = summary(found)
    assert s.runs == len(some)
    assert s.median < s.rival_median / 2
    assert s.rank > 0.95


def test_every_group_has_runs_and_leaves_others(published: list[Measured]) -> None:
    """And runs with TFLOPS only are asked for, not fitted to."""
    rates = [s.measured for s in stated()]
    some = list(folds(published, GROUPS, rates))
    assert {(f.name, f.left) for f in some} >= {
        ("scale", "above 1,024 GPUs"), ("length", "above 8k tokens"), ("routing", "natural"), ("attention", "MLA"),
        ("attention", "delta nets"), ("attention", "Mamba-2"), ("GPU", "b200"), ("age", "26.06"),
    }  # fmt: skip
    for f in some:
        assert f.seen and f.unseen
        assert not {r.id for r in f.seen} & {r.id for r in [*f.unseen, *rates]}


def test_runs_that_others_contradict_are_not_fitted(published: list[Measured]) -> None:
    _, apart, found = read(PUBLISHED.with_name("contradicted.jsonl"))
    assert not found
    assert not {r.id for r in apart} & {r.id for r in published}


def test_rank_correlation_knows_ties() -> None:
    import numpy as np

    assert rank_correlation(np.array([1.0, 2, 2, 3]), np.array([1.0, 2, 2, 3])) == pytest.approx(1)
    assert rank_correlation(np.array([1.0, 2, 3]), np.array([3.0, 2, 1])) == pytest.approx(-1)


@pytest.mark.parametrize("line, why", table_of("calibrate", "a line that cannot be read"))
def test_a_line_that_cannot_be_read_is_named(tmp_path: Path, line: str, why: str) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text(f"\n{line}\n")
    source, runs, (found,) = read(file)
    assert not runs
    assert why in found.message
    assert source.position(found.labels[0].span.start)[0] == 2


GOOD = '{"run": "qwen3_30b_a3b; h100 x 16; pin ep=16", "tokens_per_s_per_gpu": 12440}\n'


def test_a_log_is_not_read_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "train.log"
    file.write_text("iteration 1/ 100 | elapsed time per iteration (ms): 5000.0 |\n" * 1000)
    _, runs, found = read(file)
    assert not runs and len(found) == SHOWN + 1
    assert "are no measured runs" in found[-1].message
    assert found[-1].help == ("`moedsl results LOG --measured FILE` writes such lines from logs",)


def test_many_wrong_lines_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text(GOOD + "{\n" * 40)
    _, runs, found = read(file)
    assert len(runs) == 1 and len(found) == SHOWN + 1
    assert "35 other lines" in found[-1].message


def test_a_users_calibration_takes_effect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = tmp_path / "runs.jsonl"
    text = "qwen3_30b_a3b; h100 x 16; throughput first; seq 4096; batch 1024"
    speed = step_of_deepseek(text, tmp_path)
    rows = [{"id": n, "run": f"{text}; micro_batch {n}", "tokens_per_s_per_gpu": speed * 0.7} for n in (1, 2)]
    runs.write_text("\n".join(map(json.dumps, rows)))
    assert main(["calibrate", str(runs), "-o", str(tmp_path / "mine.moe")]) == 0
    assert "calibration hopper" in (tmp_path / "mine.moe").read_text()
    assert step_of_deepseek(f'use "mine.moe"\n{text}', tmp_path) < 0.93 * speed
    fitted = (tmp_path / "mine.moe").read_text()
    for edited in ("# mine\n", fitted.replace("0.", "0.1", 1)):
        (tmp_path / "mine.moe").write_text(edited)
        assert main(["calibrate", str(runs), "-o", str(tmp_path / "mine.moe")]) == 1
        assert "--force" in capsys.readouterr().err


def step_of_deepseek(text: str, folder: Path) -> float:
    """Tokens/s of a GPU in the plan."""
    result = compile_source(Source(str(folder / "run.moe"), text))
    assert not result.failed, result.diagnostics
    return result.plans[0].estimate.tokens_per_s_per_gpu


def test_constants_out_of_range_are_refused(tmp_path: Path) -> None:
    text = (stdlib_dir() / "calibration" / "hopper.moe").read_text(encoding="utf-8")
    wrong = re.sub(r"gemm 0\.", "gemm 7.", text, count=1)
    assert wrong != text
    result = compile_source(Source("run.moe", f"{wrong}\nqwen3_30b_a3b; h100 x 16"))
    assert [d.id for d in result.diagnostics if d.is_error] == ["check.calibration"]


# Published statements about memory against the estimate, and runs that ran against its verdict.

FOLDER = ROOT / "stdlib/calibration"


def test_every_statement_agrees_with_the_estimate_but_those_with_a_reason() -> None:
    found, wrong = statements(FOLDER / "statements.jsonl")
    assert not wrong
    assert len(found) == 16
    assert (
        [s.run.id for s in found if not s.judged().agrees] == [s.run.id for s in found if s.but] == ["long 3", "long 4"]
    )


def test_no_run_that_ran_is_refused_but_those_with_a_reason() -> None:
    """The reasons say why some are TIGHT."""
    reasons = {line.split()[0] for line in (FOLDER / "memory_notes.txt").read_text().splitlines() if line}
    _, runs, _ = read(FOLDER / "published.jsonl")
    verdicts = {r.id: bounds(r.cost, r.row).verdict for r in runs}
    assert {id for id, verdict in verdicts.items() if verdict != FITS} == reasons
    assert NOT not in verdicts.values()


def test_no_published_peak_is_above_the_most_that_is_said() -> None:
    """And half of them lie within 3% of the best figure."""
    _, runs, _ = read(FOLDER / "published.jsonl")
    peaks = {(r.model, r.peak): (r, bounds(r.cost, r.row)) for r in runs if r.peak}
    assert len(peaks) == 10
    assert not [r.id for r, b in peaks.values() if (r.peak or 0.0) * 1e9 > b.most]
    errors = sorted(abs(b.best / 1e9 / (r.peak or 1.0) - 1) for r, b in peaks.values())
    assert errors[len(errors) // 2] < 0.03 and errors[-1] < 0.07


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    file = tmp_path / "statements.jsonl"
    file.write_text('{"run": "no_such_model; h100 x 8", "source": "", "says": "", "claim": "fits"}\n')
    found, wrong = statements(file)
    assert not found
    assert len(wrong) == 1


# Runs that papers publish, which Ampere's constants are fitted to.


@pytest.fixture(scope="module")
def papers() -> list[Measured]:
    _, runs, found = read(stdlib_dir() / "calibration" / "papers.jsonl")
    assert not found
    return runs


def test_the_stdlibs_constants_explain_them(papers: list[Measured]) -> None:
    off = np.abs(errors(papers))
    assert np.median(off) < 0.01 and off.max() < 0.08
    assert not [*outside(papers[0].cost.hardware.constants)]


def test_a_run_that_the_fit_has_not_seen_is_within_a_tenth(papers: list[Measured]) -> None:
    for r in papers:
        found = fit([other for other in papers if other is not r], first_guess(r.cost.hardware.constants))
        assert abs(errors([r], found.constants)[0]) < 0.1, r.id


def test_no_run_is_faster_than_its_gpu(papers: list[Measured]) -> None:
    for r in papers:
        m = r.program.model
        rate = 72 * m.layers * m.hidden**2 * (r.tokens or 0)
        assert 0.35 < rate / (r.cost.hardware.tflops["bf16"] * 1e12) < 0.6, r.id


# Parts of profiled steps against the estimate: within 20%.


def test_parts_of_real_steps_are_within_a_fifth() -> None:
    found = parts()
    assert {p.name for p in found} == {*PARTS}
    assert len(found) == 7 and max(abs(p.error) for p in found) <= GOAL


def test_a_profile_has_every_transfer_between_stages() -> None:
    """The first of four stages, each of four chunks: 1,344 calls in three steps of 32 microbatches."""
    assert step.transfers(0, 4, 4) * 32 * 3 == 1344
    assert [step.transfers(stage, 3, 1) for stage in range(3)] == [2, 4, 2]
    assert step.transfers(0, 1, 1) == 0


def test_the_parts_of_the_slowest_stage_are_those_of_the_plan() -> None:
    r = parts()[0].run
    whole, at = r.cost.time_report(r.row), [r.cost.stage_report(r.row, i) for i in range(4)]
    slowest = max(at, key=lambda parts: sum(parts[p] for p in step.MICROBATCH))
    assert {p: slowest[p] for p in step.MICROBATCH} == pytest.approx({p: whole[p] for p in step.MICROBATCH})
    for parts_ in at:
        work = sum(parts_[p] for kind in step.KINDS.values() for p in kind if p in parts_)
        assert work == pytest.approx(parts_["compute"])


# Peaks that Megatron expects of its own functional tests, against the estimate.

STATE = ("whole optimizer", "optimizer instances", "learned positions")


@pytest.fixture(scope="module")
def made() -> tuple[list[Golden], Counter[str]]:
    """The tests that are carried over, and why the others are not."""
    return goldens()


@pytest.fixture
def found(made: tuple[list[Golden], Counter[str]]) -> list[Golden]:
    return made[0]


def test_most_tests_are_carried_and_the_others_have_a_reason(made: tuple[list[Golden], Counter[str]]) -> None:
    carried, cannot = made
    assert (len(carried), cannot.total()) == (84, 18)
    assert all(cannot)


def test_peaks_are_within_the_goals(found: list[Golden]) -> None:
    """5% in the median, 10% for nine of ten; the farthest have a reason."""
    off = [abs(g.error) for g in found]
    assert np.median(off) < 0.05
    assert np.percentile(off, 90) < 0.1
    assert all(g.why for g in found if abs(g.error) > FAR)


def test_each_gpu_is_within_the_goals(found: list[Golden]) -> None:
    for gpu in ("a100_80gb", "h100", "gb200"):
        off = [abs(g.error) for g in found if g.gpu == gpu]
        assert np.median(off) < 0.05 and np.percentile(off, 85) < 0.1, gpu


def test_what_ran_fits(found: list[Golden]) -> None:
    assert not [g.id for g in found if not g.fits]


def is_plain(g: Golden) -> bool:
    """Whether only weights, gradients, optimizer state and workspaces remain after a step."""
    return not g.cost.accumulates and not g.row["cuda_graph"] and not g.row["sharding"]


def left(g: Golden) -> float:
    """What is neither state nor workspace, MiB."""
    c, s = g.cost.hardware.constants, g.stage
    more = sum(TERMS[name](g, n) for name, n in g.terms.items() if name in STATE)
    streams = 1 if "single products" in g.terms else 1 + c.te_streams
    workspaces = streams * c.te_workspace + c.torch_threads * c.torch_workspace
    return (g.after - s.weights - s.gradients - s.optimizer - more - workspaces) / MIB


@pytest.mark.parametrize("gpu", ["a100_80gb", "h100", "gb200"])
@pytest.mark.parametrize("grouped", [True, False])
def test_what_remains_after_a_step_is_the_state_and_the_workspaces(
    gpu: str, grouped: bool, found: list[Golden]
) -> None:
    """Transformer Engine's workspace and those of grouped products are counted apart, before Hopper and since."""
    plain = [g for g in found if is_plain(g) and g.gpu == gpu and grouped != ("single products" in g.terms)]
    more = [left(g) for g in plain]
    assert 5 < np.median(more) < 20
    assert np.mean(np.abs(more) < 45) > 0.8
