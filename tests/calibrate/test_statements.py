"""Published statements about memory against the estimate, and runs that ran against its verdict."""

from __future__ import annotations

from pathlib import Path

from accuracy_statements import statements

from moedsl.cost.estimate import FITS, NOT, bounds
from moedsl.runs.measured_runs import read
from tests.helpers.paths import ROOT

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
