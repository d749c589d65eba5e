"""Runs that papers publish, which Ampere's constants are fitted to."""

from __future__ import annotations

import numpy as np
import pytest

from moedsl.facts.calibration import first_guess, outside
from moedsl.runs.calibrate import errors, fit
from moedsl.runs.measured_runs import Measured, read
from moedsl.support.resources import stdlib_dir


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
