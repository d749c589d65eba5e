"""`moedsl results --baseline`: a regression is beyond the noise of the steps, and what changed is named."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from moedsl.cli.main import main
from moedsl.runs.results.measure import error_of

Json = dict[str, Any]
RUN = "model qwen3_30b_a3b; h100 x 16; seq 4k; batch 512; precision bf16; routing balanced; throughput first; "
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
        assert main(["compile", "-e", RUN + PINS + more, "-o", str(folder / name)]) == 0
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
