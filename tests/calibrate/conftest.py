"""The published runs, read once."""

import pytest

from moedsl.runs.measured_runs import Measured, read
from moedsl.support.resources import stdlib_dir


@pytest.fixture(scope="session")
def published() -> list[Measured]:
    _, runs, found = read(stdlib_dir() / "calibration" / "published.jsonl")
    assert not found
    return runs
